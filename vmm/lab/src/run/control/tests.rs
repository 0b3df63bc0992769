use proptest::prelude::*;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::mpsc,
    task::JoinHandle,
};

use super::*;
use crate::run::{Order, Watcher, status::Board};
use study::{status::RunState, testing::experiment};

proptest! {
    #[test]
    fn arbitrary_bytes_are_a_request_or_an_error_in_one_line(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        if let Err(error) = Request::parse(&bytes) {
            let answer = Answer::bad(&error).line().unwrap();
            prop_assert_eq!(memchr::memchr(b'\n', &answer), Some(answer.len() - 1));
        }
    }

    #[test]
    fn lines_are_the_same_however_they_come(
        text in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
        cuts in proptest::collection::vec(1usize..50, 1..50),
    ) {
        let (mut lines, mut found, mut rest) = (LineReader::new(1000), Vec::new(), &text[..]);
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at(*cut.min(&rest.len()));
            lines.add(now);
            while let Some(line) = lines.take().unwrap() {
                found.push(line);
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        let mut whole: Vec<_> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        whole.pop();
        prop_assert_eq!(found, whole);
    }

    #[test]
    fn no_more_is_kept_than_the_limit_and_what_came_last(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..90), 0..50),
    ) {
        let mut lines = LineReader::new(200);
        for piece in pieces {
            lines.add(&piece);
            loop {
                match lines.take() {
                    Ok(Some(line)) => prop_assert!(line.len() < 200),
                    Ok(None) => break,
                    Err(error) => {
                        prop_assert_eq!(error, TooLong(200));
                        return Ok(());
                    }
                }
            }
        }
    }
}

#[test]
fn requests_are_what_the_description_says() {
    for (text, wish) in [
        ("status", Wish::Status),
        ("pause", Wish::Pause),
        ("resume", Wish::Resume),
        ("stop", Wish::Stop),
        ("watch", Wish::Watch),
    ] {
        let line = format!("{{\"do\":\"{text}\"}}");
        assert_eq!(Request::parse(line.as_bytes()).unwrap(), Request { wish });
        assert_eq!(Request { wish }.line().unwrap(), format!("{line}\n").into_bytes());
    }
    for bad in
        ["", "{}", "status", "{\"do\":\"fly\"}", "{\"do\":\"stop\",\"when\":1}", "[", "\u{0}"]
    {
        let error = Request::parse(bad.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("{\"do\":\"status\"}"), "{bad}: {error}");
    }
}

/// A server for a fake run that only obeys orders.
struct Served {
    folder: std::path::PathBuf,
    server: JoinHandle<()>,
    run: JoinHandle<()>,
}

impl Served {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("pvticket-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(folder.join("s")).unwrap();
        let (send, mut orders) = mpsc::unbounded_channel();
        // The board borrows its experiment.
        let experiment: &'static _ = Box::leak(Box::new(experiment()));
        let mut board = Board::new(experiment, &[].into(), 0, 1, std::path::Path::new("runs/x"));
        let server = tokio::spawn(serve(listener.into(), board.subscribe(), send));
        let run = tokio::spawn(async move {
            while let Some(order) = orders.recv().await {
                board.ordered(order);
                if order == Order::Stop {
                    break;
                }
            }
            board.over();
        });
        Self { folder, server, run }
    }

