//! The combinations of a spec's values, and which of them can be run.

use std::{
    collections::{HashMap, HashSet},
    ops::RangeInclusive,
    str::FromStr,
    time::Duration,
};

use clap::ValueEnum;
use hypercalls::payload;
use locks::System;

use super::{
    Setting,
    error::{SpecError, SpecFault},
    exclude::Excludes,
    form::{AXES, Axis, Form, Value},
    number, parse,
};
use crate::{
    guest::{
        handoff::HandoffSpec,
        kernels,
        payload::PayloadSpec,
        systems::{Systems, all_of},
    },
    lab::{
        GuestWorkload, LinuxCell,
        plan::{Level, Seconds, resolve_levels},
        point::{GuestKind, HostKind, Point},
    },
    sched::{PolicySpec, policy::DEFAULT_SLICE},
    units::VcpuCount,
    vcpu::fault::FaultSpec,
    vm::PvBackend,
};

/// A value that nobody wrote.
const UNWRITTEN: usize = 0;

/// Slots when nobody says: of more CPUs than that, high ratios would come to more vCPUs than a machine
/// has.
const MOST_SLOTS: usize = 16;

/// Looks of a Linux guest's waiter before it halts, until it is known where the guest runs.
const BY_HOST: u32 = 0;

/// All points of the matrix that are not excluded, in the order of its loops.
pub fn points(form: &Form, setting: &Setting<'_>) -> Result<Vec<Point>, SpecError> {
    let axes = axes(form, setting)?;
    let combinations: u64 =
        axes.iter().fold(1, |all, axis| all.saturating_mul(axis.values.len() as u64));
    if combinations > super::MOST_CELLS {
        return Err(SpecFault::TooMany(combinations).at(1));
    }
    let mut excludes = Excludes::new(&form.excludes, &axes)?;
    let mut seen = HashSet::new();
    let mut points: Vec<(Point, bool)> = Vec::new();
    for number in 0..combinations {
        let combination = Combination::new(&axes, number);
        if excludes.match_any(&combination, setting) {
            continue;
        }
        let point = combination.point(setting)?;
        let needs_ring_0 = point.guest == GuestKind::Linux || point.backend.needs_ring_0();
        if seen.insert(point.key()) {
            points.push((point, needs_ring_0));
        }
    }
    if let Some(exclude) = excludes.unused(&form.excludes) {
        return Err(SpecFault::ExcludesNothing.at(exclude.line));
    }
    if points.is_empty() {
        return Err(SpecFault::Nothing.at(1));
    }
    place(points, form, setting)
}

/// Says where each point runs: those that are compared run at one place.
fn place(
    points: Vec<(Point, bool)>,
    form: &Form,
    setting: &Setting<'_>,
) -> Result<Vec<Point>, SpecError> {
    let families: Vec<String> = points.iter().map(|(point, _)| point.family_key()).collect();
    let mut needs: HashMap<&str, bool> = HashMap::new();
    for (family, (_, needs_ring_0)) in families.iter().zip(&points) {
        *needs.entry(family).or_default() |= needs_ring_0;
    }
    let written = form.setting("host");
    let host = written.map_or("auto", |value| value.text.as_str());
    let line = written.map_or(1, |value| value.line);
    let mut places = HashMap::new();
    points
        .into_iter()
        .zip(&families)
        .map(|((mut point, _), family)| {
            let needs_ring_0 = needs.get(family.as_str()).copied().unwrap_or_default();
            // It looks at the host, which takes as long as a hundred points.
            let place = places
                .entry((point.guest, needs_ring_0))
                .or_insert_with(|| (setting.place)(host, point.guest, needs_ring_0));
            let wrong = |why: &String| SpecFault::Value { key: "host", why: why.clone() }.at(line);
            point.host = *place.as_ref().map_err(wrong)?;
            if point.guest == GuestKind::Linux && point.spin_threshold == BY_HOST {
                point.spin_threshold = LinuxCell::default_looks(point.host == HostKind::Emulated);
            }
            Ok(point)
        })
        .collect()
}

/// Every axis, with what it has when nobody says, and with `all` locks by their names.
fn axes(form: &Form, setting: &Setting<'_>) -> Result<Vec<Axis>, SpecError> {
    let mut axes = Vec::new();
    for key in AXES {
        let Some(axis) = form.axis(key) else {
            let values = default_of(key, setting).into_iter();
            let values = values.map(|text| Value { text, line: UNWRITTEN }).collect();
            axes.push(Axis { key, values });
            continue;
        };
        axes.push(if key == "locks" { locks(axis, form)? } else { axis.clone() });
    }
    Ok(axes)
}

