//! The thread that delivers kicks delayed by fault injection.

use std::{
    io,
    sync::Arc,
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use confine::Class;
use sched::halts::Courier;

use super::Board;
use crate::clock::Moment;

const STACK_BYTES: usize = 128 << 10;

/// Starts the thread, which ends when the machine stops and the thread is unparked.
pub fn start(board: Arc<Board>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("courier".into()).stack_size(STACK_BYTES).spawn(move || {
        confine::enter(Class::Courier);
        let mut courier = Courier::default();
        board.kicks.register_courier(thread::current());
        while !board.stopping() {
            let now = Moment::now().reading();
            match board.kicks.deliver_due(&mut courier, now) {
                Some(due) => thread::park_timeout(Duration::from_nanos(due.since(now).0)),
                None => thread::park(),
            }
        }
    })
}
