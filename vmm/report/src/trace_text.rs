//! A trace's digest as text.

use std::fmt::Write;

use super::{
    perfetto::{Digest, HandoffTimes, LockPreemption, RunDigest},
    si::si,
};
use base::{plural::count, sanitize, units::Nanos};

/// For each run: sums, lost data, and the longest handoffs and preemptions.
pub fn render(digest: &Digest) -> String {
    let mut text = String::new();
    for (ix, run) in digest.runs.iter().enumerate() {
        if ix > 0 {
            text.push('\n');
        }
        render_run(&mut text, run);
    }
    if let Some(at) = digest.cut_off_at {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "\nThe file is truncated at byte {at}: the incomplete run is left out. (pvticket run \
             --resume with the same --trace continues after the last complete run.)"
        );
    }
    text
}

// Writing to a String cannot fail.
fn render_run(text: &mut String, run: &RunDigest) {
    let figure = |name: &str| run.figure(name).unwrap_or(0);
    let _ = writeln!(text, "{}", sanitize::line(&run.title));
    let on = run
        .figure("slots")
        .map_or_else(String::new, |slots| format!(" on {}", count(slots, "slot")));
    let _ = writeln!(
        text,
        "  {} of {}{on}; {} ended a halt{}",
        span(Nanos(figure("length_ns"))),
        count(figure("vcpus"), "vCPU"),
        count(run.handoffs, "kick"),
        match run.unanswered {
            0 => String::new(),
            some => format!(", {some} of them without a subsequent run"),
        },
    );
    if let Some(note) = &run.note {
        let _ = writeln!(text, "  Note: {}", sanitize::line(note));
    }
    if run.figure("slots").is_some() {
        let _ = writeln!(
            text,
            "  {}, {}: {} of lock holders (off for {} in total), {} of the next in \
             line ({}); {} injected; others spun for {}",
            count(figure("grants"), "slice"),
            count(figure("preemptions"), "preemption"),
            figure("lhp"),
            span(Nanos(figure("holders_off_ns"))),
            figure("lwp"),
            span(Nanos(figure("next_off_ns"))),
            figure("injected"),
            span(Nanos(figure("wasted_spin_ns"))),
        );
    }
    if figure("lost") > 0 {
        let kinds = ["turns", "preemptions", "sightings", "handoffs", "events"];
        let lost = kinds.map(|kind| (kind, figure(&format!("lost_{kind}"))));
        let lost = lost.iter().filter(|(_, count)| *count > 0);
        let name =
            |(kind, count): &(&str, u64)| format!("{count} {}", kind.replace("turns", "slices"));
        let lost: Vec<String> = lost.map(name).collect();
        let _ = writeln!(text, "  NOT IN THE TRACE, for lack of room: {}", lost.join(", "));
    }
    section(text, "Worst handoffs", &run.worst_handoffs, handoff);
    section(text, "Worst preemptions of a holder or the next in line", &run.worst_preemptions, hit);
}

fn section<T>(text: &mut String, title: &str, items: &[T], line: fn(&T) -> String) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(text, "  {title}:");
    for item in items {
        let _ = writeln!(text, "    {}", line(item));
    }
}

fn handoff(handoff: &HandoffTimes) -> String {
    let parts = [
        ("release to kick", handoff.release_to_kick_ns),
        ("kick to grant", handoff.kick_to_grant_ns),
        ("grant to guest", handoff.grant_to_guest_ns),
        ("kick to run", handoff.kick_to_run_ns),
    ];
    let parts = parts.iter().filter_map(|(name, part)| Some(format!("{name} {}", span((*part)?))));
    format!(
        "{:>8}  {} kicked {} at {}: {}",
        span(handoff.total_ns),
        sanitize::line(&handoff.by),
        sanitize::line(&handoff.to),
        moment(handoff.at_ns),
        parts.collect::<Vec<_>>().join(", ")
    )
}

