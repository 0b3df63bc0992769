//! The server of the control socket.

use std::{
    io::{self, ErrorKind},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream, unix::OwnedWriteHalf},
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{Answer, LONGEST_REQUEST, LineReader, Request, Wish};
use crate::run::{Order, status::Dated};
use study::status::RunState;

/// Most connections at a time.
const CONNECTIONS: usize = 64;

/// How long a client may take to read an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a client that does not watch may stay silent.
const SILENCE: Duration = Duration::from_secs(60);

/// Least interval between two answers to one client, and between two connections: bounds the time
/// that a flood of requests takes from the run.
const PACE: Duration = Duration::from_millis(5);

/// Least interval between two lines to a watcher.
const WATCH_PACE: Duration = Duration::from_millis(250);

/// How long watchers have to take the last line.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves clients until the run has ended.
pub async fn serve(
    listener: Arc<UnixListener>,
    status: watch::Receiver<Dated>,
    orders: mpsc::UnboundedSender<Order>,
) {
    let mut clients = JoinSet::new();
    let mut end = status.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = over(&mut end) => break,
        };
        // Clients that have gone no longer count.
        while clients.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) if clients.len() < CONNECTIONS => {
                let client = ClientConnection::new(stream, status.clone(), orders.clone());
                clients.spawn(client.serve());
            }
            Ok((stream, _)) => turn_away(&stream),
            // Most likely out of descriptors: some may be closed later.
            Err(_) => sleep(WATCH_PACE).await,
        }
        sleep(PACE).await;
    }
    // Clients still connected after that are dropped.
    let _ = timeout(FAREWELL, async { while clients.join_next().await.is_some() {} }).await;
}

async fn over(status: &mut watch::Receiver<Dated>) {
    let _ = status.wait_for(|dated| dated.state() == RunState::Ended).await;
}

/// Refuses a connection with one line, if that can be written at once.
fn turn_away(stream: &UnixStream) {
    let error = format!("there are {CONNECTIONS} connections already");
    if let Ok(line) = Answer::bad(&error).line() {
        let _ = stream.try_write(&line);
    }
}

/// A connected client.
struct ClientConnection {
    stream: UnixStream,
    status: watch::Receiver<Dated>,
    orders: mpsc::UnboundedSender<Order>,
}

impl ClientConnection {
    fn new(
        stream: UnixStream,
        mut status: watch::Receiver<Dated>,
        orders: mpsc::UnboundedSender<Order>,
    ) -> Self {
        status.mark_unchanged();
        Self { stream, status, orders }
    }

    /// Serves the client until it disconnects, misbehaves, or the run ends. Errors are ignored.
    async fn serve(self) {
        let _ = self.answer_all().await;
    }

    async fn answer_all(self) -> io::Result<()> {
        let Self { stream, mut status, orders } = self;
        let (mut input, mut output) = stream.into_split();
        let (mut lines, mut buffer) = (LineReader::new(LONGEST_REQUEST), [0; 4096]);
        // When the next line to a watcher is due; None: the client does not watch.
        let mut watch: Option<Instant> = None;
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                count = input.read(&mut buffer) => match count? {
                    0 => return Ok(()),
                    count => {
                        heard = Instant::now();
                        lines.add(&buffer[..count]);
                    }
                },
                () = sleep_until(heard + SILENCE), if watch.is_none() => return Ok(()),
                changed = changed(&mut status, watch) => {
                    let over = changed.is_err() || status.borrow().state() == RunState::Ended;
                    if watch.is_some() {
                        send(&mut output, &good(&status)).await?;
                        watch = Some(Instant::now() + WATCH_PACE);
                    }
                    if over {
                        return Ok(());
                    }
                }
            }
            loop {
                let line = match lines.take() {
                    Ok(Some(line)) => line,
                    Ok(None) => break,
                    Err(error) => return send(&mut output, &Answer::bad(&error)).await,
                };
                let answer = match Request::parse(&line) {
                    Ok(Request { wish }) => {
                        if wish == Wish::Watch {
                            status.mark_unchanged();
                            watch = Some(Instant::now() + WATCH_PACE);
                        }
                        obey(wish, &mut status.clone(), &orders).await
                    }
                    Err(error) => Answer::bad(&error),
                };
                send(&mut output, &answer).await?;
                sleep(PACE).await;
            }
        }
    }
}

/// Waits for the next change, which a watcher sees at `due` at the earliest. Cancel-safe: no change
/// is missed if the future is dropped and created again.
async fn changed(
    status: &mut watch::Receiver<Dated>,
    due: Option<Instant>,
) -> Result<(), watch::error::RecvError> {
    if let Some(due) = due {
        sleep_until(due).await;
    }
    status.changed().await
}

fn good(status: &watch::Receiver<Dated>) -> Answer {
    Answer::good(status.borrow().at(Instant::now().into_std()))
}

/// Gives the order to the run, and waits until it has taken effect.
async fn obey(
    wish: Wish,
    status: &mut watch::Receiver<Dated>,
    orders: &mpsc::UnboundedSender<Order>,
) -> Answer {
    use RunState::{Ended, Paused, Running, Stopping};
    let (order, goal): (_, &[RunState]) = match wish {
        Wish::Status | Wish::Watch => return good(status),
        Wish::Pause => (Order::Pause, &[Paused]),
        Wish::Resume => (Order::Resume, &[Running]),
        Wish::Stop => (Order::Stop, &[Stopping, Ended]),
    };
    let state = status.borrow().state();
    if wish != Wish::Stop && matches!(state, Stopping | Ended) {
        return Answer::bad(&"the run is stopping");
    }
    // An order already in effect is not repeated: a second stop would kill the workers at once.
    if !goal.contains(&state) && orders.send(order).is_err() {
        return Answer::bad(&"the run is over");
    }
    let arrived = |dated: &Dated| goal.contains(&dated.state());
    let is_there = matches!(timeout(PATIENCE, status.wait_for(arrived)).await, Ok(Ok(_)));
    if is_there {
        good(status)
    } else {
        Answer::bad(&"the run has not taken it up yet: it ends, or waits for a worker")
    }
}

/// Writes an answer; fails if the client does not read it in time.
async fn send(output: &mut OwnedWriteHalf, answer: &Answer) -> io::Result<()> {
    let line = answer.line()?;
    timeout(PATIENCE, output.write_all(&line)).await.map_err(|_| ErrorKind::TimedOut)?
}
