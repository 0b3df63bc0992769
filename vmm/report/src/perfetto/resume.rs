//! Finds the position to resume a trace file that a killed program was writing.

use std::io::BufRead;

use super::{
    proto::TrackEventType,
    read::{Packets, TraceError},
    write::{is_run_track, run_of},
};

/// The length in bytes of a file's leading runs that are complete and for whose numbers `are_wanted`
/// returns true. Runs are written in sequence, so the first other run is incomplete, or its figures
/// did not reach the store. It and all later runs are not included.
pub fn length_of_wanted(
    input: impl BufRead,
    are_wanted: impl Fn(u32) -> bool,
) -> Result<u64, TraceError> {
    let mut packets = Packets::new(input);
    // `length`: end of the last complete run; `open`: open slices of the run after it.
    let (mut length, mut open) = (0, 0u32);
    loop {
        let packet = match packets.next() {
            Ok(Some(packet)) => packet,
            Ok(None) | Err(TraceError::Short(_)) => return Ok(length),
            Err(error) => return Err(error),
        };
        let run = run_of(packet.sequence).ok_or(TraceError::NotOurs)?;
        if !are_wanted(run) {
            return Ok(length);
        }
        let Some(event) = packet.event.filter(|event| is_run_track(event.track_uuid)) else {
            continue;
        };
        match event.kind() {
            TrackEventType::SliceBegin => open += 1,
            TrackEventType::SliceEnd if open == 1 => (length, open) = (packets.at, 0),
            TrackEventType::SliceEnd => open = open.saturating_sub(1),
            _ => {}
        }
    }
}
