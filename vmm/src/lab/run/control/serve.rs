//! Answers on the control socket.

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

use super::{Answer, LONGEST_REQUEST, Lines, Request, Wish};
use crate::lab::run::{
    Order,
    status::{Dated, RunState},
};

/// Connections at a time.
const CONNECTIONS: usize = 64;

/// How long an answer may take to be read.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a client that does not watch may say nothing.
const SILENCE: Duration = Duration::from_secs(60);

/// Between two answers to one client, and between two connections: what bounds the time that a
/// flood of them takes from the run.
const PACE: Duration = Duration::from_millis(5);

/// Between two lines to a watcher.
const WATCH_PACE: Duration = Duration::from_millis(250);

/// How long watchers have to take the last line.
const FAREWELL: Duration = Duration::from_secs(1);

/// Answers until the run whose status it is has ended.
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
        // Who has gone takes nobody's place.
        while clients.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) if clients.len() < CONNECTIONS => {
                let client = Client::new(stream, status.clone(), orders.clone());
                clients.spawn(client.serve());
            }
            Ok((stream, _)) => turn_away(&stream),
            // Out of descriptors, most likely: some may come free.
            Err(_) => sleep(WATCH_PACE).await,
        }
        sleep(PACE).await;
    }
    // Those that are still there after that are dropped.
    let _ = timeout(FAREWELL, async { while clients.join_next().await.is_some() {} }).await;
}

async fn over(status: &mut watch::Receiver<Dated>) {
    let _ = status.wait_for(|dated| dated.state() == RunState::Ended).await;
}

/// With one line, if it can be had at once.
fn turn_away(stream: &UnixStream) {
    let why = format!("there are {CONNECTIONS} connections already");
    if let Ok(line) = Answer::bad(&why).line() {
        let _ = stream.try_write(&line);
    }
}

/// One connection.
struct Client {
    stream: UnixStream,
    status: watch::Receiver<Dated>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Client {
    fn new(
        stream: UnixStream,
        mut status: watch::Receiver<Dated>,
        orders: mpsc::UnboundedSender<Order>,
    ) -> Self {
        status.mark_unchanged();
        Self { stream, status, orders }
    }

    /// Until it goes, misbehaves, or the run ends. Why is its own business.
    async fn serve(self) {
        let _ = self.answer_all().await;
    }

    async fn answer_all(self) -> io::Result<()> {
        let Self { stream, mut status, orders } = self;
        let (mut input, mut output) = stream.into_split();
        let (mut lines, mut buffer) = (Lines::new(LONGEST_REQUEST), [0; 4096]);
        // When the next line to a watcher is due; None: it does not watch.
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

/// At the next change; not before `due`, if it is for a watcher. Dropped and asked again, it has
/// missed none.
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

/// Has the run do it, and waits until it does.
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
    // What it does already is not said to it again: a second stop waits for nobody.
    if !goal.contains(&state) && orders.send(order).is_err() {
        return Answer::bad(&"the run is over");
    }
    let arrived = |dated: &Dated| goal.contains(&dated.state());
    let is_there = matches!(timeout(PATIENCE, status.wait_for(arrived)).await, Ok(Ok(_)));
    match is_there {
        true => good(status),
        false => Answer::bad(&"the run has not taken it up yet: it ends, or waits for a worker"),
    }
}

/// Writes an answer, to whoever reads it in time.
async fn send(output: &mut OwnedWriteHalf, answer: &Answer) -> io::Result<()> {
    let line = answer.line()?;
    timeout(PATIENCE, output.write_all(&line)).await.map_err(|_| ErrorKind::TimedOut)?
}
