//! Traces that are written and read back, and bytes that are not traces.

use prost::Message;

use super::{
    digest::{Digest, digest},
    draw::write,
    proto::{TracePacket, TrackEventType},
    read::Packets,
    resume::length_of_wanted,
};
use base::{
    events::{KickOutcome, VcpuEvent},
    host_counts::YieldCause,
    units::{Nanos, SlotId, Ticket, VcpuId},
};
use sched::{
    LockActivity, LockId, Mode, Observation, VcpuIndex,
    accounting::{Preemption, Totals},
    directed_yields::{YieldOutcome, YieldRequest},
    log::{Handoff, Sighting, Slice, SliceEnd, VmProgress},
};
use study::timeline::{
    DroppedEntries, ProgressUnit, ScheduleTrace, TimeSpan, Timeline,
    stretches::{Stretch, StretchState, Stretches},
};

const LOCK: LockId = LockId(0x3000);

fn waiting(since: u64) -> LockActivity {
    let (distance, since) = (Some(1), Nanos(since));
    LockActivity::Waiting { lock: LOCK, ticket: 4, distance, since, halted: false }
}

fn slice(at: u64, ran: u64, vcpu: u32, end: SliceEnd) -> Slice {
    let (at, ran, vcpu, slot) = (Nanos(at), Nanos(ran), VcpuIndex(vcpu), SlotId(0));
    Slice { at, ran, vcpu, slot, end, point: None, free: false }
}

fn preemption(at: u64, vcpu: u32, activity: LockActivity, off: Option<u64>) -> Preemption {
    Preemption {
        at: Nanos(at),
        vcpu: VcpuIndex(vcpu),
        slot: SlotId(0),
        end: SliceEnd::Injected,
        observed: Observation { mode: Mode::User, activity },
        off: off.map(Nanos),
        spun: Nanos(7),
    }
}

/// One slot; times in ns. vCPU 0 holds the lock and is preempted from 1,100 to 1,300; vCPU 1 arrives,
/// spins from 1,150 and halts at 1,200; vCPU 0 runs again, kicks it at 1,400, and both continue.
fn timeline() -> Timeline {
    let activity = LockActivity::Holding { lock: Some(LOCK), depth: 1 };
    let sighting = |at, vcpu, activity| Sighting { at: Nanos(at), vcpu: VcpuIndex(vcpu), activity };
    let traced = ScheduleTrace {
        cpus: vec![3],
        slices: vec![
            slice(1_000, 100, 0, SliceEnd::Injected),
            slice(1_100, 100, 1, SliceEnd::Halted),
            slice(1_300, 200, 0, SliceEnd::Expired),
            slice(1_500, 0, 1, SliceEnd::Open),
        ],
        preemptions: vec![
            preemption(1_100, 0, activity, Some(200)),
            preemption(1_500, 0, waiting(1_050), None),
        ],
        activity_samples: vec![sighting(1_100, 0, activity), sighting(1_200, 1, waiting(1_150))],
        handoffs: vec![Handoff {
            at: Nanos(1_400),
            by: Some(VcpuIndex(0)),
            to: VcpuIndex(1),
            released: Some(Nanos(1_390)),
            granted: Some(Nanos(1_500)),
            resumed: Some(Nanos(1_505)),
        }],
        yields: vec![(
            YieldRequest {
                at: Nanos(1_250),
                by: VcpuIndex(1),
                to: VcpuIndex(0),
                cause: YieldCause::Spin,
                activity,
                place: (3, 7),
            },
            YieldOutcome::Late,
        )],
        totals: Totals {
            lhp: 1,
            lwp: 1,
            injected: 2,
            grants: 4,
            preemptions: 2,
            ..Totals::default()
        },
    };
    Timeline {
        vcpus: vec![(0, VcpuId(0)), (0, VcpuId(1))],
        span: TimeSpan { from: Nanos(900), to: Nanos(2_000) },
        measured: Some(TimeSpan { from: Nanos(1_000), to: Nanos(1_900) }),
        schedule: Some(traced),
        events: vec![
            vec![(Nanos(1_395), VcpuEvent::Kicks(VcpuId(1), KickOutcome::LeftPending))],
            vec![(Nanos(1_200), VcpuEvent::Parks(Ticket(4))), (Nanos(1_505), VcpuEvent::Resumes)],
        ],
        delayed_kicks: Vec::new(),
        progress: [(1_000, 0), (1_900, 9)]
            .map(|(at, done)| VmProgress { at: Nanos(at), vm: 0, done })
            .into(),
        progress_unit: ProgressUnit::Operations,
        lost: DroppedEntries { events: 5, ..DroppedEntries::default() },
    }
}

