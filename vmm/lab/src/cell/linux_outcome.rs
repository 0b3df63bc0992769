//! Parses what a Linux guest's benchmark prints, and what its kernel reports about its locks.

use locks::System;
use serde::Deserialize;

use crate::cell::CellError;
use base::backend::PvBackend;
use study::{guest::kernels, store::record::Figures};

/// The benchmark's output.
#[derive(Debug, Deserialize)]
pub(super) struct BenchmarkOutcome {
    seconds: f64,
    violations: Option<u64>,
    operations: Vec<u64>,
    spinlocks: Option<String>,
    /// Steal time of all vCPUs in the window.
    steal_seconds: Option<f64>,
    stats: Option<GuestKernelStats>,
}

/// The kernel's own counts over the run: those of our kernel, then those of queued spinlocks.
#[derive(Debug, Default, Deserialize)]
struct GuestKernelStats {
    backend: Option<String>,
    taken_slow: Option<u64>,
    #[serde(default)]
    kicked: u64,
    #[serde(default)]
    halted_irq_off: u64,
    #[serde(default)]
    halted_irq_on: u64,
    pv_wait_head: Option<u64>,
    #[serde(default)]
    pv_wait_node: u64,
    #[serde(default)]
    pv_kick_unlock: u64,
}

impl GuestKernelStats {
    fn counts(&self) -> impl Iterator<Item = u64> {
        let Self { taken_slow, kicked, halted_irq_off, halted_irq_on, pv_wait_head, .. } = *self;
        let known = [kicked, halted_irq_off, halted_irq_on, self.pv_wait_node, self.pv_kick_unlock];
        known.into_iter().chain(taken_slow).chain(pv_wait_head)
    }
}

impl BenchmarkOutcome {
    pub(super) fn parse(text: &str) -> Result<Self, CellError> {
        serde_json::from_str(text).map_err(|error| CellError::Result { said: text.into(), error })
    }

    /// Names an implausible figure, if there is one. A guest kernel is untrusted, and wrong counts
    /// would end up in sums and rates.
    fn impossible(&self) -> Option<String> {
        /// Largest plausible count: at one per cycle it takes days.
        const MOST: u64 = 1 << 48;
        /// Largest plausible rate: a hundred per cycle.
        const FASTEST: f64 = 1e12;
        const DAY: f64 = 86_400.0;
        let Self { seconds, operations, violations, steal_seconds, stats, .. } = self;
        if !(*seconds > 0.0 && *seconds <= DAY) {
            return Some(format!("that it measured for {seconds} s"));
        }
        let stolen = steal_seconds.unwrap_or(0.0);
        if !(0.0..=DAY * operations.len() as f64).contains(&stolen) {
            return Some(format!("that {stolen} s were stolen"));
        }
        let of_kernel = stats.iter().flat_map(GuestKernelStats::counts);
        let counts = operations.iter().copied().chain(*violations).chain(of_kernel);
        if let Some(count) = counts.max().filter(|count| *count > MOST) {
            return Some(format!("a count of {count}"));
        }
        let rate = operations.iter().map(|count| *count as f64).sum::<f64>() / seconds;
        (rate > FASTEST).then(|| format!("{rate:.1e} operations a second"))
    }