fn hit(off: &LockPreemption) -> String {
    let state = match off.kind.as_str() {
        "LHP" => "holding",
        _ => "next in line for",
    };
    let lock = match (&off.lock_name, &off.lock) {
        (Some(name), _) => sanitize::line(name).into_owned(),
        (None, Some(address)) => format!("lock {}", sanitize::line(address)),
        (None, None) => "a lock".to_owned(),
    };
    format!(
        "{:>8}  {} off at {}, {state} {lock} ({}, {}); others spun for {}",
        span(off.off_ns),
        sanitize::line(&off.vcpu),
        moment(off.at_ns),
        sanitize::line(&off.kind),
        sanitize::line(&off.why),
        span(off.others_spun_ns),
    )
}

fn moment(at: Nanos) -> String {
    format!("{:.6} s", at.seconds())
}

/// A duration in three digits.
fn span(span: Nanos) -> String {
    match span.0 {
        ns if ns < 1_000 => format!("{ns} ns"),
        ns if ns < 1_000_000 => format!("{} us", si(ns as f64 / 1e3)),
        ns if ns < 1_000_000_000 => format!("{} ms", si(ns as f64 / 1e6)),
        ns => format!("{} s", si(ns as f64 / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perfetto::Sum;

    fn run() -> RunDigest {
        let account = [
            ("length_ns", 1_250_000_000),
            ("vcpus", 4),
            ("slots", 2),
            ("grants", 90),
            ("preemptions", 12),
            ("lhp", 3),
            ("lwp", 1),
            ("injected", 3),
            ("holders_off_ns", 60_000_000),
            ("next_off_ns", 1_500),
            ("wasted_spin_ns", 55_100_000),
            ("lost", 7),
            ("lost_turns", 7),
        ];
        RunDigest {
            title: "4 vCPUs, vmm".into(),
            account: account.map(|(name, value)| (name.to_owned(), value)).into(),
            handoffs: 41,
            preemptions: [("LHP".to_owned(), Sum { count: 3, total_ns: 60_000_000 })].into(),
            worst_handoffs: vec![HandoffTimes {
                at_ns: Nanos(512_345_678),
                by: "vCPU 3".into(),
                to: "vCPU 1".into(),
                total_ns: Nanos(1_234_567),
                release_to_kick_ns: Some(Nanos(4_100)),
                kick_to_grant_ns: Some(Nanos(1_230_467)),
                grant_to_guest_ns: None,
                kick_to_run_ns: None,
            }],
            worst_preemptions: vec![LockPreemption {
                at_ns: Nanos(20_000_000),
                vcpu: "vCPU \u{1b}[31m0".into(),
                kind: "LHP".into(),
                why: "injected".into(),
                lock: Some("0x3000".into()),
                lock_name: None,
                off_ns: Nanos(20_012_000),
                others_spun_ns: Nanos(19_800_000),
            }],
            ..RunDigest::default()
        }
    }

    #[test]
    fn known_locks_are_named() {
        let rendered = |name: fn(u64) -> Option<String>| {
            let mut digest = Digest { runs: vec![run()], cut_off_at: None };
            digest.name_locks(name);
            render(&digest)
        };
        let named = rendered(|address| (address == 0x3000).then(|| "tasklist_lock".to_owned()));
        assert!(named.contains("s, holding tasklist_lock (LHP, injected)"), "{named}");
        assert!(rendered(|_| None).contains("s, holding lock 0x3000 (LHP, injected)"));
    }

    #[test]
    fn a_run_is_rendered() {
        let text = render(&Digest { runs: vec![run()], cut_off_at: None });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "4 vCPUs, vmm",
                "  1.25 s of 4 vCPUs on 2 slots; 41 kicks ended a halt",
                "  90 slices, 12 preemptions: 3 of lock holders (off for 60.0 ms in total), 1 of the \
                 next in line (1.50 us); 3 injected; others spun for 55.1 ms",
                "  NOT IN THE TRACE, for lack of room: 7 slices",
                "  Worst handoffs:",
                "     1.23 ms  vCPU 3 kicked vCPU 1 at 0.512346 s: release to kick 4.10 us, kick to \
                 grant 1.23 ms",
                "  Worst preemptions of a holder or the next in line:",
                "     20.0 ms  vCPU ?[31m0 off at 0.020000 s, holding lock 0x3000 (LHP, injected); \
                 others spun for 19.8 ms",
            ]
        );
    }
}