fn unscheduled() -> Timeline {
    let events = vec![
        vec![(Nanos(1_300), VcpuEvent::Kicks(VcpuId(1), KickOutcome::Woke))],
        vec![(Nanos(1_200), VcpuEvent::Parks(Ticket(4))), (Nanos(1_350), VcpuEvent::Resumes)],
    ];
    Timeline { schedule: None, events, ..timeline() }
}

fn first() -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, 0, "first", &timeline()).unwrap();
    bytes
}

fn bytes() -> Vec<u8> {
    let mut bytes = first();
    write(&mut bytes, 1, "second", &unscheduled()).unwrap();
    bytes
}

fn packets(bytes: &[u8]) -> Vec<TracePacket> {
    let mut packets = Packets::new(bytes);
    std::iter::from_fn(|| packets.next().unwrap()).collect()
}

#[test]
fn a_yield_is_an_instant_with_its_outcome() {
    let packets = packets(&first());
    let mut events = packets.iter().filter_map(|packet| packet.event.as_ref());
    let event = events.find(|event| event.name == "yield: late").unwrap();
    let notes: Vec<_> = event.annotations.iter().filter_map(|note| note.text.as_deref()).collect();
    assert_eq!(notes, ["vCPU 0", "spin", "LHP"]);
}

#[test]
fn stretches_follow_from_slices() {
    let timeline = timeline();
    let stretches = Stretches::new(&timeline).unwrap();
    let described = |vcpu| -> String {
        let describe = |Stretch { span, state }: Stretch<'_>| {
            let text = match state {
                StretchState::Running { spinning, kick, .. } => {
                    let spinning: Vec<_> =
                        spinning.iter().map(|span| (span.from.0, span.to.0)).collect();
                    format!("runs {spinning:?} {kick:?}")
                }
                StretchState::Preempted(_, Some(preemption)) => {
                    format!("off {:?}", preemption.off.map(|off| off.0))
                }
                StretchState::Woken(_) => "woken".into(),
                other => format!("{other:?}"),
            };
            format!("{}-{} {text}", span.from.0, span.to.0)
        };
        let uuids = stretches.of_vcpu(VcpuIndex(vcpu)).into_iter().map(describe);
        uuids.collect::<Vec<_>>().join(", ")
    };
    let first = "1000-1100 runs [] None, 1100-1300 off Some(200), 1300-1500 runs [] None, 1500-2000 off None";
    let second = "1100-1200 runs [(1150, 1200)] None, 1200-1400 Halted, 1400-1500 woken, 1500-2000 runs [] Some(0)";
    assert_eq!([described(0), described(1)], [first, second]);
    // A vCPU counts as a waiter while it halts, until it has a slot again.
    assert_eq!(stretches.waiters(&timeline, 0), [(Nanos(1_150), 1), (Nanos(1_500), 0)]);
}

#[test]
fn digest_reads_written_trace() {
    let Digest { runs, .. } = digest(bytes().as_slice(), 10).unwrap();
    let [first, second] = runs.as_slice() else { panic!("{runs:?}") };
    assert_eq!((first.title.as_str(), second.title.as_str()), ("first", "second"));
    assert_eq!((first.figure("lhp"), first.figure("lost_events")), (Some(1), Some(5)));
    assert_eq!((first.handoffs, first.unanswered), (1, 0));
    let worst = &first.worst_handoffs[0];
    assert_eq!((worst.by.as_str(), worst.to.as_str(), worst.at_ns.0), ("vCPU 0", "vCPU 1", 500));
    assert_eq!(worst.total_ns.0, 10 + 100 + 5);
    let off: Vec<_> = first
        .worst_preemptions
        .iter()
        .map(|preemption| (preemption.kind.as_str(), preemption.off_ns.0))
        .collect();
    assert_eq!(off, [("LWP", 500), ("LHP", 200)], "the longest first");
    assert_eq!(first.worst_preemptions[1].lock.as_deref(), Some("0x3000"));
    assert!(first.note.is_none() && second.note.as_deref().unwrap().contains("no slots"));
    assert_eq!(second.worst_handoffs[0].kick_to_run_ns, Some(Nanos(50)));

    let one = digest(bytes().as_slice(), 1).unwrap();
    assert_eq!(one.runs[0].worst_preemptions.len(), 1);
    assert!(digest(bytes().as_slice(), 0).unwrap().runs[0].worst_handoffs.is_empty());
}