/// Of keys whose default depends on the guest: nothing.
fn default_of(key: &str, setting: &Setting<'_>) -> Vec<String> {
    let texts: &[&str] = match key {
        "guests" => &["payload"],
        "workloads" => &["lock"],
        "slots" => return vec![setting.cpus.cpus().len().min(MOST_SLOTS).to_string()],
        "vms" | "seeds" => &["1"],
        "policies" => &["host"],
        "slice" => return vec![DEFAULT_SLICE.to_string()],
        "faults" | "handoffs" => &["none"],
        "critical" => return vec![PayloadSpec::CRITICAL.to_string()],
        "think" => return vec![PayloadSpec::THINK.to_string()],
        "vcpus" => &["1x", "1.5x", "2x", "4x"],
        "locks" => &["ticket", "pv-ticket"],
        "backends" => &["vmm"],
        _ => &[""],
    };
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// `all` are those that any of the guests has.
fn locks(axis: &Axis, form: &Form) -> Result<Axis, SpecError> {
    let linux_alone = form
        .axis("guests")
        .is_some_and(|guests| guests.values.iter().all(|guest| guest.text == "linux"));
    let mut values: Vec<Value> = Vec::new();
    for value in &axis.values {
        let systems = match parse::<Systems>(value, axis.key)? {
            one @ Systems::One(_) => all_of(&[one]),
            Systems::All if linux_alone => kernels::systems(&[Systems::All]).unwrap_or_default(),
            Systems::All => all_of(&[Systems::All]),
        };
        for system in systems {
            let text = system.name().to_owned();
            if values.iter().all(|other| other.text != text) {
                values.push(Value { text, line: value.line });
            }
        }
    }
    Ok(Axis { key: axis.key, values })
}

/// One value of each axis.
pub(super) struct Combination<'a> {
    axes: &'a [Axis],
    /// Its place on each of them.
    places: [usize; AXES.len()],
}

impl<'a> Combination<'a> {
    /// The one of that number, the last axis being the fastest.
    fn new(axes: &'a [Axis], mut number: u64) -> Self {
        let mut places = [0; AXES.len()];
        for (axis, place) in axes.iter().zip(&mut places).rev() {
            let count = axis.values.len() as u64;
            *place = (number % count) as usize;
            number /= count;
        }
        Self { axes, places }
    }

    /// Its places on the axes, in their order.
    pub(super) fn places(&self) -> &[usize] {
        &self.places
    }

    fn axis(key: &str) -> usize {
        // Every key that is asked for is one of them.
        AXES.iter().position(|its| *its == key).expect("an axis")
    }

    pub(super) fn place(&self, key: &str) -> usize {
        self.places[Self::axis(key)]
    }

