//! Disturbed windows as text.

use base::plural::count;

use super::super::names;
use study::{
    disturbance::{Disturbance, Windows},
    findings::{PointStudy, Study},
    spec,
};

/// A clause with the number of windows without valid figures by reason; `None` without such windows.
pub fn summary(disturbance: Disturbance) -> Option<String> {
    let Disturbance { overlong, stopped, starved, lacking, throttled } = disturbance;
    let longest = stopped.map_or(0.0, |(_, seconds)| seconds);
    let share = throttled.map_or(0.0, |(_, share)| share * 100.0);
    let parts = [
        (overlong, "much longer than requested".to_owned()),
        (stopped, format!("stopped for up to {longest:.2} s")),
        (starved, "without the CPUs of their slots".to_owned()),
        (lacking, "with fewer CPUs than slots".to_owned()),
        (throttled, format!("stopped by a CPU quota for up to {share:.0} % of the CPUs' time")),
    ];
    let part = |(windows, how): (Windows, String)| Some(format!("{} {how}", windows?.0));
    let parts: Vec<String> = parts.into_iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("disturbed windows, rates not valid: {}", parts.join(", ")))
}

/// One note per kind of disturbance of a point's windows.
pub fn notes(point: &PointStudy) -> Vec<String> {
    let Disturbance { overlong, stopped, starved, lacking, throttled } = point.disturbance;
    let requested = point.point.duration.as_secs_f64();
    let note = |windows: Windows, text: &dyn Fn(f64) -> String| {
        let (windows, max) = windows?;
        let windows = count(windows, "window");
        Some(format!("{windows} {}; the rate is not valid", text(max)))
    };
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let notes = [
        note(overlong, &|max| {
            format!("of up to {max:.2} s instead of {requested} s: something stopped the cell")
        }),
        note(stopped, &|max| format!("with a stop of the cell for up to {max:.2} s")),
        note(starved, &|max| {
            let max = percent(max);
            format!(
                "in which a vCPU waited for the CPU of its slot for up to {max} of the time: other programs ran there"
            )
        }),
        note(lacking, &|max| {
            let slots = count(point.point.slots, "CPU");
            format!("in which up to {max} of {slots} were taken away (cpuset, hotplug)")
        }),
        note(throttled, &|max| {
            format!("in which a CPU quota took up to {} of the CPUs' time", percent(max))
        }),
    ];
    notes.into_iter().flatten().collect()
}

/// A warning about the first measured run whose lowest CPU quota was less than its CPUs.
pub fn quota(study: &Study) -> Option<String> {
    let measured = study.runs.iter().filter(|run| !spec::is_simulated(&run.run.spec));
    let mut concerns = measured.filter_map(|run| {
        let hosts = run.sessions.iter().map(|session| &session.host);
        let least = hosts.min_by(|a, b| {
            let [a, b] = [a, b].map(|host| host.cpu_quota.unwrap_or(f64::INFINITY));
            a.total_cmp(&b)
        });
        least?.quota_warning(run.run.cpus.len())
    });
    concerns.next()
}

/// All disturbed windows of a study, with their points; `None` without any.
pub fn summary_with_points(study: &Study) -> Option<String> {
    let is_disturbed = |point: &&PointStudy| !point.disturbance.is_none();
    let points: Vec<&PointStudy> = study.points.iter().filter(is_disturbed).collect();
    let counted = summary(points.iter().map(|point| point.disturbance).sum())?;
    Some(format!("{counted} ({})", names::list(study, points.iter().map(|point| &point.point))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        brief,
        document::Document,
        html,
        words::text::{Form, render},
    };
    use study::{
        findings::{Diff, RunRecord},
        testing::{Fixture, figures, record},
    };

    /// A run with two windows of one point in which something stopped the cell.
    fn stopped() -> RunRecord {
        let mut run = record(&Fixture::default());
        let chosen = figures(&mut run)
            .filter(|(point, _)| point.policy.name() == "rr" && point.vcpus.get() == 4);
        chosen.take(2).for_each(|(_, figures)| figures.seconds *= 9.0);
        run
    }

    fn study_of(run: RunRecord) -> Study {
        Study::new(&[run])
    }

    fn text(study: &Study, form: Form) -> String {
        render(&Document::for_study(study), form)
    }

    fn of_diff(diff: &Diff, form: Form) -> String {
        render(&Document::for_diff(diff), form)
    }

    fn flat(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Regression: only the table of `compare` reported a window in which its cell had been stopped.
    #[test]
    fn pages_and_mails_report_disturbed_windows() {
        let study = study_of(stopped());
        let expected = "Disturbed windows, rates not valid: 2 much longer than requested (ticket";
        for text in [
            text(&study, Form::MAIL),
            text(&study, Form::terminal(80)),
            html::page(&study, None).unwrap(),
        ] {
            assert!(flat(&text).contains(expected), "{text}");
        }
        assert!(!text(&study_of(record(&Fixture::default())), Form::MAIL).contains("Disturbed"));
    }

    /// Regression: the brief and the comparison of two runs did not report disturbed windows.
    #[test]
    fn briefs_and_diffs_report_disturbed_windows() {
        let expected = "disturbed windows, rates not valid: 2 much longer than requested";
        let brief = |run| flat(&brief::Brief::new(&[run]).answer(brief::WIDTH));
        let text = brief(stopped());
        assert!(text.contains(expected), "{text}");
        let undisturbed = || record(&Fixture::default());
        assert!(!brief(undisturbed()).contains("disturbed"));
        for (before, after, ordinal) in
            [(undisturbed(), stopped(), "second"), (stopped(), undisturbed(), "first")]
        {
            let diff = Diff::new(study_of(before), study_of(after));
            let expected = format!("The {ordinal} run has {expected} (ticket");
            for text in [
                of_diff(&diff, Form::terminal(80)),
                html::document_page(Document::for_diff(&diff)).unwrap(),
            ] {
                let text = flat(&text);
                assert_eq!(text.matches(&expected).count(), 1, "{text}");
                assert_eq!(text.matches("disturbed windows").count(), 1, "{text}");
            }
            // The email reports the windows with the other facts of the run.
            let mail = of_diff(&diff, Form::MAIL).to_lowercase();
            assert_eq!(mail.matches("disturbed").count(), 1, "{mail}");
        }
        let same = Diff::new(study_of(undisturbed()), study_of(undisturbed()));
        assert!(!of_diff(&same, Form::terminal(80)).contains("disturbed"));
    }
}