    /// The figures; an error if the guest used other locks than requested.
    pub(super) fn figures(self, system: System, asked: PvBackend) -> Result<Figures, CellError> {
        if let Some(what) = self.impossible() {
            return Err(CellError::Impossible(what));
        }
        let Self { seconds, violations, operations, spinlocks, steal_seconds, stats } = self;
        if spinlocks.as_deref().and_then(kernels::chosen) != Some(system) {
            return Err(CellError::Spinlocks { said: spinlocks, asked: system });
        }
        let stats = stats.unwrap_or_default();
        // Only our kernel reports a backend.
        if let Some(found) = stats.backend.filter(|found| found != asked.name()) {
            return Err(CellError::Backend { found, asked });
        }
        if system == System::PvQueued && stats.pv_wait_head.is_none() {
            return Err(CellError::Uncounted);
        }
        let heads = stats.pv_wait_head.unwrap_or(0);
        Ok(Figures {
            seconds,
            operations,
            // Native locks have no threshold.
            long_waits: stats.taken_slow.filter(|_| asked != PvBackend::Off),
            halts: stats.halted_irq_off + stats.halted_irq_on + heads + stats.pv_wait_node,
            kicks: stats.kicked + stats.pv_kick_unlock,
            violations: violations.unwrap_or(0),
            guest_steal_ns: steal_seconds.map(|seconds| (seconds * 1e9).round() as u64),
            ..Figures::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result of our kernel.
    const RESULT: &str = "{\"seconds\":2.003,\"violations\":0,\"operations\":[12,30],\
        \"spinlocks\":\"pvticket: PV ticketlocks on, backend vmm\",\
        \"stats\":{\"backend\":\"vmm\",\"taken_slow\":5,\"taken_slow_pickup\":1,\
        \"released_slow\":4,\"kicked\":4,\"halted_irq_off\":2,\"halted_irq_on\":3,\
        \"time_blocked_ns\":900}}\n";

    fn of(result: &str, system: System, backend: PvBackend) -> Result<Figures, CellError> {
        BenchmarkOutcome::parse(result)?.figures(system, backend)
    }

    #[test]
    fn the_result_becomes_figures() {
        let figures = of(RESULT, System::PvTicket, PvBackend::Vmm).unwrap();
        assert_eq!((figures.seconds, figures.all_operations()), (2.003, 42.0));
        assert_eq!((figures.long_waits, figures.halts, figures.kicks), (Some(5), 5, 4));
        assert_eq!(figures.slow, None, "the kernel counts waits of all locks, and only long ones");
    }

    #[test]
    fn steal_time_is_that_of_the_guests_kernel_and_unknown_where_it_does_not_say() {
        let stealing = RESULT.replace("\"stats\"", "\"steal_seconds\":0.25,\"stats\"");
        let stolen =
            |result: &str| of(result, System::PvTicket, PvBackend::Vmm).unwrap().guest_steal_ns;
        assert_eq!((stolen(&stealing), stolen(RESULT)), (Some(250_000_000), None));
    }

    #[test]
    fn what_no_guest_can_have_done_is_no_figure() {
        let huge = u64::MAX.to_string();
        for (from, to, what) in [
            ("2.003", "1e-300", "operations a second"),
            ("2.003", "0", "measured for 0 s"),
            ("2.003", "-1", "measured for -1 s"),
            ("2.003", "1e308", "measured for"),
            (
                "\"violations\":0",
                &format!("\"violations\":{huge}"),
                "a count of 18446744073709551615",
            ),
            ("[12,30]", &format!("[{huge},{huge}]"), "a count of"),
            ("\"kicked\":4", &format!("\"kicked\":{huge}"), "a count of"),
            ("\"stats\"", "\"steal_seconds\":-1,\"stats\"", "that -1 s were stolen"),
            ("\"stats\"", "\"steal_seconds\":1e9,\"stats\"", "that 1000000000 s were stolen"),
            ("[12,30]", "[200000000000000,1]", "1.0e14 operations a second"),
        ] {
            let result = RESULT.replace(from, to);
            let error = of(&result, System::PvTicket, PvBackend::Vmm).unwrap_err();
            let message = error.to_string();
            assert!(message.contains("claims") && message.contains(what), "{to}: {message}");
        }
    }

    /// The result of a stock kernel that reports this about its locks and has these counts.
    fn stock(state: &str, stats: &str) -> String {
        format!(
            "{{\"seconds\":1,\"violations\":null,\"operations\":[1],\
             \"spinlocks\":\"kvm-guest: PV spinlocks {state}\",\"stats\":{stats}}}"
        )
    }

    #[test]
    fn queued_spinlocks_count_in_files_of_their_own() {
        let pv = "{\"lock_slowpath\":9,\"pv_wait_head\":2,\"pv_wait_node\":5,\"pv_kick_unlock\":6}";
        let figures = of(&stock("enabled", pv), System::PvQueued, PvBackend::Kvm).unwrap();
        assert_eq!((figures.long_waits, figures.halts, figures.kicks), (None, 7, 6));
        let fallback = stock("disabled, no host support", "{\"lock_pending\":0}");
        let figures = of(&fallback, System::TestAndSet, PvBackend::Off).unwrap();
        assert_eq!((figures.long_waits, figures.halts, figures.kicks), (None, 0, 0));
        let error = of(&stock("enabled", "null"), System::PvQueued, PvBackend::Kvm).unwrap_err();
        assert!(matches!(error, CellError::Uncounted));
    }

    #[test]
    fn locks_that_are_not_those_asked_for_are_an_error() {
        let fallback = stock("disabled, no host support", "{}");
        let error = of(&fallback, System::Queued, PvBackend::Off).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the guest's locks are not queued: its kernel says \
             \"kvm-guest: PV spinlocks disabled, no host support\""
        );
        let silent = RESULT.replace("pvticket: PV", "PV");
        let error = of(&silent, System::PvTicket, PvBackend::Vmm).unwrap_err();
        assert!(matches!(error, CellError::Spinlocks { asked: System::PvTicket, .. }));
        let error = of(&stock("enabled", "{}"), System::NativeTicket, PvBackend::Off).unwrap_err();
        assert!(matches!(error, CellError::Spinlocks { asked: System::NativeTicket, .. }));
    }

    #[test]
    fn a_backend_that_is_not_the_one_asked_for_is_an_error() {
        let error = of(RESULT, System::PvTicket, PvBackend::Kvm).unwrap_err();
        assert_eq!(error.to_string(), "the guest's locks are served by 'vmm', not by 'kvm'");
        assert!(matches!(BenchmarkOutcome::parse("sh: not found"), Err(CellError::Result { .. })));
    }
}
