//! Axes: positions of values, and ticks.

use super::super::si::{percent, ratio, si};
use base::units::Nanos;

/// Maximum length, in decades, of a logarithmic axis with a grid line at every power of ten.
const MAX_DECADES: f64 = 8.0;

/// Format of an axis' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisUnit {
    /// `1.2M`.
    Count,
    /// `2.00x`.
    Ratio,
    /// `50 %`.
    Share,
    /// `20us`.
    Time,
}

impl AxisUnit {
    /// A value as short text.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Count => trim_zeros(&si(value)),
            Self::Ratio => trim_zeros(&ratio(value)),
            Self::Share if value == 0.0 => "0 %".to_owned(),
            Self::Share => percent(value).replace(".0 %", " %").replace("0.00 %", "0 %"),
            Self::Time => time(value),
        }
    }
}

/// Nanoseconds as text in three digits.
pub fn time(nanos: f64) -> String {
    let rounded = match nanos {
        n if n >= 100.0 => 10f64.powf((n.log10() - 2.0).floor()),
        _ => 1.0,
    };
    Nanos(((nanos / rounded).round() * rounded) as u64).to_string()
}

/// Drops trailing zeros: `1.00k` becomes `1k`.
fn trim_zeros(text: &str) -> String {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    if number.contains('.') {
        format!("{}{suffix}", number.trim_end_matches('0').trim_end_matches('.'))
    } else {
        text.to_owned()
    }
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// The name of the axis, with its unit.
    pub label: String,
    /// Format of the values.
    pub unit: AxisUnit,
    log: bool,
    low: f64,
    high: f64,
    /// Values with a grid line.
    pub ticks: Vec<f64>,
}

impl Scale {
    /// A logarithmic axis for these values. Nonpositive values are drawn at its lower end.
    pub fn log(label: &str, unit: AxisUnit, values: impl Iterator<Item = f64>) -> Self {
        let values = values.filter(|value| value.is_finite() && *value > f64::MIN_POSITIVE);
        let (least, most) = ends(values).unwrap_or((1.0, 10.0));
        let decades = most.log10() - least.log10();
        let (low, high, ticks) = if decades >= 1.0 {
            let ends = (least.log10().floor() as i32, most.log10().ceil() as i32);
            let (low, high) = ((least / 1.3).max(f64::MIN_POSITIVE), (most * 1.3).min(f64::MAX));
            (low, high, decades_between(ends, decades))
        } else {
            let (low, high) = ((least / 1.15).max(f64::MIN_POSITIVE), (most * 1.15).min(f64::MAX));
            (low, high, round_ticks(low, high))
        };
        Self { label: label.to_owned(), unit, log: true, low, high, ticks }
    }

    /// A logarithmic axis whose ticks are the values themselves.
    pub fn steps(label: &str, unit: AxisUnit, values: impl Iterator<Item = f64>) -> Self {
        let mut ticks: Vec<f64> =
            values.filter(|value| value.is_finite() && *value > f64::MIN_POSITIVE).collect();
        ticks.sort_unstable_by(f64::total_cmp);
        ticks.dedup();
        let (low, high) = ends(ticks.iter().copied()).unwrap_or((1.0, 1.0));
        let room = ((high.ln() - low.ln()) * 0.08).exp().max(1.12);
        let high = (high * room).min(f64::MAX);
        let low = (low / room).max(f64::MIN_POSITIVE);
        Self { label: label.to_owned(), unit, log: true, low, high, ticks }
    }

    /// A linear axis from 0 to 100 %.
    pub fn share(label: &str) -> Self {
        let ticks = vec![0.0, 0.25, 0.5, 0.75, 1.0];
        Self {
            label: label.to_owned(),
            unit: AxisUnit::Share,
            log: false,
            low: 0.0,
            high: 1.0,
            ticks,
        }
    }

    /// The position of a value: 0 at the lower end, 1 at the upper, clamped.
    pub fn position(&self, value: f64) -> f64 {
        let place = if self.log {
            let from = self.low.ln();
            (value.max(self.low).ln() - from) / (self.high.ln() - from)
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// The value at a position.
    pub fn value_at(&self, place: f64) -> f64 {
        if self.log {
            let (from, to) = (self.low.ln(), self.high.ln());
            (from + (to - from) * place).exp()
        } else {
            self.low + (self.high - self.low) * place
        }
    }

    /// Whether a value is within the axis.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

/// Powers of ten, and 2 and 5 times these if there are few decades. Some are outside the axis.
fn decades_between((low, high): (i32, i32), decades: f64) -> Vec<f64> {
    let step = (f64::from(high - low) / MAX_DECADES).ceil().max(1.0) as usize;
    let steps: &[f64] = if decades < 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let powers = (low..=high).step_by(step).map(|power| 10f64.powi(power));
    powers.flat_map(|power| steps.iter().map(move |step| step * power)).collect()
}

/// Round values between two ends, in steps of 1, 2 or 5 times a power of ten.
fn round_ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let unit = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * unit);
    let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(rough);
    let first = (low / step).ceil();
    let ticks = (0..12).map(|n| (first + f64::from(n)) * step);
    ticks.filter(|tick| tick.is_finite() && (low..=high).contains(tick)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::si::spaced;

    #[test]
    fn ticks_are_decades_or_round_steps() {
        let wide = Scale::log("", AxisUnit::Count, [0.0, 420.0, 6.2e6].into_iter());
        let ticks: Vec<String> = wide.ticks.iter().map(|tick| wide.unit.show(*tick)).collect();
        assert_eq!(ticks, ["100", "1k", "10k", "100k", "1M", "10M"]);
        assert_eq!((wide.position(0.0), wide.position(1e7)), (0.0, 1.0));
        assert!((wide.position(wide.value_at(0.25)) - 0.25).abs() < 1e-9 && !wide.contains(100.0));
        let close = Scale::log("", AxisUnit::Ratio, [0.9, 1.0, 1.3].into_iter());
        let ticks: Vec<String> = close.ticks.iter().map(|tick| close.unit.show(*tick)).collect();
        assert_eq!(ticks, ["0.8x", "1x", "1.2x", "1.4x"]);
        let ticks = [1e-4, 0.01, 0.1, 1.0, 100.0].map(|tick| AxisUnit::Ratio.show(tick));
        assert_eq!(ticks.map(|tick| spaced(&tick)), ["1/10 000", "1/100", "0.1x", "1x", "100x"]);
        let shares = Scale::share("");
        let ticks: Vec<String> = shares.ticks.iter().map(|tick| shares.unit.show(*tick)).collect();
        assert_eq!(ticks, ["0 %", "25 %", "50 %", "75 %", "100 %"]);
    }

    #[test]
    fn times_are_rounded() {
        let times = [0.0, 7.4, 1_234.0, 25_061.0, 4_000_000.0].map(time);
        assert_eq!(times, ["0ns", "7ns", "1.23us", "25.1us", "4ms"]);
    }

    proptest! {
        #[test]
        fn no_values_break_a_scale(values: Vec<f64>, value: f64, place in 0.0..=1.0) {
            let value_iter = || values.iter().copied();
            let scales = [
                Scale::log("", AxisUnit::Count, value_iter()),
                Scale::steps("", AxisUnit::Ratio, value_iter()),
            ];
            for scale in scales {
                prop_assert!((0.0..=1.0).contains(&scale.position(value)));
                prop_assert!(!scale.value_at(place).is_nan());
                prop_assert!(scale.unit.show(value.abs()).len() < 40);
            }
        }
    }
}
