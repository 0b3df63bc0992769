//! Many threads send to many others, after hackbench: all of them keep sleeping and waking.

use std::{io, os::unix::net::UnixDatagram};

use super::Workload;
use crate::{crew, tally::WorkerCell};

/// The default number of senders, and of receivers.
const DEFAULT_PER_SIDE: usize = 10;
/// Bytes of a message.
const BYTES: usize = 100;
/// An ordinary message, and a sender's last.
const MORE: [u8; BYTES] = [1; BYTES];
const LAST: [u8; BYTES] = [0; BYTES];

pub const WORKLOAD: Workload = Workload {
    name: "messaging",
    about: "10 threads send messages of 100 bytes to each of 10 others (like hackbench)",
    run: |_, options| {
        let per_side = options.workers.unwrap_or(DEFAULT_PER_SIDE);
        let wires = (0..per_side).map(|_| UnixDatagram::pair()).collect::<Result<Vec<_>, _>>()?;
        let send = |message| wires.iter().try_for_each(|(near, _)| near.send(message).map(drop));
        let part = crew::threads(2 * per_side, options, |ix, ready, cell| {
            ready();
            // The first half receives; the receivers count.
            if ix < per_side {
                return receive(&wires[ix].1, per_side, cell);
            }
            while !cell.is_stopped() {
                send(&MORE)?;
            }
            send(&LAST)
        })?;
        Ok(vec![part])
    },
    each: None,
};

/// Receives until `senders` senders have ended.
fn receive(wire: &UnixDatagram, mut senders: usize, cell: WorkerCell<'_>) -> io::Result<()> {
    let mut message = [0; BYTES];
    while senders > 0 {
        wire.recv(&mut message)?;
        if message == LAST {
            senders -= 1;
        } else {
            cell.count();
        }
    }
    Ok(())
}
