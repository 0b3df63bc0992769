//! Figures of a cell from the report of a Linux guest's benchmark.

use locks::System;

use crate::cell::CellError;
use base::{backend::PvBackend, units::VcpuCount};
use study::{
    guest::{
        bench_report::{BenchReport, BenchReportError},
        kernels,
    },
    point::Point,
    store::record::Figures,
};

/// Computes the figures. Fails if the guest used locks other than requested.
pub(super) fn figures(output: &str, point: &Point, vcpus: VcpuCount) -> Result<Figures, CellError> {
    let (system, requested) = (point.lock, point.backend);
    let report = BenchReport::read(output).map_err(|error| match error {
        BenchReportError::Parse(error) => CellError::Result { output: output.into(), error },
        BenchReportError::Impossible(figure) => CellError::Impossible(figure),
    })?;
    let cpus = report.cpus.unwrap_or(report.operations.len());
    if cpus != vcpus.get() as usize {
        return Err(CellError::Vcpus { reported: cpus, vcpus });
    }
    let nanos = |seconds: f64| (seconds * 1e9).round() as u64;
    let longest = report.parts.iter().filter_map(|part| part.longest_seconds).map(nanos).max();
    let BenchReport {
        seconds,
        violations,
        operations,
        spinlocks,
        steal_seconds,
        stats,
        output,
        ..
    } = report;
    // A kernel without PV spinlocks does not report its locks.
    let chosen = spinlocks.as_deref().map_or(Some(System::Queued), kernels::chosen);
    if system != System::Kernel && chosen != Some(system) {
        return Err(CellError::Spinlocks { reported: spinlocks, requested: system });
    }
    let stats = stats.unwrap_or_default();
    // Only our kernel reports a backend.
    if let Some(reported) = stats.backend.filter(|reported| reported != requested.name()) {
        return Err(CellError::Backend { reported, requested });
    }
    let printed = output.unwrap_or_default();
    let printed_rate = point.rate.as_ref().map(|rate| rate.rate(&printed)).transpose()?;
    let heads = stats.pv_wait_head.unwrap_or(0);
    Ok(Figures {
        seconds,
        operations,
        printed_rate,
        // Native locks have no threshold.
        long_waits: stats.taken_slow.filter(|_| requested != PvBackend::Off),
        halts_uncounted: matches!(system, System::PvQueued | System::Kernel)
            && stats.pv_wait_head.is_none(),
        halts: stats.halted_irq_off + stats.halted_irq_on + heads + stats.pv_wait_node,
        kicks: stats.kicked + stats.pv_kick_unlock,
        violations: violations.unwrap_or(0),
        guest_steal_ns: steal_seconds.map(nanos),
        longest_ns: longest,
        ..Figures::default()
    })
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

    fn read(result: &str, system: System, backend: PvBackend) -> Result<Figures, CellError> {
        read_vcpus(2, result, system, backend)
    }

    fn read_vcpus(
        vcpus: u32,
        result: &str,
        system: System,
        backend: PvBackend,
    ) -> Result<Figures, CellError> {
        let point =
            Point { lock: system, backend, ..study::testing::experiment().points[0].clone() };
        figures(result, &point, VcpuCount::try_from(vcpus).unwrap())
    }

    #[test]
    fn figures_are_computed_from_the_result() {
        let figures = read(RESULT, System::PvTicket, PvBackend::Vmm).unwrap();
        assert_eq!((figures.seconds, figures.all_operations()), (2.003, 42.0));
        assert_eq!((figures.long_waits, figures.halts, figures.kicks), (Some(5), 5, 4));
        assert_eq!(figures.slow, None, "the kernel counts waits of all locks, and only long ones");
    }

    #[test]
    fn printed_rate_comes_from_the_output() {
        let mut point = study::testing::experiment().points[0].clone();
        (point.lock, point.backend) = (System::PvTicket, PvBackend::Vmm);
        point.rate = Some("x(.*)".parse().unwrap());
        let rate = |output: &str| {
            let result = RESULT.replace("\"stats\"", &format!("{output}\"stats\""));
            figures(&result, &point, VcpuCount::try_from(2).unwrap()).map(|figures| figures.rate())
        };
        assert_eq!(rate("\"output\":\"x4\",").unwrap(), 4.0);
        for output in ["", "\"output\":\"x-4\",", "\"output\":\"y\","] {
            assert!(matches!(rate(output), Err(CellError::Figure(_))), "{output}");
        }
    }

    #[test]
    fn steal_time_is_the_guest_kernels_or_unknown() {
        let stealing = RESULT.replace("\"stats\"", "\"steal_seconds\":0.25,\"stats\"");
        let stolen =
            |result: &str| read(result, System::PvTicket, PvBackend::Vmm).unwrap().guest_steal_ns;
        assert_eq!((stolen(&stealing), stolen(RESULT)), (Some(250_000_000), None));
    }

    #[test]
    fn impossible_counts_are_rejected() {
        let result = RESULT.replace("[12,30]", "[18446744073709551615,1]");
        let error = read(&result, System::PvTicket, PvBackend::Vmm).unwrap_err();
        assert!(error.to_string().contains("a count of"), "{error}");
    }

    /// The result of a stock kernel with this lock state and these counts.
    fn stock(state: &str, stats: &str) -> String {
        format!(
            "{{\"seconds\":1,\"violations\":null,\"operations\":[1],\"cpus\":2,\
             \"spinlocks\":\"kvm-guest: PV spinlocks {state}\",\"stats\":{stats}}}"
        )
    }

    #[test]
    fn queued_spinlocks_use_lock_event_counts() {
        let pv = "{\"lock_slowpath\":9,\"pv_wait_head\":2,\"pv_wait_node\":5,\"pv_kick_unlock\":6}";
        let figures = read(&stock("enabled", pv), System::PvQueued, PvBackend::Kvm).unwrap();
        assert_eq!((figures.long_waits, figures.halts, figures.kicks), (None, 7, 6));
        let fallback = stock("disabled, no host support", "{\"lock_pending\":0}");
        let figures = read(&fallback, System::TestAndSet, PvBackend::Off).unwrap();
        assert_eq!((figures.long_waits, figures.halts, figures.kicks), (None, 0, 0));
        assert!(!figures.halts_uncounted);
        // Without CONFIG_LOCK_EVENT_COUNTS.
        let figures = read(&stock("enabled", "null"), System::PvQueued, PvBackend::Kvm).unwrap();
        assert!(figures.halts_uncounted);
    }

    #[test]
    fn unexpected_locks_are_rejected() {
        let fallback = stock("disabled, no host support", "{}");
        let error = read(&fallback, System::Queued, PvBackend::Off).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the guest's locks are not queued: its kernel reports \
             \"kvm-guest: PV spinlocks disabled, no host support\""
        );
        let silent = RESULT.replace("pvticket: PV", "PV");
        let error = read(&silent, System::PvTicket, PvBackend::Vmm).unwrap_err();
        assert!(matches!(error, CellError::Spinlocks { requested: System::PvTicket, .. }));
        let error =
            read(&stock("enabled", "{}"), System::NativeTicket, PvBackend::Off).unwrap_err();
        assert!(matches!(error, CellError::Spinlocks { requested: System::NativeTicket, .. }));
    }

    /// A kernel without PV spinlocks reports none.
    #[test]
    fn native_locks_need_no_report() {
        let silent = "{\"seconds\":1,\"operations\":[1,2]}";
        assert!(read(silent, System::Queued, PvBackend::Off).is_ok());
        for (system, backend) in [
            (System::PvQueued, PvBackend::Kvm),
            (System::TestAndSet, PvBackend::Off),
            (System::NativeTicket, PvBackend::Off),
        ] {
            assert!(read(silent, system, backend).is_err(), "{system:?}");
        }
    }

    /// A guest without ACPI found one CPU, and its rate was taken for the rate of all.
    #[test]
    fn missing_cpus_are_rejected() {
        let run = |vcpus, result: &str| read_vcpus(vcpus, result, System::PvTicket, PvBackend::Vmm);
        let with = |cpus: &str| RESULT.replace("\"spinlocks\"", &format!("{cpus}\"spinlocks\""));
        assert!(run(2, RESULT).is_ok() && run(8, &with("\"cpus\":8,")).is_ok());
        for (vcpus, result, cpus) in
            [(4, RESULT.to_owned(), 2), (2, with("\"cpus\":1,"), 1), (1, RESULT.to_owned(), 2)]
        {
            let error = run(vcpus, &result).unwrap_err().to_string();
            let expected = format!("the guest uses {cpus} CPUs instead of {vcpus}");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn unexpected_backend_is_rejected() {
        let error = read(RESULT, System::PvTicket, PvBackend::Kvm).unwrap_err();
        assert_eq!(error.to_string(), "the guest's locks use backend 'vmm' instead of 'kvm'");
        let error = read("sh: not found", System::PvTicket, PvBackend::Kvm).unwrap_err();
        assert!(matches!(error, CellError::Result { .. }));
    }
}
