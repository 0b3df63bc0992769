//! Which combinations are not to be run.

use super::{
    Setting,
    error::SpecError,
    form::{Exclude, Value},
    matrix::Combination,
};

/// Does an exclude match? Those that do are marked as used.
pub(super) fn is_excluded(
    combination: &Combination<'_>,
    excludes: &[Exclude],
    setting: &Setting<'_>,
    used: &mut [bool],
) -> Result<bool, SpecError> {
    let mut any = false;
    for (exclude, used) in excludes.iter().zip(used) {
        let matches = exclude.axes.iter().all(|axis| {
            let value = combination.value(axis.key);
            axis.values.iter().any(|one| is_same(axis.key, &one.text, value, combination, setting))
        });
        *used |= matches;
        any |= matches;
    }
    Ok(any)
}

/// Do both mean the same? `4` and `2x` may, on two slots.
fn is_same(
    key: &str,
    text: &str,
    value: &Value,
    combination: &Combination<'_>,
    setting: &Setting<'_>,
) -> bool {
    if text == value.text {
        return true;
    }
    if key == "vcpus" {
        let slots = combination.slots(setting);
        let vcpus = slots.and_then(|slots| combination.vcpus(slots, setting));
        return vcpus.is_ok_and(|vcpus| vcpus.to_string() == text);
    }
    match (text.parse::<f64>(), value.text.parse::<f64>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
