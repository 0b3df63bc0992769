//! Columns of the exported table: their names, and the computation of their values.

use super::row::CellRow;
use crate::{axis::Axis, findings::Timed, latencies::Percentiles, timings::Timings};
use base::units::Nanos;

/// Computes a value: text, an integer, or a floating-point number. None for an empty field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Get {
    Text(fn(&CellRow<'_>) -> Option<String>),
    Count(fn(&CellRow<'_>) -> Option<u64>),
    Number(fn(&CellRow<'_>) -> Option<f64>),
}

/// A column of an exported table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub name: &'static str,
    pub get: Get,
}

impl Column {
    /// Formats a field. Numbers have the fewest digits that parse back to the same value.
    fn field(&self, row: &CellRow<'_>) -> String {
        let text = match self.get {
            Get::Text(get) => get(row),
            Get::Count(get) => get(row).map(|value| value.to_string()),
            Get::Number(get) => get(row).map(|value| value.to_string()),
        };
        text.unwrap_or_default()
    }
}

/// Creates a column of texts.
pub(crate) const fn text(name: &'static str, get: fn(&CellRow<'_>) -> Option<String>) -> Column {
    Column { name, get: Get::Text(get) }
}

/// Creates a column of integers.
pub(crate) const fn count(name: &'static str, get: fn(&CellRow<'_>) -> Option<u64>) -> Column {
    Column { name, get: Get::Count(get) }
}

/// Creates a column of floating-point numbers.
pub(crate) const fn number(name: &'static str, get: fn(&CellRow<'_>) -> Option<f64>) -> Column {
    Column { name, get: Get::Number(get) }
}

/// Creates columns for the counts of one part of a row, named after their fields.
macro_rules! counts {
    ($prefix:literal, $part:ident: $($name:ident),*) => {
        &[$(count(concat!($prefix, stringify!($name)), |row| Some(row.$part()?.$name)),)*]
    };
}

/// Times with columns for their percentiles, and the prefix of these columns' names.
const TIMES: [(&str, Timed); 7] = [
    ("latency", Timed::Operation),
    ("lateness", Timed::Lateness),
    ("handover", Timed::Handover),
    ("release_to_kick", Timed::ReleaseToKick),
    ("kick_to_grant", Timed::KickToGrant),
    ("grant_to_guest", Timed::GrantToGuest),
    ("extension", Timed::Extension),
];

type PercentileOf = fn(&Percentiles) -> Nanos;

/// Percentiles of a time, and the suffix of their columns' names.
const PERCENTILES: [(&str, PercentileOf); 7] = [
    ("p50_ns", |times| times.p50),
    ("p99_ns", |times| times.p99),
    ("p999_ns", |times| times.p999),
    ("max_ns", |times| times.max),
    ("by_time_p50_ns", |times| times.by_time.p50),
    ("by_time_p99_ns", |times| times.by_time.p99),
    ("by_time_p999_ns", |times| times.by_time.p999),
];

/// Returns the names of all columns in order.
pub(super) fn names() -> impl Iterator<Item = String> {
    let of_time = |(time, _)| {
        PERCENTILES.into_iter().map(move |(percentile, _)| format!("{time}_{percentile}"))
    };
    columns().map(|column| column.name.to_owned()).chain(TIMES.into_iter().flat_map(of_time))
}

/// Returns the fields of all columns in order.
pub(super) fn fields(row: &CellRow<'_>) -> impl Iterator<Item = String> {
    let of_time = move |(_, timed): (_, Timed)| {
        let timings = row.figures().and_then(|figures| timed.timings(figures));
        let percentiles = timings.and_then(Timings::percentiles);
        let field = move |pick: fn(&Percentiles) -> Nanos| {
            percentiles.as_ref().map(pick).map_or_else(String::new, |nanos| nanos.0.to_string())
        };
        PERCENTILES.into_iter().map(move |(_, pick)| field(pick))
    };
    columns().map(move |column| column.field(row)).chain(TIMES.into_iter().flat_map(of_time))
}

/// Returns all columns except times, in order.
fn columns() -> impl Iterator<Item = &'static Column> {
    let of_point = Axis::ALL.into_iter().flat_map(Axis::columns).chain(SEED);
    CELL.iter().chain(of_point).chain(MEASURED.into_iter().flatten())
}

/// Groups of columns for measured values.
const MEASURED: [&[Column]; 17] = [
    LOAD, FIGURES, VMM, HOST, KVM, SCHEDULE, PUBLISHED, OBSERVED, OTHERS, WASTED, OFF, DIRECTED,
    HITS, EXTENSIONS, FAULTS, SIM, WORK,
];

