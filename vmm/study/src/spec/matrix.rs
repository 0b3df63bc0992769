//! The matrix: combinations of a spec's values, and checks whether they can be run.

use std::{
    collections::{HashMap, HashSet},
    ops::RangeInclusive,
    path::PathBuf,
    str::FromStr,
};

use hypercalls::payload::MAX_LOCKS;
use locks::{Family, System};

use super::{
    Setting, defaults,
    error::{SpecError, SpecFault},
    exclude::Excludes,
    form::{Axis, Form, UNWRITTEN, Value},
    possible::{check_matrix, impossible},
};
use crate::{
    axis::{self, KEYS, NONE},
    guest::{
        kernels,
        program::RateExpression,
        systems::{Systems, expand},
        workload::GuestWorkload,
    },
    plan::Level,
    point::{GuestKind, HostKernel, HostKind, Point},
};
use base::{
    backend::PvBackend,
    guest_kernel::GuestKernel,
    handoff::{HandoffSpec, NO_GUEST_KERNEL},
    host_extras::PleWindow,
    label::NameAndFile,
    steal_source::StealSource,
    units::VcpuCount,
};
use sched::{PolicySpec, driver::DriverKind};

/// Maximum number of VMs in a cell.
pub const MAX_VMS: u32 = 64;

/// Returns all points of the matrix that are not excluded, in the order of its axes.
pub fn points(form: &Form, setting: &Setting<'_>) -> Result<Vec<Point>, SpecError> {
    let axes = axes(form, setting)?;
    let combinations: u64 =
        axes.iter().fold(1, |product, axis| product.saturating_mul(axis.values.len() as u64));
    if combinations > super::MAX_CELLS {
        return Err(SpecFault::TooMany(combinations).at(1));
    }
    check_matrix(form, &axes)?;
    let mut excludes = Excludes::new(&form.excludes, &axes)?;
    let mut keys = HashSet::new();
    let mut points: Vec<(Point, bool)> = Vec::new();
    for number in 0..combinations {
        let combination = Combination::new(&axes, number);
        if excludes.match_any(&combination, setting) {
            continue;
        }
        let point = combination.point(setting)?;
        let needs_ring_0 = point.needs_ring_0();
        if keys.insert(point.key()) {
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

/// Sets the host of each point, and the spin threshold if it depends on the host. Compared points share a host.
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
    let (name, line) = written.map_or(("--host", 1), |value| (value.name.as_str(), value.line));
    let mut places = HashMap::new();
    points
        .into_iter()
        .zip(&families)
        .map(|((mut point, _), family)| {
            let needs_ring_0 = needs.get(family.as_str()).copied().unwrap_or_default();
            // Cached: probing the host takes as long as a hundred points.
            let place =
                places.entry((point.guest, needs_ring_0)).or_insert_with(|| match point.guest {
                    // A simulation needs no KVM.
                    GuestKind::Sim => Ok(HostKind::Direct),
                    guest => (setting.place)(host, guest, needs_ring_0),
                });
            let error = |reason: &String| {
                SpecFault::Value { name: name.to_owned(), why: reason.clone() }.at(line)
            };
            point.host = *place.as_ref().map_err(error)?;
            if point.host_kernel.is_some() && point.host == HostKind::Direct {
                let why = "nothing here runs in the emulated host; name it as the host";
                return Err(form
                    .axis("host-kernels")
                    .map_or_else(|| error(&why.into()), |axis| axis.values[0].invalid(why)));
            }
            if point.guest == GuestKind::Linux && point.spin_threshold == defaults::BY_HOST {
                let is_emulated = setting.is_emulated || point.host == HostKind::Emulated;
                point.spin_threshold = defaults::linux_spins(is_emulated);
            }
            Ok(point)
        })
        .collect()
}

/// Returns every axis, with default values if the spec has none, and with `all` locks expanded to names.
fn axes(form: &Form, setting: &Setting<'_>) -> Result<Vec<Axis>, SpecError> {
    let mut axes = Vec::new();
    let has_own_kernel = !files_of(form, "guest-kernels", GuestKernel::with_file).is_empty();
    for key in KEYS {
        let Some(axis) = form.axis(key) else {
            let values = match key {
                "locks" if has_own_kernel => vec![System::Kernel.to_string()],
                "workloads" if has_own_kernel => vec![GuestWorkload::Eventfd.name().into()],
                _ => axis::default_values(key, setting),
            };
            let value = |text| Value { name: key.into(), text, line: UNWRITTEN };
            axes.push(Axis { key, values: values.into_iter().map(value).collect() });
            continue;
        };
        axes.push(match key {
            "locks" => locks(axis, form)?,
            "guest-kernels" => named(axis, |text| Ok(GuestKernel::with_file(text)?.0.to_string()))?,
            "host-kernels" => named(axis, |text| Ok(HostKernel::with_file(text)?.0.to_string()))?,
            _ => axis.clone(),
        });
    }
    Ok(axes)
}

/// Returns the kernel files that the spec names for a key.
pub fn files_of<K>(form: &Form, key: &str, parse: fn(&str) -> NameAndFile<K>) -> Vec<(K, PathBuf)> {
    let values = form.values(key).filter_map(|text| parse(text).ok());
    values.filter_map(|(kernel, file)| Some((kernel, file?))).collect()
}

/// Replaces files by their names, which must differ.
fn named(axis: &Axis, name: impl Fn(&str) -> Result<String, String>) -> Result<Axis, SpecError> {
    let mut values: Vec<Value> = Vec::new();
    for value in &axis.values {
        let text = name(&value.text).map_err(|why| value.invalid(why))?;
        if values.iter().any(|known| known.text == text) {
            let why = format!("'{}': {text} is taken, name the file by NAME=PATH", value.text);
            return Err(value.invalid(why));
        }
        values.push(Value { text, ..value.clone() });
    }
    Ok(Axis { key: axis.key, values })
}

/// Expands `all` to the locks supported by any of the guests.
fn locks(axis: &Axis, form: &Form) -> Result<Axis, SpecError> {
    let mut guests = form.values("guests").peekable();
    let linux_alone = guests.peek().is_some() && guests.all(|guest| guest == "linux");
    let mut values: Vec<Value> = Vec::new();
    for value in &axis.values {
        let systems = match value.parse::<Systems>()? {
            single @ Systems::One(_) => expand(&[single]),
            Systems::All if linux_alone => kernels::systems(),
            Systems::All => expand(&[Systems::All]),
        };
        for system in systems {
            let text = system.name().to_owned();
            if values.iter().all(|known| known.text != text) {
                values.push(Value { text, ..value.clone() });
            }
        }
    }
    Ok(Axis { key: axis.key, values })
}

/// One value of each axis.
pub(crate) struct Combination<'a> {
    axes: &'a [Axis],
    /// By axis: index of the combination's value.
    places: [usize; KEYS.len()],
}

impl<'a> Combination<'a> {
    /// Creates combination number `number`; the last axis varies fastest.
    fn new(axes: &'a [Axis], mut number: u64) -> Self {
        let mut places = [0; KEYS.len()];
        for (axis, place) in axes.iter().zip(&mut places).rev() {
            let count = axis.values.len() as u64;
            *place = (number % count) as usize;
            number /= count;
        }
        Self { axes, places }
    }

    /// Returns the indices of the combination's values, in the order of the axes.
    pub(super) fn places(&self) -> &[usize] {
        &self.places
    }

    fn axis(key: &str) -> usize {
        // Callers only pass keys of the matrix.
        KEYS.iter().position(|known| *known == key).expect("an axis")
    }

    pub(super) fn place(&self, key: &str) -> usize {
        self.places[Self::axis(key)]
    }

    pub(crate) fn value(&self, key: &str) -> &'a Value {
        let axis = Self::axis(key);
        &self.axes[axis].values[self.places[axis]]
    }

    pub(crate) fn parse<T: FromStr<Err: ToString>>(&self, key: &str) -> Result<T, SpecError> {
        self.value(key).parse()
    }

    pub(crate) fn number(&self, key: &str, range: RangeInclusive<u32>) -> Result<u32, SpecError> {
        self.value(key).number(range)
    }

    /// Returns the error for an impossible combination, without values that are `none` by default.
    pub(super) fn impossible(&self, keys: &[&'static str], reason: impl Into<String>) -> SpecError {
        let is_absent = |value: &Value| value.line == UNWRITTEN && value.text == NONE;
        let values = keys.iter().map(|key| self.value(key));
        let values: Vec<&Value> = values.filter(|value| !is_absent(value)).collect();
        impossible(&values, reason)
    }

    pub(crate) fn vcpus(&self, slots: u32, setting: &Setting<'_>) -> Result<VcpuCount, SpecError> {
        let level: Level = self.parse("vcpus")?;
        let max = match self.parse("guests")? {
            GuestKind::Sim => VcpuCount::MAX_SIMULATED,
            GuestKind::Payload | GuestKind::Linux => hypercalls::MAX_VCPUS,
        };
        let slots = setting.cpus.cpus().len().min(slots as usize);
        level.vcpus(slots, max).map_err(|error| self.value("vcpus").invalid(error))
    }

    pub(crate) fn slots(&self, setting: &Setting<'_>) -> Result<u32, SpecError> {
        let max = setting.cpus.cpus().len() as u32;
        self.number("slots", 1..=max).map_err(|_| {
            let value = self.value("slots");
            let why = format!(
                "'{}': 1 to {max}, because each slot needs a separate CPU ({})",
                value.text, setting.cpus
            );
            value.invalid(why)
        })
    }

    /// Parses the value of a key; None if it is `none_word`.
    pub(crate) fn unless<T: FromStr<Err: ToString>>(
        &self,
        key: &'static str,
        none_word: &str,
    ) -> Result<Option<T>, SpecError> {
        if self.value(key).text == none_word { Ok(None) } else { self.parse(key).map(Some) }
    }

    /// Parses the value of a key; None if it is [`NONE`].
    pub(crate) fn unless_none<T: FromStr<Err: ToString>>(
        &self,
        key: &'static str,
    ) -> Result<Option<T>, SpecError> {
        self.unless(key, NONE)
    }

    /// Whether the spec has the key.
    pub(crate) fn is_written(&self, key: &str) -> bool {
        self.value(key).line != UNWRITTEN
    }

    /// Returns the Linux version of this point's guest; unnamed for guests without a kernel.
    pub(crate) fn guest_kernel(&self, point: &Point) -> Result<GuestKernel, SpecError> {
        let requested = self.parse("guest-kernels")?;
        Ok(if point.guest == GuestKind::Linux { requested } else { GuestKernel::UNNAMED })
    }

    /// Returns the kernel of the emulated host, if the spec names any.
    pub(crate) fn host_kernel(&self) -> Result<Option<HostKernel>, SpecError> {
        self.unless("host-kernels", "")
    }

    /// Returns the expression for the rate that this point's program prints.
    pub(crate) fn rate(&self, point: &Point) -> Result<Option<RateExpression>, SpecError> {
        Ok(self.unless_none("rate")?.filter(|_| point.program().is_some()))
    }

    /// Returns the backend of this point's lock: off if the lock never halts.
    pub(crate) fn backend(&self, point: &Point) -> Result<PvBackend, SpecError> {
        let requested: PvBackend = self.parse("backends")?;
        if requested == PvBackend::Off {
            let why = "locks that do not halt have no backend, other locks always have one";
            return Err(self.value("backends").invalid(why));
        }
        let all_halt = point.guest == GuestKind::Payload && point.workload == "mixed";
        let halts_outside = self.handoff(point)?.restrict != 0;
        Ok(match (point.guest, point.lock.halts() || halts_outside || all_halt) {
            (_, false) => PvBackend::Off,
            (GuestKind::Linux, true) => kernels::only_backend(point.lock).unwrap_or(requested),
            (GuestKind::Payload | GuestKind::Sim, true) => requested,
        })
    }

    /// Returns the number of locks. Only spinlocks of the library can be used in any number.
    pub(crate) fn lock_count(&self, point: &Point) -> Result<u32, SpecError> {
        let requested = self.number("lock-count", 1..=MAX_LOCKS as u32)?;
        let is_of_library =
            point.guest != GuestKind::Linux && point.lock.family() == Family::Spinlock;
        if requested == 1 || is_of_library {
            return Ok(requested);
        }
        let reason = "only payloads and simulated guests support several spinlocks";
        Err(self.value("lock-count").invalid(reason))
    }

    /// Returns the handoff options, as far as this point's lock has them.
    pub(crate) fn handoff(&self, point: &Point) -> Result<HandoffSpec, SpecError> {
        let requested: HandoffSpec = self.parse("handoffs")?;
        let is_linux = point.guest == GuestKind::Linux;
        if is_linux && requested.restrict != 0 {
            return Err(self.value("handoffs").invalid(NO_GUEST_KERNEL));
        }
        Ok(match point.lock.family() {
            Family::Spinlock if point.lock == System::PvTicket => requested,
            Family::Spinlock => requested.without_pv(),
            _ => HandoffSpec::NONE,
        })
    }

    /// Returns the policy. For a simulated guest, `host` stands for a model of the host's scheduler.
    pub(crate) fn policy(&self, guest: GuestKind) -> Result<PolicySpec, SpecError> {
        let policy: PolicySpec = self.parse("policies")?;
        if guest == GuestKind::Sim && policy.is_host() {
            Ok(PolicySpec::simulated_host())
        } else {
            Ok(policy)
        }
    }

    /// Returns the driver of the schedule. The policy `host` needs no driver, so all drivers give the same
    /// point with it.
    pub(crate) fn driver(&self) -> Result<DriverKind, SpecError> {
        let driver: DriverKind = self.parse("drivers")?;
        let policy: PolicySpec = self.parse("policies")?;
        Ok(if policy.is_host() { DriverKind::User } else { driver })
    }

    /// Returns whether the host's scheduler is observed. Under other schedules both values give the same point.
    pub(crate) fn observe(&self, point: &Point) -> Result<bool, SpecError> {
        let value = self.value("observe");
        match value.text.as_str() {
            "on" => Ok(true),
            "off" => Ok(!point.policy.is_host()),
            _ => Err(value.invalid("must be on or off")),
        }
    }

    /// Returns this point's pause-loop exits: None for a simulation without them, and for KVM's own setting.
    pub(crate) fn ple(&self, point: &Point) -> Result<Option<PleWindow>, SpecError> {
        if !self.is_written("ple") {
            return Ok(None);
        }
        let window = self.parse("ple")?;
        Ok(Some(window).filter(|it| point.guest != GuestKind::Sim || *it != PleWindow::OFF))
    }

    /// Returns the writer of this point's steal time. Without a schedule of this program it is KVM.
    pub(crate) fn steal_time(&self, point: &Point) -> Result<StealSource, SpecError> {
        let default = point.default_steal();
        if !self.is_written("told") {
            return Ok(default);
        }
        let requested: StealSource = self.parse("told")?;
        Ok(match requested {
            StealSource::Schedule => default,
            requested if point.guest == GuestKind::Linux => requested,
            _ => StealSource::Kvm,
        })
    }

    fn point(&self, setting: &Setting<'_>) -> Result<Point, SpecError> {
        let mut point = Point::empty();
        axis::read(self, setting, &mut point)?;
        self.check(&point)?;
        Ok(point)
    }
}
