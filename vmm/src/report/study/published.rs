//! What the documents say that the lock library's systems come from, and their figures' sources.

use locks::{Seed, System};

use super::{
    super::si::{ratio, si},
    tables::{Table, within},
    words,
};
use crate::lab::study::{Axis, Comparison, PointStudy, Study};

/// A table of a document.
struct Published {
    what: &'static str,
    source: &'static str,
    head: &'static [&'static str],
    rows: &'static [&'static [&'static str]],
    /// Is it comparable with ours, and why not?
    remark: &'static str,
}

/// A published ratio at an overcommit ratio.
struct AtRatio {
    of: System,
    overcommit: f64,
    text: &'static str,
}

/// "Paravirtualized ticketlocks in Linux" (KVM, 2013): dbench on 32 CPUs.
const DBENCH: [AtRatio; 4] = [
    AtRatio { of: System::PvTicket, overcommit: 1.0, text: "1.008x dbench" },
    AtRatio { of: System::PvTicket, overcommit: 2.0, text: "1.166x dbench" },
    AtRatio { of: System::PvTicket, overcommit: 3.0, text: "1.140x dbench" },
    AtRatio { of: System::PvTicket, overcommit: 4.0, text: "1.050x dbench" },
];

const fn published(seed: Seed) -> &'static [Published] {
    match seed {
        Seed::PvTicketlocks => &[
            Published {
                what: "pgbench SELECT, transactions/s, mean of 10 runs, scale 1; in brackets: over the base",
                source: "Fitzhardinge and Raghavendra K T, \"Paravirtualized ticketlocks\", 2012",
                head: &["clients", "base", "patched, PV off", "patched, PV on"],
                rows: &[
                    &["1", "3914.5", "3784.4 (-3.3 %)", "3982.7 (+1.7 %)"],
                    &["2", "7808.2", "7500.2 (-3.9 %)", "7970.5 (+2.1 %)"],
                    &["4", "22224.3", "24084.7 (+8.4 %)", "23698.8 (+6.6 %)"],
                    &["8", "45593.1", "45838.8 (+0.5 %)", "46135.7 (+1.2 %)"],
                    &["16", "108987.8", "110019.7 (+0.9 %)", "108968.6 (-0.0 %)"],
                    &["32", "112830.1", "112973.6 (+0.1 %)", "112611.5 (-0.2 %)"],
                    &["64", "103034.2", "103658.2 (+0.6 %)", "103496.8 (+0.4 %)"],
                ],
                remark: "Not overcommitted, and on 8 cores of a Xeon X5570: it shows what PV costs \
                         where it is not needed. Comparable with the 1x rows here in sign only: a \
                         database seldom waits for a spinlock, and this workload does nothing else. \
                         pvticket boot -- pgbench-table measures the same.",
            },
            Published {
                what: "dbench with PV ticketlocks in KVM, over without, 32 CPUs",
                source: "quoted of the series for KVM of 2013, not looked up again",
                head: &["overcommit", "1x", "2x", "3x", "4x"],
                rows: &[&["change", "+0.8 %", "+16.6 %", "+14.0 %", "+5.0 %"]],
                remark: "Its sign and order compare. Its size does not: dbench mostly does other \
                         things than taking one lock, and KVM then had pause-loop exits, which end \
                         a long spin without PV too.",
            },
            Published {
                what: "kernel build beside a busy loop: share of the time spent spinning",
                source: "Friebel, \"Prevent Guests from Spinning Around\", Xen Summit 2008",
                head: &["", "alone", "beside it"],
                rows: &[&["spinning", "0.2 %", "7.6 %"]],
                remark: "Compares with the wasted time here in direction; a build takes many locks \
                         for short, this workload one lock always.",
            },
        ],
        Seed::PreemptableTicketlocks => &[Published {
            what: "speed-up over ticketlocks on average",
            source: "Ouyang and Lange, \"Preemptable Ticket Spinlocks\", VEE 2013",
            head: &["", "speed-up"],
            rows: &[&["preemptable", "5.32x"], &["with PV support", "7.91x"]],
            remark: "An average over their benchmarks, on machines of their time. Order and direction \
                     compare.",
        }],
        Seed::MutexAtomics => &[
            Published {
                what: "AIM7 high_systime, 1100 to 2000 users: mean transaction rate",
                source: "Long, \"mutex: Make more scalable by doing less atomic operations\", 2013",
                head: &["", "without", "with", "change"],
                rows: &[
                    &["8 nodes, HT on", "36980", "148590", "+301.8 %"],
                    &["8 nodes, HT off", "42799", "145011", "+238.8 %"],
                    &["4 nodes, HT on", "61318", "118445", "+51.1 %"],
                    &["4 nodes, HT off", "158481", "158592", "+0.1 %"],
                    &["2 nodes, HT on", "180602", "173967", "-3.7 %"],
                    &["2 nodes, HT off", "198409", "198073", "-0.2 %"],
                    &["1 node, HT on", "149042", "147671", "-0.9 %"],
                    &["1 node, HT off", "126036", "126533", "+0.4 %"],
                ],
                remark: "8 nodes of 10 cores: the gain is made of cache lines between nodes, and \
                         there is none on one node. What compares anywhere is the count of \
                         read-modify-writes for each wait.",
            },
            Published {
                what: "time in the mutex slowpath, 1500 users, HT off",
                source: "the same",
                head: &["", "without", "with"],
                rows: &[
                    &["8 nodes", "65.34 %", "0.69 %"],
                    &["4 nodes", "8.70 %", "1.02 %"],
                    &["2 nodes", "0.41 %", "0.32 %"],
                ],
                remark: "As above.",
            },
        ],
        Seed::MutexSpinner => &[Published {
            what: "AIM7, change over fewer atomic operations alone, by number of users",
            source: "Long, \"mutex: restrict mutex spinning to only one task per mutex\", 2013",
            head: &["workload", "10-100", "200-1000", "1100-2000"],
            rows: &[
                &["alltests", "-0.2 %", "-3.8 %", "-4.2 %"],
                &["five_sec", "-0.6 %", "-2.0 %", "-2.4 %"],
                &["fserver", "+2.2 %", "+16.2 %", "+2.2 %"],
                &["high_systime", "-0.3 %", "-4.3 %", "-3.0 %"],
                &["new_fserver", "+3.9 %", "+16.0 %", "+9.5 %"],
                &["shared", "-1.7 %", "-5.0 %", "-4.0 %"],
                &["short", "-7.7 %", "+0.2 %", "+1.3 %"],
            ],
            remark: "Its gain is what other tasks do with CPUs that no longer spin. A workload of \
                     nothing but the mutex has no such tasks: only its losses compare.",
        }],
        Seed::PercpuCounter => &[Published {
            what: "16 processes that map and unmap 128 MiB",
            source: "Dumazet, \"percpu_counter: scalability works\", V3, 2011",
            head: &["", "lock", "sequence"],
            rows: &[
                &["real", "2m14.509s", "0m34.055s"],
                &["user", "0m13.780s", "0m17.910s"],
                &["sys", "35m24.170s", "8m1.680s"],
            ],
            remark: "16 logical CPUs of two sockets, and a whole system call around each add. The \
                     direction compares where adds are as large as the batch, so that each folds.",
        }],
        Seed::Lockrefs => &[Published {
            what: "open, read and close of one file, a thread a CPU",
            source: "Glauber, \"Disable lockref on arm64\", 2019",
            head: &["", "28 threads of a ThunderX2"],
            rows: &[&["retries a success", "about 25"], &["without the loop", "about 2x as fast"]],
            remark: "An Arm machine of two sockets, whose pause is a no-op. Two CPUs of an x86 \
                     never contend so: retries a success are what to compare.",
        }],
        Seed::LaterKernels => &[Published {
            what: "kernel build on 32 CPUs, minutes, by vCPUs",
            source: "quoted of the discussion of queued spinlocks for Linux, not looked up again",
            head: &["", "32", "48", "60"],
            rows: &[
                &["PV ticket", "5:02", "13:28", "15:50"],
                &["PV queued", "3:40", "11:18", "12:20"],
                &["unfair queued", "3:03", "3:30", "4:15"],
            ],
            remark: "The order compares, and that giving up first in, first out buys more than a \
                     perfect kick. A build spends a small part of its time in locks.",
        }],
    }
}

