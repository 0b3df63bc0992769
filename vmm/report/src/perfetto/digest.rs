//! Digest of a trace: the longest handoffs and preemptions.

use std::{
    collections::{BTreeMap, HashMap},
    io::BufRead,
};

use serde::Serialize;

use super::{
    CATEGORY, key, name,
    proto::{TrackDescriptor, TrackEvent, TrackEventType},
    read::{Packets, TraceError},
};
use base::units::Nanos;

/// A summary of a trace file.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub struct Digest {
    /// The runs of the trace, in the order of their tracks.
    pub runs: Vec<RunDigest>,
    /// Byte offset at which the file is cut off. The incomplete run is omitted here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_off_at: Option<u64>,
}

/// The figures of one run. Times count from the start of the run.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub struct RunDigest {
    /// Title of the run.
    pub title: String,
    /// A remark about the run.
    pub note: Option<String>,
    /// Sums over the run, and counts of lost records.
    pub account: BTreeMap<String, u64>,
    /// Kicks that ended a halt.
    pub handoffs: u64,
    /// Kicks whose target did not run again before the end.
    pub unanswered: u64,
    /// The preemptions in the trace by kind: their number and total length.
    pub preemptions: BTreeMap<String, Sum>,
    /// The longest handoffs, longest first.
    pub worst_handoffs: Vec<HandoffTimes>,
    /// The longest preemptions of a lock's holder or of the next in line, longest first.
    pub worst_preemptions: Vec<LockPreemption>,
}

/// A number of intervals and their total length.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// Number of intervals.
    pub count: u64,
    /// Total length.
    pub total_ns: u64,
}

/// A handoff and the known parts of its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HandoffTimes {
    /// Time of the kick.
    pub at_ns: Nanos,
    /// The kicker's track.
    pub by: String,
    /// The target's track.
    pub to: String,
    /// From the release, or the kick if the release is unknown, to the end of the last known
    /// part below.
    pub total_ns: Nanos,
    /// From the release of the lock to its kick.
    pub release_to_kick_ns: Option<Nanos>,
    /// From the kick to the grant of a slot.
    pub kick_to_grant_ns: Option<Nanos>,
    /// From the grant to the guest's first instruction.
    pub grant_to_guest_ns: Option<Nanos>,
    /// Under the host's scheduler: from the kick to the return of the target's thread.
    pub kick_to_run_ns: Option<Nanos>,
}

/// A preemption of a holder or of the next in line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LockPreemption {
    /// Time at which it began.
    pub at_ns: Nanos,
    /// The preempted vCPU's track.
    pub vcpu: String,
    /// LHP or LWP.
    pub kind: String,
    /// Reason for the end of the time slice.
    pub why: String,
    /// The address of the lock.
    pub lock: Option<String>,
    /// The lock's symbol, if the kernel's symbols are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_name: Option<String>,
    /// Time for which the vCPU was off its slot.
    pub off_ns: Nanos,
    /// Time that others spun for the lock during the preemption.
    pub others_spun_ns: Nanos,
}

/// Reads a trace. Retains the `top` longest handoffs and preemptions of each run.
pub fn digest(input: impl BufRead, top: usize) -> Result<Digest, TraceError> {
    let mut reader = Reader { top, runs: Vec::new(), tracks: HashMap::new() };
    let mut packets = Packets::new(input);
    let mut cut_off_at = None;
    loop {
        let at = packets.at;
        let packet = match packets.next() {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            Err(TraceError::Short(at)) => {
                cut_off_at = Some(at);
                break;
            }
            Err(error) => return Err(error),
        };
        if let Some(track) = packet.track {
            reader.track(*track, at)?;
        }
        if at == 0 && reader.runs.is_empty() {
            return Err(TraceError::NotOurs);
        }
        if let Some(event) = packet.event {
            let moment = Nanos(packet.timestamp.unwrap_or(0));
            reader.event(&event, moment).ok_or(TraceError::Damaged(at))?;
        }
    }
    if reader.runs.last().is_some_and(|last| !last.is_complete) {
        reader.runs.pop();
        cut_off_at.get_or_insert(packets.at);
    }
    match (reader.runs.is_empty(), cut_off_at) {
        (true, None) => Err(TraceError::NotOurs),
        (true, Some(at)) => Err(TraceError::Short(at)),
        (false, _) if reader.runs.iter().any(|run| !run.is_complete) => {
            Err(TraceError::Damaged(packets.at))
        }
        (false, _) => {
            let runs = reader.runs.into_iter().map(|run| run.digest).collect();
            Ok(Digest { runs, cut_off_at })
        }
    }
}

struct Reader {
    top: usize,
    runs: Vec<RunReader>,
    tracks: HashMap<u64, DeclaredTrack>,
}

/// A run being read.
#[derive(Default)]
struct RunReader {
    digest: RunDigest,
    start: Nanos,
    /// Whether the end of the run was read.
    is_complete: bool,
}

struct DeclaredTrack {
    /// Index of its run.
    run: usize,
    name: String,
    /// Open slices, outermost first.
    open: Vec<Open>,
}

enum Open {
    Run,
    Preempted(Box<LockPreemption>, Nanos),
    Other,
}

