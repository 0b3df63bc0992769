//! Axes that a spec names for the charts of its report.

use super::{
    error::{SpecError, SpecFault},
    form::Value,
};

/// Axes by their keys in a spec. For None, the report chooses the axes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Charts {
    /// `x`: the axis along which charts draw.
    pub x: Option<&'static str>,
    /// `facets`: each combination of their values has a separate chart; may be empty.
    pub facets: Option<Vec<&'static str>>,
}

/// Keys of a spec that name axes of charts.
pub(super) const KEYS: [&str; 2] = ["x", "facets"];

impl Charts {
    /// Sets `x` or `facets` to the axes that the spec lists.
    pub(super) fn set(
        &mut self,
        key: &'static str,
        line: usize,
        values: &[Value],
    ) -> Result<(), SpecError> {
        let axes: Vec<_> = values.iter().map(|value| axis(key, value)).collect::<Result<_, _>>()?;
        let is_second = |ix: &usize| axes[..*ix].contains(&axes[*ix]);
        if let Some(second) = (0..axes.len()).find(is_second) {
            let reason = format!("'{}' is named twice", axes[second]);
            return Err(SpecFault::Value { name: key.into(), why: reason }.at(values[second].line));
        }
        match (key, axes.as_slice()) {
            ("facets", _) => self.facets = Some(axes),
            (_, [axis]) => self.x = Some(*axis),
            (_, several) => {
                let reason = format!("{} axes: a chart has one", several.len());
                return Err(SpecFault::Value { name: key.into(), why: reason }.at(line));
            }
        }
        let facets = self.facets.iter().flatten();
        match self.x.filter(|x| facets.into_iter().any(|facet| facet == x)) {
            Some(both) => {
                let reason = format!("'{both}' is in both x and facets: name it in one of them");
                Err(SpecFault::Value { name: key.into(), why: reason }.at(line))
            }
            None => Ok(()),
        }
    }
}

/// Returns the axes that charts can have: all but the seeds, whose samples are pooled.
fn allowed() -> impl Iterator<Item = &'static str> {
    crate::axis::KEYS.into_iter().filter(|key| *key != "seeds")
}

fn axis(key: &'static str, value: &Value) -> Result<&'static str, SpecError> {
    allowed().find(|axis| *axis == value.text).ok_or_else(|| {
        let keys: Vec<&str> = allowed().collect();
        let reason = format!("unknown axis '{}'; there are {}", value.text, keys.join(", "));
        SpecFault::Value { name: key.into(), why: reason }.at(value.line)
    })
}