#[test]
fn counter_tracks_are_named_by_unit() {
    let tracks = |timeline: Timeline| -> Vec<String> {
        let mut bytes = Vec::new();
        write(&mut bytes, 0, "run", &timeline).unwrap();
        packets(&bytes).into_iter().filter_map(|packet| Some(packet.track?.name)).collect()
    };
    let has = |timeline, name: &str| tracks(timeline).iter().any(|track| track == name);
    assert!(has(timeline(), "operations"));
    assert!(has(timeline().with_lock_progress(), "locks taken"));
    let mut uncounted = timeline().with_lock_progress();
    uncounted.progress.iter_mut().for_each(|sample| sample.done = 0);
    assert!(!has(uncounted, "locks taken"), "a kernel that keeps no count");
}

#[test]
fn runs_in_a_file_share_nothing() {
    let packets = packets(&bytes());
    let in_sequence =
        |sequence: u32| packets.iter().filter(move |packet| packet.sequence == sequence);
    let tracks =
        |sequence| in_sequence(sequence).filter_map(|packet| Some(packet.track.as_ref()?.uuid));
    let mut uuids: Vec<u64> = tracks(1).chain(tracks(2)).collect();
    let count = uuids.len();
    uuids.sort_unstable();
    uuids.dedup();
    assert_eq!(uuids.len(), count, "each track once");
    for sequence in [1, 2] {
        let ids: Vec<u64> = tracks(sequence).collect();
        let events = || in_sequence(sequence).filter_map(|packet| packet.event.as_deref());
        assert!(events().count() > 5 && events().all(|event| ids.contains(&event.track_uuid)));
        let mut begun = Vec::new();
        for event in events() {
            begun.extend(&event.flow_ids);
            // Perfetto drops an arrow that ends before it begins.
            assert!(event.terminating_flow_ids.iter().all(|flow| begun.contains(flow)));
        }
        assert_eq!(begun.len(), 1);
        let depth = events().fold(0, |depth, event| match event.kind() {
            TrackEventType::SliceBegin => depth + 1,
            TrackEventType::SliceEnd => depth - 1,
            _ => depth,
        });
        assert_eq!(depth, 0, "every slice ends");
    }
}

#[test]
fn an_invalid_trace_is_reported() {
    let error = |bytes: &[u8]| digest(bytes, 10).unwrap_err().to_string();
    let trace = first();
    for foreign in [&b""[..], b"PVTSCHED", b"{\"traceEvents\":[]}", &[0x0a, 2, 0x40, 1]] {
        assert!(error(foreign).starts_with("not a pvticket trace"), "{foreign:?}");
    }
    assert!(error(&trace[..trace.len() - 1]).starts_with("truncated at byte"));
    let last = packets(&trace).pop().unwrap().encoded_len() + 2;
    let between_packets = error(&trace[..trace.len() - last]);
    assert!(between_packets.starts_with("truncated"), "{between_packets}");
    let mut twice = trace.clone();
    twice.extend_from_slice(&trace);
    assert!(error(&twice).starts_with("corrupted at byte"), "tracks that are there already");
    let mut long = trace;
    long.extend([0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert!(error(&long).starts_with("corrupted at byte"), "a packet of 4 GiB");
}

#[test]
fn traces_resume_after_the_last_complete_run() {
    let (both, first) = (bytes(), first().len());
    let length = |bytes: &[u8], wanted: &[u32]| {
        length_of_wanted(bytes, |run| wanted.contains(&run)).unwrap() as usize
    };
    assert_eq!(length(&both, &[0, 1]), both.len());
    assert_eq!(length(&both, &[0]), first, "its figures did not reach the store");
    assert_eq!(length(&both, &[1]), 0);
    assert_eq!(length(b"", &[0]), 0);
    for cut in 0..both.len() {
        let expected = if cut < first { 0 } else { first };
        assert_eq!(length(&both[..cut], &[0, 1]), expected, "cut at {cut}");
        match digest(&both[..cut], 3) {
            Ok(read) if cut == first => assert_eq!((read.runs.len(), read.cut_off_at), (1, None)),
            Ok(read) => {
                assert!(cut > first && read.cut_off_at.is_some(), "cut at {cut}");
                assert_eq!(read.runs.len(), 1, "cut at {cut}");
            }
            Err(_) => assert!(cut < first, "cut at {cut}"),
        }
    }
    for foreign in [&b"PVTSCHED"[..], b"{\"traceEvents\":[]}", &[0x0a, 2, 0x40, 1]] {
        let error = length_of_wanted(foreign, |_| true).unwrap_err().to_string();
        assert!(error.starts_with("not a pvticket trace"), "{error}");
    }
}