const CELL: &[Column] = &[
    text("store", |row| Some(row.store.into())),
    text("run", |row| Some(row.run.name.clone())),
    count("cell", |row| Some(row.cell.cell.into())),
    count("round", |row| Some(row.cell.round.into())),
    text("status", |row| Some(row.status().into())),
    text("error", |row| row.error().map(Into::into)),
    count("at_ms", |row| Some(row.cell.at_ms)),
    number("took", |row| Some(row.cell.took)),
    text("node", |row| row.cell.node.clone()),
];

const SEED: &[Column] = &[count("seed", |row| Some(row.cell.point.seed))];

const LOAD: &[Column] = &[
    number("load_average", |row| row.cell.load.average),
    number("load_busy", |row| row.cell.load.busy),
    number("load_steal", |row| row.cell.load.steal),
    number("load_hop_before", |row| row.cell.load.hop_before),
    number("load_hop_after", |row| row.cell.load.hop_after),
];

const FIGURES: &[Column] = &[
    number("seconds", |row| Some(row.figures()?.seconds)),
    count("operations", |row| {
        Some(row.figures()?.operations.iter().fold(0, |sum, count| sum.saturating_add(*count)))
    }),
    number("rate", |row| Some(row.figures()?.rate())),
    text("disturbed", |row| Some(row.disturbance()?.name())),
    number("jain", |row| row.jain()),
    count("slow", |row| row.figures()?.slow),
    count("long_waits", |row| row.figures()?.long_waits),
    count("locks_taken", |row| row.figures()?.locks_taken),
    count("halts", |row| row.counted().map(|figures| figures.halts)),
    count("kicks", |row| row.counted().map(|figures| figures.kicks)),
    count("violations", |row| Some(row.figures()?.violations)),
    count("disorder", |row| Some(row.figures()?.disorder)),
    count("open_waits", |row| Some(row.figures()?.open_waits)),
    count("guest_steal_ns", |row| row.figures()?.guest_steal_ns),
    count("longest_ns", |row| row.figures()?.longest_ns),
    number("timeline_entries", |row| Some(row.figures()?.timeline?.entries)),
    count("timeline_lost", |row| Some(row.figures()?.timeline?.lost)),
];

const VMM: &[Column] = counts!(
    "vmm_", vmm: exits, lock_spinning, parked, unlock_kick, woke_parked, left_pending, coalesced,
    kick_msi, unknown_target, misuse
);

/// Sums over all vCPUs; the shares refer to the window.
const HOST: &[Column] = &[
    count("host_ran_ns", |row| Some(row.threads()?.ran.0)),
    count("host_waited_ns", |row| Some(row.threads()?.waited.0)),
    count("host_turns", |row| Some(row.threads()?.slices)),
    number("host_ran_share", |row| Some(row.ran()?.ran)),
    number("host_ran_least", |row| Some(row.ran()?.vcpus.least)),
    number("host_ran_most", |row| Some(row.ran()?.vcpus.most)),
    number("host_vm_ran_least", |row| Some(row.ran()?.vms.least)),
    number("host_vm_ran_most", |row| Some(row.ran()?.vms.most)),
    number("host_waited_share", |row| Some(row.ran()?.waited)),
];

const KVM: &[Column] = &[
    count("kvm_pause_exits", |row| row.yields()?.pause_exits),
    count("kvm_yields_attempted", |row| row.yields()?.yields_attempted),
    count("kvm_yields_successful", |row| row.yields()?.yields_successful),
];

const SCHEDULE: &[Column] = counts!("sched_", totals: grants, preemptions);

const PUBLISHED: &[Column] = counts!("sched_", published: lhp, lwp, queued);

const OBSERVED: &[Column] = counts!("sched_observed_", observed: lhp, lwp, queued);

const OTHERS: &[Column] =
    counts!("sched_", totals: entering, guarded, unknown, forced, injected, yields);

const WASTED: &[Column] = &[count("sched_wasted_spin_ns", |row| row.wasted_spin_ns())];

const OFF: &[Column] = counts!("sched_", totals: holders_off_ns, next_off_ns, ready_ns);

const DIRECTED: &[Column] = counts!(
    "directed_", directed: spins, kicks, calls, holder, next, queued, bystander, unknown, honoured, late, bounced, refused
);

const HITS: &[Column] = counts!("sched_", hits: hits, misses);

const EXTENSIONS: &[Column] = counts!("sched_extensions_", extensions: granted, in_time, overrun);

const FAULTS: &[Column] =
    counts!("fault_", faults: dropped, delayed, not_delayed, duplicated, spurious, halts_delayed);

const SIM: &[Column] =
    counts!("sim_", sim: pause_exits, polled, stolen_ns, looks, transfers, events);

const WORK: &[Column] = counts!("work_", work: rmw, beside, spins, retries, sums, deviation, looks);