    async fn connect(&self) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(self.folder.join("s")).await.unwrap())
    }

    async fn ended(self) {
        self.run.await.unwrap();
        self.server.await.unwrap();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

async fn hear(client: &mut BufReader<UnixStream>) -> Option<Answer> {
    let mut line = String::new();
    let _ = client.read_line(&mut line).await;
    (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
}

async fn ask(client: &mut BufReader<UnixStream>, request: &[u8]) -> Option<Answer> {
    let _ = client.write_all(request).await;
    hear(client).await
}

fn state(answer: Option<Answer>) -> RunState {
    answer.unwrap().status.unwrap().state
}

fn on_a_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn orders_are_obeyed_before_they_are_answered() {
    on_a_runtime(async {
        let served = Served::start("obeys");
        let mut client = served.connect().await;
        assert_eq!(state(ask(&mut client, b"{\"do\":\"status\"}\n").await), RunState::Running);
        assert_eq!(state(ask(&mut client, b"{\"do\":\"pause\"}\n").await), RunState::Paused);
        assert_eq!(state(ask(&mut client, b"{\"do\":\"pause\"}\n").await), RunState::Paused);
        let mut watcher = served.connect().await;
        assert_eq!(state(ask(&mut watcher, b"{\"do\":\"watch\"}\n").await), RunState::Paused);
        assert_eq!(state(ask(&mut client, b"{\"do\":\"resume\"}\n").await), RunState::Running);
        assert_eq!(state(hear(&mut watcher).await), RunState::Running);
        // Two requests in one write, and part of a third.
        let both = b"{\"do\":\"pause\"}\n{\"do\":\"resume\"}\n{\"do\":";
        assert_eq!(state(ask(&mut client, both).await), RunState::Paused);
        assert_eq!(state(hear(&mut client).await), RunState::Running);
        let stopped = state(ask(&mut client, b"\"stop\"}\n").await);
        assert!(matches!(stopped, RunState::Stopping | RunState::Ended), "{stopped:?}");
        let mut last = None;
        while let Some(answer) = hear(&mut watcher).await {
            last = Some(answer);
        }
        assert_eq!(state(last), RunState::Ended);
        served.ended().await;
    });
}

#[test]
fn an_invalid_request_is_reported_and_harms_nobody() {
    on_a_runtime(async {
        let served = Served::start("garbage");
        let mut client = served.connect().await;
        for garbage in [&b"\xff\xfe\0\n"[..], b"\n", b"GET / HTTP/1.1\r\n", b"{\"do\":1}\n"] {
            let answer = ask(&mut client, garbage).await.unwrap();
            assert!(!answer.ok && answer.error.is_some(), "{answer:?}");
        }
        assert!(ask(&mut client, b"{\"do\":\"status\"}\n").await.unwrap().ok);
        let long = vec![b'x'; LONGEST_REQUEST + 1];
        // The server may have hung up before all was written, and its answer be lost.
        if let Some(answer) = ask(&mut client, &long).await {
            assert!(answer.error.unwrap().contains("64 KiB"));
        }
        assert!(hear(&mut client).await.is_none());
        let mut other = served.connect().await;
        ask(&mut other, b"{\"do\":\"stop\"}\n").await.unwrap();
        served.ended().await;
    });
}

#[test]
fn hundreds_who_say_nothing_are_turned_away_and_leave_room() {
    on_a_runtime(async {
        let served = Served::start("hundreds");
        let mut silent = Vec::new();
        for _ in 0..200 {
            silent.push(served.connect().await);
        }
        let mut away = 0;
        for client in silent.split_off(100) {
            // Refused connections are closed.
            let mut client = client;
            away += u32::from(hear(&mut client).await.is_some_and(|answer| !answer.ok));
        }
        assert_eq!(away, 100);
        drop(silent);
        let mut client = served.connect().await;
        while !ask(&mut client, b"{\"do\":\"status\"}\n").await.is_some_and(|answer| answer.ok) {
            client = served.connect().await;
        }
        ask(&mut client, b"{\"do\":\"stop\"}\n").await.unwrap();
        served.ended().await;
    });
}

#[test]
fn a_closed_connection_takes_no_place() {
    on_a_runtime(async {
        let served = Served::start("gone");
        for _ in 0..200 {
            drop(served.connect().await);
        }
        // The client queues behind all of them, none of which is connected any more.
        for _ in 0..20 {
            let mut client = served.connect().await;
            let answer = ask(&mut client, b"{\"do\":\"status\"}\n").await.unwrap();
            assert!(answer.ok, "{answer:?}");
        }
        let mut client = served.connect().await;
        ask(&mut client, b"{\"do\":\"stop\"}\n").await.unwrap();
        served.ended().await;
    });
}