    pub(super) fn value(&self, key: &str) -> &'a Value {
        let axis = Self::axis(key);
        &self.axes[axis].values[self.places[axis]]
    }

    fn parse<T: FromStr<Err: ToString>>(&self, key: &'static str) -> Result<T, SpecError> {
        parse(self.value(key), key)
    }

    fn number(&self, key: &'static str, range: RangeInclusive<u32>) -> Result<u32, SpecError> {
        number(self.value(key), key, range)
    }

    /// It cannot be, for these values, of which the first that was written gets the blame.
    fn impossible(&self, keys: &[&'static str], why: impl Into<String>) -> SpecError {
        let lines = keys.iter().map(|key| self.value(key).line);
        let line = lines.into_iter().find(|line| *line != UNWRITTEN).unwrap_or(1);
        let words = keys.iter().map(|key| format!("{key} {}", self.value(key).text));
        let cell = words.collect::<Vec<_>>().join(" with ");
        SpecFault::Impossible { cell, why: why.into() }.at(line)
    }

    fn guest(&self) -> Result<GuestKind, SpecError> {
        let value = self.value("guests");
        GuestKind::ALL.into_iter().find(|guest| guest.name() == value.text).ok_or_else(|| {
            let why = format!("'{}' is no guest: payload or linux", value.text);
            SpecFault::Value { key: "guests", why }.at(value.line)
        })
    }

    pub(super) fn vcpus(&self, slots: u32, setting: &Setting<'_>) -> Result<VcpuCount, SpecError> {
        let value = self.value("vcpus");
        let level: Level = self.parse("vcpus")?;
        let slots = setting.cpus.first(slots as usize);
        let levels = resolve_levels(&[level], &slots);
        let why = |error: &dyn ToString| SpecFault::Value { key: "vcpus", why: error.to_string() };
        let levels = levels.map_err(|error| why(&error).at(value.line))?;
        levels.first().copied().ok_or_else(|| why(&"no level").at(value.line))
    }

    pub(super) fn slots(&self, setting: &Setting<'_>) -> Result<u32, SpecError> {
        let most = setting.cpus.cpus().len() as u32;
        self.number("slots", 1..=most).map_err(|error| {
            let why = format!(
                "'{}': 1 to {most}, because each slot is a CPU of its own here ({})",
                self.value("slots").text,
                setting.cpus
            );
            SpecFault::Value { key: "slots", why }.at(error.line)
        })
    }

    fn fault(&self) -> Result<Option<FaultSpec>, SpecError> {
        match self.value("faults").text.as_str() {
            "none" => Ok(None),
            _ => self.parse("faults").map(Some),
        }
    }

    /// Who serves the lock's waiters, and how it is handed over: what it does not have is left out.
    fn service(
        &self,
        guest: GuestKind,
        lock: System,
    ) -> Result<(PvBackend, HandoffSpec), SpecError> {
        let asked: PvBackend = self.parse("backends")?;
        let handoff: HandoffSpec = self.parse("handoffs")?;
        if asked == PvBackend::Off {
            let why = "off is what locks have that do not halt, and they always run so".into();
            return Err(SpecFault::Value { key: "backends", why }.at(self.value("backends").line));
        }
        let all_halt = guest == GuestKind::Payload && self.value("workloads").text == "mixed";
        let backend = match (guest, lock.halts() || all_halt) {
            (_, false) => PvBackend::Off,
            (GuestKind::Linux, true) => kernels::only_backend(lock).unwrap_or(asked),
            (GuestKind::Payload, true) => asked,
        };
        let hands_over = lock == System::PvTicket || handoff == HandoffSpec::NONE;
        Ok((backend, if hands_over { handoff } else { HandoffSpec::NONE }))
    }

    fn point(&self, setting: &Setting<'_>) -> Result<Point, SpecError> {
        let guest = self.guest()?;
        let lock: System = self.parse("locks")?;
        let slots = self.slots(setting)?;
        let (backend, handoff) = self.service(guest, lock)?;
        let (looks, seconds) = match guest {
            GuestKind::Payload => (PayloadSpec::SPIN_THRESHOLD, 0.5),
            GuestKind::Linux => (BY_HOST, 1.0),
        };
        let or = |key, otherwise: u32| match self.value(key).line {
            UNWRITTEN => Ok(otherwise),
            _ => self.number(key, 0..=u32::MAX),
        };
        let duration = match self.value("seconds").line {
            UNWRITTEN => Duration::from_secs_f64(seconds),
            _ => self.parse::<Seconds>("seconds")?.0,
        };
        let point = Point {
            label: self.value("labels").text.clone(),
            guest,
            host: HostKind::Direct,
            workload: self.value("workloads").text.clone(),
            lock,
            backend,
            handoff,
            policy: self.parse::<PolicySpec>("policies")?,
            fault: self.fault()?,
            vcpus: self.vcpus(slots, setting)?,
            vms: self.number("vms", 1..=64)?,
            slots,
            slice: self.parse("slice")?,
            spin_threshold: or("spin-threshold", looks)?,
            critical: self.number("critical", 0..=u32::MAX)?,
            think: self.number("think", 0..=u32::MAX)?,
            duration,
            seed: self.parse("seeds")?,
        };
        self.check(&point)?;
        Ok(point)
    }

    fn check(&self, point: &Point) -> Result<(), SpecError> {
        if point.policy.replays().is_some() {
            let why =
                "a replay is of one machine's run: pvticket compare --policy replay:FILE".into();
            let line = self.value("policies").line;
            return Err(SpecFault::Value { key: "policies", why }.at(line));
        }
        match point.guest {
            GuestKind::Payload => self.check_payload(point)?,
            GuestKind::Linux => self.check_linux(point)?,
        }
        self.check_fault(point)
    }

    fn check_payload(&self, point: &Point) -> Result<(), SpecError> {
        let workloads = payload::Workload::OF_LOCKS;
        let Some((workload, ..)) = workloads.iter().find(|(_, name, _)| *name == point.workload)
        else {
            let names: Vec<&str> = workloads.iter().map(|(_, name, _)| *name).collect();
            let why = format!("the payload has {}", names.join(", "));
            return Err(self.impossible(&["workloads", "guests"], why));
        };
        if *workload == payload::Workload::HotLine && point.vcpus == VcpuCount::ONE {
            let why = "it takes two vCPUs at least, one of them reads";
            return Err(self.impossible(&["workloads", "vcpus"], why));
        }
        if point.vcpus.get() > point.lock.most_cpus() {
            let why = format!("it can count {} CPUs", point.lock.most_cpus());
            return Err(self.impossible(&["locks", "vcpus"], why));
        }
        Ok(())
    }

    fn check_linux(&self, point: &Point) -> Result<(), SpecError> {
        let workloads = GuestWorkload::value_variants();
        if !workloads.iter().any(|workload| workload.name() == point.workload) {
            let names: Vec<&str> = workloads.iter().map(|workload| workload.name()).collect();
            let why = format!("a Linux guest has {}", names.join(", "));
            return Err(self.impossible(&["workloads", "guests"], why));
        }
        if kernels::flavour(point.lock).is_none() {
            return Err(self.impossible(&["locks", "guests"], "no kernel here has it"));
        }
        if !kernels::works_with(point.lock, point.vcpus.get()) {
            let why = "a kernel with one CPU does not take it";
            return Err(self.impossible(&["locks", "vcpus"], why));
        }
        if self.value("spin-threshold").line != UNWRITTEN && point.spin_threshold == 0 {
            return Err(self.impossible(&["spin-threshold", "guests"], "it looks at least once"));
        }
        Ok(())
    }

    fn check_fault(&self, point: &Point) -> Result<(), SpecError> {
        let Some(fault) = point.fault else { return Ok(()) };
        let why = match point.backend {
            PvBackend::Kvm => "KVM serves the calls itself there",
            PvBackend::Doorbell if fault.delays_halts() => "vCPUs halt in KVM there",
            _ => return Ok(()),
        };
        Err(self.impossible(&["faults", "backends", "locks"], why))
    }
}
