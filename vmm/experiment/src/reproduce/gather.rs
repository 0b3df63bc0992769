//! Puts published, measured and simulated figures side by side.

use std::path::Path;

use super::{
    measured::{Measured, directory},
    predict::{Predicted, predicted},
    selection::Selection,
    state::{Options, Saved},
};
use base::{plural::count, sanitize::shell_quoted};
use machine::clock;
use sim::profile::{Profile, Sources};
use study::{
    disturbance::Disturbance,
    findings::{PointStudy, Study},
    published::{Claim, Quantity, Row, Selected, Table},
    reproduction::{CardLine, Entry, Kind, Reproduction, Section},
    spec::Only,
    stats::{Estimate, ratio_of_medians},
};

/// Gathers all figures of the folder.
pub(super) fn gather(
    selection: &Selection<'_>,
    saved: &Saved,
    measured: &Measured,
    folder: &Path,
) -> anyhow::Result<Reproduction> {
    let section = |(table, rows): &(&Table, Vec<&Row>)| {
        let base = predicted(selection.published)
            .find(|(candidate, _)| candidate.name == table.name)
            .map(|(_, base)| base);
        Gather { table, base, saved, measured }.section(rows, folder)
    };
    Ok(Reproduction {
        at_ms: clock::unix_millis(),
        host: host(measured),
        sections: selection.tables.iter().map(section).collect(),
        card: CardLine::all()?,
        method: method(&saved.options),
        command: command(&saved.options),
    })
}

/// Minimum share of CPU time used by other processes that is reported.
const BUSY: f64 = 0.1;

/// Describes the host of the first measurement.
fn host(measured: &Measured) -> String {
    let mut runs = measured.studies().flat_map(|study| &study.runs);
    let Some((run, session)) = runs.find_map(|run| Some((run, run.sessions.first()?))) else {
        return "nothing was measured".to_owned();
    };
    let facts = &session.host;
    let load = facts.load_average.first().map(|load| format!(", load {load:.1}"));
    let busy = facts.busy.filter(|busy| *busy >= BUSY).map(|busy| {
        let percent = busy * 100.0;
        format!(
            "; other processes used {percent:.0} % of these CPUs just before: measure again on an idle host"
        )
    });
    format!(
        "measured on {} of {}, {} KVM, Linux {}{}{}",
        count(run.run.cpus.len(), "CPU"),
        facts.cpu,
        facts.kvm,
        facts.kernel,
        load.unwrap_or_default(),
        busy.unwrap_or_default()
    )
}

fn method(options: &Options) -> Vec<String> {
    let Options { measured, simulated, runs, seconds, short, .. } = options;
    let mut notes = Vec::new();
    if *measured {
        notes.push(format!(
            "Measured: {} of {seconds} s of each point on fresh machines, alternating \
             within a table; medians, intervals by bootstrap from six runs on. The surrogates differ \
             from the published setups as their tables state.",
            count(*runs, "run")
        ));
    }
    if *simulated {
        let how = if *short { "short simulations, a coarse fit" } else { "full length" };
        notes.push(format!(
            "Simulated: {how}. Think and critical times are fitted to the ratios of the column \
             without overcommitment, or stated by the profile of the workload; the rest is predicted by \
             one simulation of each cell."
        ));
    }
    notes
}

/// Returns the command line that starts the same reproduction.
fn command(options: &Options) -> Vec<String> {
    let Options { rows, measured, simulated, runs, seconds, short } = options;
    let mut args = vec!["pvticket reproduce".to_owned()];
    args.extend(rows.iter().map(|row| format!("--row {}", shell_quoted(row))));
    let set =
        [(!simulated, "--measured-only"), (!measured, "--simulated-only"), (*short, "--short")];
    args.extend(set.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word.to_owned()));
    if *measured {
        args.extend([format!("--runs {runs}"), format!("--seconds {seconds}")]);
    }
    args
}

struct Gather<'a> {
    table: &'a Table,
    /// The table whose fit is used, if `table` is simulated.
    base: Option<&'a Table>,
    saved: &'a Saved,
    measured: &'a Measured,
}