impl Reader {
    fn track(&mut self, track: TrackDescriptor, at: u64) -> Result<(), TraceError> {
        let TrackDescriptor { uuid, parent_uuid, name, process, .. } = track;
        let (run, name) = match process {
            Some(process) => {
                let title = process.process_name.clone();
                let digest = RunDigest { title, ..RunDigest::default() };
                self.runs.push(RunReader { digest, ..RunReader::default() });
                (self.runs.len() - 1, process.process_name)
            }
            None => match self.tracks.get(&parent_uuid) {
                Some(parent) => (parent.run, name),
                None if self.runs.is_empty() => return Err(TraceError::NotOurs),
                None => return Err(TraceError::Damaged(at)),
            },
        };
        match self.tracks.insert(uuid, DeclaredTrack { run, name, open: Vec::new() }) {
            None => Ok(()),
            Some(_) => Err(TraceError::Damaged(at)),
        }
    }

    /// Returns `None` if the event is impossible.
    fn event(&mut self, event: &TrackEvent, at: Nanos) -> Option<()> {
        let track = self.tracks.get_mut(&event.track_uuid)?;
        let run = self.runs.get_mut(track.run)?;
        match TrackEventType::try_from(event.kind).ok()? {
            TrackEventType::SliceBegin => {
                let open = run.begins(event, at, &track.name);
                track.open.push(open);
            }
            TrackEventType::SliceEnd => match track.open.pop()? {
                Open::Run => run.is_complete = true,
                Open::Preempted(off, since) => run.was_off(*off, at.since(since), self.top),
                Open::Other => {}
            },
            TrackEventType::Instant if event.name == name::KICK => {
                run.kick(event, at, self.top, &track.name);
            }
            TrackEventType::Instant | TrackEventType::Counter | TrackEventType::Unspecified => {}
        }
        Some(())
    }
}

impl Digest {
    /// Sets the names of locks whose addresses are known to `name`.
    pub fn name_locks(&mut self, name: impl Fn(u64) -> Option<String>) {
        for off in self.runs.iter_mut().flat_map(|run| &mut run.worst_preemptions) {
            let digits = off.lock.as_deref().and_then(|lock| lock.strip_prefix("0x"));
            let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            off.lock_name = address.and_then(&name);
        }
    }
}

impl RunDigest {
    /// A figure of the account.
    pub fn figure(&self, name: &str) -> Option<u64> {
        self.account.get(name).copied()
    }
}

impl RunReader {
    fn begins(&mut self, event: &TrackEvent, at: Nanos, track: &str) -> Open {
        if event.categories.iter().any(|category| category == CATEGORY) {
            self.start = at;
            let figures = event.annotations.iter();
            self.digest.account = figures
                .filter_map(|annotation| Some((annotation.name.clone(), annotation.number?)))
                .collect();
            self.digest.note = words(event, key::NOTE);
            return Open::Run;
        }
        let Some(kind) = words(event, key::KIND) else { return Open::Other };
        let off = LockPreemption {
            at_ns: at.since(self.start),
            vcpu: track.to_owned(),
            why: words(event, key::WHY).unwrap_or_default(),
            lock: words(event, key::LOCK),
            lock_name: None,
            off_ns: Nanos::ZERO,
            others_spun_ns: figure(event, key::OTHERS_SPUN).unwrap_or_default(),
            kind,
        };
        Open::Preempted(Box::new(off), at)
    }

    fn was_off(&mut self, off: LockPreemption, length: Nanos, top: usize) {
        let sum = self.digest.preemptions.entry(off.kind.clone()).or_default();
        sum.count += 1;
        sum.total_ns = sum.total_ns.saturating_add(length.0);
        if [name::LHP, name::LWP].contains(&off.kind.as_str()) {
            let off = LockPreemption { off_ns: length, ..off };
            push_top(&mut self.digest.worst_preemptions, off, top, |off| off.off_ns);
        }
    }

    fn kick(&mut self, event: &TrackEvent, at: Nanos, top: usize, by: &str) {
        self.digest.handoffs += 1;
        let part = |name| figure(event, name);
        let (release, kick) = (part(key::RELEASE_TO_KICK), part(key::KICK_TO_GRANT));
        let (grant, run) = (part(key::GRANT_TO_GUEST), part(key::KICK_TO_RUN));
        if kick.or(run).is_none() {
            self.digest.unanswered += 1;
            return;
        }
        let parts = [release, kick, grant, run].into_iter().flatten();
        let total = parts.fold(Nanos::ZERO, Nanos::after);
        let handoff = HandoffTimes {
            at_ns: at.since(self.start),
            by: by.to_owned(),
            to: words(event, key::TO).unwrap_or_default(),
            total_ns: total,
            release_to_kick_ns: release,
            kick_to_grant_ns: kick,
            grant_to_guest_ns: grant,
            kick_to_run_ns: run,
        };
        push_top(&mut self.digest.worst_handoffs, handoff, top, |handoff| handoff.total_ns);
    }
}

fn figure(event: &TrackEvent, name: &str) -> Option<Nanos> {
    let figure = event.annotations.iter().find(|annotation| annotation.name == name)?;
    figure.number.map(Nanos)
}

fn words(event: &TrackEvent, name: &str) -> Option<String> {
    event.annotations.iter().find(|annotation| annotation.name == name)?.text.clone()
}

/// Inserts `item` into the list of the `top` longest, longest first. Equal items keep their order.
fn push_top<T>(list: &mut Vec<T>, item: T, top: usize, length: fn(&T) -> Nanos) {
    let place = list.partition_point(|other| length(other) >= length(&item));
    if place < top {
        list.truncate(top - 1);
        list.insert(place, item);
    }
}
