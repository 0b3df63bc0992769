//! Excludes: combinations that are not run.

use std::collections::HashMap;

use super::{
    Setting,
    error::{SpecError, SpecFault},
    form::{Axis, Exclude},
    matrix::Combination,
};

/// Maximum number of excludes in a spec: each is one bit of a [`Mask`].
pub const MAX_EXCLUDES: usize = 128;

/// A set of excludes.
type Mask = u128;

/// The excludes of a spec, prepared for the axes of its matrix. The excludes that a value can match
/// are computed once, so a combination costs a few bit operations, regardless of the number of values
/// in excludes.
#[derive(Debug)]
pub(super) struct Excludes {
    /// By axis and value: excludes that the value can match.
    value_masks: Vec<Vec<Mask>>,
    /// The values of `vcpus` in the excludes. The number of vCPUs for a ratio depends on the slots.
    vcpus: ExcludedValues,
    /// By the indices of slots and vCPUs: excludes that the number of vCPUs can match.
    count_masks: HashMap<(usize, usize), Mask>,
    /// Excludes that some combination has matched.
    used: Mask,
}

/// Values of one key in the excludes.
#[derive(Debug, Default)]
struct ExcludedValues {
    /// Excludes without the key: any value matches them.
    unmentioned: Mask,
    texts: HashMap<String, Mask>,
    /// Keyed by the bits of the value, so that `4` equals `4.0`.
    numbers: HashMap<u64, Mask>,
}

impl ExcludedValues {
    fn new(key: &str, excludes: &[Exclude]) -> Self {
        let mut written = Self::default();
        for (ix, exclude) in excludes.iter().enumerate() {
            let bit = 1 << ix;
            let Some(axis) = exclude.axes.iter().find(|axis| axis.key == key) else {
                written.unmentioned |= bit;
                continue;
            };
            for value in &axis.values {
                *written.texts.entry(value.text.clone()).or_default() |= bit;
                if let Some(number) = number(&value.text) {
                    *written.numbers.entry(number).or_default() |= bit;
                }
            }
        }
        written
    }

    fn text(&self, text: &str) -> Mask {
        self.unmentioned | self.texts.get(text).copied().unwrap_or_default()
    }

    fn number(&self, text: &str) -> Mask {
        number(text).and_then(|number| self.numbers.get(&number)).copied().unwrap_or_default()
    }
}

/// Returns the value's bits, which are the same for equal numbers.
fn number(text: &str) -> Option<u64> {
    // Maps -0.0 to 0.0.
    text.parse::<f64>()
        .ok()
        .filter(|number| !number.is_nan())
        .map(|number| (number + 0.0).to_bits())
}

impl Excludes {
    pub(super) fn new(excludes: &[Exclude], axes: &[Axis]) -> Result<Self, SpecError> {
        if let Some(first) = excludes.get(MAX_EXCLUDES) {
            return Err(SpecFault::TooManyExcludes(excludes.len()).at(first.line));
        }
        let masks = axes.iter().map(|axis| {
            let written = ExcludedValues::new(axis.key, excludes);
            let mask_of = |text: &str| match axis.key {
                "vcpus" => Mask::MAX,
                _ => written.text(text) | written.number(text),
            };
            axis.values.iter().map(|value| mask_of(&value.text)).collect()
        });
        Ok(Self {
            value_masks: masks.collect(),
            vcpus: ExcludedValues::new("vcpus", excludes),
            count_masks: HashMap::new(),
            used: 0,
        })
    }

    /// Whether any exclude matches. Marks the matching excludes as used.
    pub(super) fn match_any(
        &mut self,
        combination: &Combination<'_>,
        setting: &Setting<'_>,
    ) -> bool {
        let masks = self.value_masks.iter().zip(combination.places());
        let mut matching = masks.fold(Mask::MAX, |mask, (masks, place)| mask & masks[*place]);
        if matching != 0 {
            matching &= self.count_mask(combination, setting);
        }
        self.used |= matching;
        matching != 0
    }

    /// Returns the excludes that the number of vCPUs can match: `4` and `2x` are equal on two slots.
    fn count_mask(&mut self, combination: &Combination<'_>, setting: &Setting<'_>) -> Mask {
        let written = &self.vcpus;
        let places = (combination.place("slots"), combination.place("vcpus"));
        *self.count_masks.entry(places).or_insert_with(|| {
            let slots = combination.slots(setting);
            let vcpus = slots.and_then(|slots| combination.vcpus(slots, setting));
            let counted = vcpus.map_or(0, |vcpus| written.text(&vcpus.to_string()));
            written.text(&combination.value("vcpus").text) | counted
        })
    }

    /// Returns the first exclude that has matched nothing.
    pub(super) fn unused<'a>(&self, excludes: &'a [Exclude]) -> Option<&'a Exclude> {
        excludes
            .iter()
            .enumerate()
            .find(|(ix, _)| self.used & 1 << ix == 0)
            .map(|(_, exclude)| exclude)
    }
}

const _: () = assert!(MAX_EXCLUDES == Mask::BITS as usize);