impl Gather<'_> {
    fn section(&self, rows: &[&Row], folder: &Path) -> Section {
        let Self { table, measured, .. } = self;
        let is_measured = matches!(measured.study(&table.name), Some(Ok(_)));
        let dir = directory(folder, &table.name).display().to_string();
        let notes = table.measured.iter().flat_map(|spec| spec.notes.clone());
        let entries: Vec<Entry> = rows.iter().map(|row| self.entry(row)).collect();
        let is_simulated = entries.iter().any(|entry| entry.simulated.is_ok());
        Section {
            name: table.name.clone(),
            table: table.table.clone(),
            source: table.source.clone(),
            read: table.read.clone(),
            place: table.place.clone(),
            noise: table.noise,
            card: table.card.clone(),
            surrogates: notes.filter(|_| is_measured).collect(),
            model: if is_simulated { self.model() } else { Vec::new() },
            command: is_measured.then(|| format!("pvticket report {}", shell_quoted(&dir))),
            disturbance: self.disturbance(rows),
            entries,
        }
    }

    /// Sums the disturbances of the windows of these rows' surrogates, each counted once.
    fn disturbance(&self, rows: &[&Row]) -> Disturbance {
        let Some(Ok(study)) = self.measured.study(&self.table.name) else {
            return Disturbance::default();
        };
        let surrogates = rows.iter().filter_map(|row| self.table.surrogate(row).ok());
        let cells = surrogates.flat_map(|surrogate| [surrogate.base, surrogate.changed]);
        let chosen: Vec<Only> = cells.filter_map(|cell| Only::parse(cell.only).ok()).collect();
        let is_chosen = |point: &&PointStudy| chosen.iter().any(|only| only.selects(&point.point));
        study.points.iter().filter(is_chosen).map(|point| point.disturbance).sum()
    }

    /// Describes the simulation: machine file, fit, profile, deviations.
    fn model(&self) -> Vec<String> {
        let fit = self.base.and_then(|base| Some((&base.name, self.saved.fit(&base.name)?)));
        let mut notes = vec![format!("machine file {}", self.table.machine)];
        notes.extend(fit.map(|(name, fit)| format!("by the 1x column of {name}: {fit}")));
        notes.extend(Profile::shipped(&self.table.profile).map(|shipped| profile(&shipped)));
        notes.extend(self.table.notes.iter().cloned());
        notes
    }

    fn entry(&self, row: &Row) -> Entry {
        let claim = self.table.claim(row);
        Entry {
            row: row.id.clone(),
            kind: match claim {
                Claim::Ratio(_) => Kind::Ratio,
                Claim::Retries(_) => Kind::Count,
            },
            published: claim.value(),
            is_at_least: row.is_at_least,
            group: row.group.clone(),
            measured: self.measured_figure(row),
            simulated: self.simulated_figure(row),
            is_fitted: self.table.is_fitted(row),
        }
    }

    fn measured_figure(&self, row: &Row) -> Result<Estimate, String> {
        let surrogate = self.table.surrogate(row)?;
        if !self.saved.options.measured {
            return Err("it can be measured here: leave out --simulated-only".to_owned());
        }
        if let Some(reason) = self.measured.lacks(&surrogate) {
            return Err(reason);
        }
        let study = self.measured.study(&self.table.name).ok_or("it was not measured")??;
        let base = point(study, surrogate.base)?;
        let changed = point(study, surrogate.changed)?;
        let none = || "its runs have no such figure".to_owned();
        match surrogate.quantity {
            Quantity::Rate => ratio_of_medians(&guest_rate(changed), &guest_rate(base), study.seed)
                .ok_or_else(none),
            Quantity::Retries => base.work.map(|work| exact(work.retries)).ok_or_else(none),
            Quantity::HolderPreemptions => {
                base.holder_preemptions_over(changed).map(exact).ok_or_else(none)
            }
        }
    }

    fn simulated_figure(&self, row: &Row) -> Result<Estimate, String> {
        let cells = self.table.simulated(row)?;
        if self.base.is_none() {
            return Err("its 1x column does not state how long a lock is held".to_owned());
        }
        if !self.saved.options.simulated {
            return Err("it can be simulated: leave out --measured-only".to_owned());
        }
        let [base, changed] = cells.map(|cell| {
            self.saved.simulated(&self.table.name, &cell.id).ok_or("it was not simulated")?
        });
        let value = Predicted::value(self.table.claim(row), &base?, &changed?);
        if value.is_finite() {
            Ok(exact(value))
        } else {
            Err("its base makes no progress in the simulation".to_owned())
        }
    }
}