/// A document's section: ours, and what was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The document.
    pub title: &'static str,
    /// Its systems, as measured here.
    pub ours: Table,
    /// Its own.
    pub theirs: Vec<Theirs>,
}

/// A published table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Theirs {
    /// Its figures.
    pub table: Table,
    /// Where they are from.
    pub source: &'static str,
    /// How they compare.
    pub remark: &'static str,
}

const SEEDS: [Seed; 7] = [
    Seed::PvTicketlocks,
    Seed::MutexAtomics,
    Seed::MutexSpinner,
    Seed::PercpuCounter,
    Seed::Lockrefs,
    Seed::PreemptableTicketlocks,
    Seed::LaterKernels,
];

/// The documents whose systems are in a study.
pub fn sections(study: &Study) -> Vec<Section> {
    let section = |seed| {
        let ours = ours(study, seed)?;
        Some(Section {
            title: seed.name(),
            ours,
            theirs: published(seed).iter().map(theirs).collect(),
        })
    };
    SEEDS.into_iter().filter_map(section).collect()
}

fn theirs(its: &Published) -> Theirs {
    let mut table = Table::new("published", its.what, "", its.head);
    for row in its.rows {
        table.cells(row.iter().map(|&cell| cell.to_owned()));
    }
    Theirs { table, source: its.source, remark: its.remark }
}

fn ours(study: &Study, seed: Seed) -> Option<Table> {
    let at_ratios = seed == Seed::PvTicketlocks;
    let mut head = vec!["measured here", "median", "ratio", "95 % interval", "Holm's p"];
    if at_ratios {
        head.push("published");
    }
    let title = format!("{}/s", words::operations(study));
    let table = Table::new("ours", &title, "", &head);
    table.by_facet(study, |point| {
        let rate = point.rate.filter(|_| point.point.lock.seed() == seed)?;
        let found = baseline(study, point);
        let over = found.and_then(|its| its.ratio);
        let dash = || "-".to_owned();
        let mut cells = vec![
            si(rate.median.value),
            over.map_or_else(dash, |its| ratio(its.value)),
            over.map_or_else(dash, |its| within(&its, ratio)),
            found.map_or_else(dash, |its| words::bare_p(its.verdict.adjusted)),
        ];
        if at_ratios {
            cells.push(at_ratio(point).map_or_else(dash, str::to_owned));
        }
        Some(cells)
    })
}

fn baseline<'a>(study: &'a Study, point: &PointStudy) -> Option<&'a Comparison> {
    let is_ours = |its: &&Comparison| its.axis == Axis::Lock && study.points[its.of] == *point;
    study.comparisons.iter().find(is_ours)
}

fn at_ratio(point: &PointStudy) -> Option<&'static str> {
    let overcommit = point.point.overcommit();
    let found =
        DBENCH.iter().find(|its| its.of == point.point.lock && its.overcommit == overcommit);
    found.map(|its| its.text)
}