/// Describes the sources of a profile's parameters.
fn profile(profile: &Profile) -> String {
    let Profile { name, about, .. } = profile;
    let Sources { fitted, known, assumed } = profile.sources();
    format!(
        "profile {name} ({about}): of its parameters {fitted} fitted, {known} known, {assumed} \
         assumed"
    )
}

const fn exact(value: f64) -> Estimate {
    Estimate { value, interval: None }
}

/// Returns the point of a study that is the surrogate of a cell.
fn point<'a>(study: &'a Study, cell: Selected<'_>) -> Result<&'a PointStudy, String> {
    let only = Only::parse(cell.only).map_err(|error| error.to_string())?;
    let mut points = study.points.iter();
    points.find(|point| only.selects(&point.point) && point.rate.is_some()).ok_or_else(|| {
        let failed = study.lost.iter().find(|lost| only.selects(&lost.point));
        let reason = failed.and_then(|lost| lost.error.as_deref());
        reason.map_or_else(
            || "it was not measured".to_owned(),
            |error| format!("its cell failed: {error}"),
        )
    })
}

/// Operations per second of one guest, in each run.
fn guest_rate(point: &PointStudy) -> Vec<f64> {
    let guests = point.point.sizes().count() as f64;
    point.rates().iter().map(|rate| rate / guests).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::{
        document::Document,
        words::text::{Form, render},
    };
    use study::{
        findings::RunRecord,
        store::record::Outcome,
        testing::{Fixture, record},
    };

    /// A run of table aim7-many's surrogates and another lock. Something stopped one window of each point.
    fn stopped() -> RunRecord {
        let locks = vec![("mutex", "off"), ("mutex-read-first", "off"), ("ticket", "off")];
        let (policies, vcpus) = (vec!["host"], vec![2]);
        let mut run = record(&Fixture { locks, policies, vcpus, ..Fixture::default() });
        for cell in run.contents.cells.iter_mut().filter(|cell| cell.round == 1) {
            if let Outcome::Done { figures } = &mut cell.outcome {
                figures.seconds *= 9.0;
            }
        }
        run
    }

    /// Regression: a row's figure did not report that something had stopped its cells.
    #[test]
    fn disturbed_windows_are_reported() {
        let tables = Table::all().expect("they can be read");
        let rows = vec!["aim7-many".to_owned()];
        let selection = Selection::new(&tables, &rows).unwrap_or_else(|error| panic!("{error}"));
        let (runs, seconds) = (8, 0.5);
        let options =
            Options { rows, measured: true, simulated: false, runs, seconds, short: false };
        let saved = Saved::new(options);
        let text = |run: RunRecord| {
            let measured = Measured::new("aim7-many", Study::new(&[run]));
            let figures = gather(&selection, &saved, &measured, Path::new("kept")).unwrap();
            render(&Document::for_reproduction(&figures), Form::MAIL)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        let disturbed = text(stopped());
        let expected =
            "disturbed windows, rates not valid: 2 much longer than requested (aim7-many)";
        assert!(disturbed.contains(expected), "{disturbed}");
        let locks = vec![("mutex", "off"), ("mutex-read-first", "off")];
        let quiet = text(record(&Fixture { locks, ..Fixture::default() }));
        assert!(quiet.contains("read-first, 1 node, HT off") && !quiet.contains("disturbed"));
    }
}
