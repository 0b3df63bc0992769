//! Figures as short text.

/// Shown for zero divided by zero.
const NONE: &str = "-";

/// Three significant digits and a suffix: `18.2M`, `7.81k`, `812`, `0.250`. At most six characters
/// for values from 0 to 10^15.
pub fn si(value: f64) -> String {
    if value.is_nan() {
        return NONE.into();
    }
    if !value.is_finite() {
        return "unbounded".into();
    }
    if value == 0.0 {
        return "0".into();
    }
    if value >= 1e15 {
        return format!("{value:.1e}");
    }
    for (unit, suffix) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")] {
        // 999.5 would round to four digits.
        if value >= unit * 0.9995 {
            return format!("{}{suffix}", three_digits(value / unit));
        }
    }
    format!("{value:.3}")
}

fn three_digits(value: f64) -> String {
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// No-break space between thousands, so that no line ends within a number; see [`spaced`].
const NBSP: char = '\u{a0}';

/// Below this, a ratio is written as 1/n. From here on, [`ratio`] has two decimals.
const MIN_DECIMAL: f64 = 0.0995;

/// A ratio in three significant digits, two below 1: `1/33 000`, `0.98x`, `12.3x`, `24800x`.
pub fn ratio(value: f64) -> String {
    if value.is_nan() {
        return NONE.into();
    }
    if !value.is_finite() {
        return "unbounded".into();
    }
    if value >= 1e9 {
        return format!("{value:.1e}x");
    }
    if value >= 999.5 {
        let unit = 10f64.powf(value.log10().floor() - 2.0);
        return format!("{:.0}x", (value / unit).round() * unit);
    }
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        0.0 => return "0x".into(),
        v if v < MIN_DECIMAL => return format!("1/{}", grouped(two_digits(1.0 / v))),
        _ => 2,
    };
    format!("{value:.decimals$}x")
}

/// A number of at least ten, rounded to two digits.
fn two_digits(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor() - 1.0);
    (value / unit).round() * unit
}

/// A whole number, with separated thousands from 10 000 on.
fn grouped(value: f64) -> String {
    if value >= 1e9 {
        return format!("{value:.1e}");
    }
    let digits = format!("{value:.0}");
    if digits.len() <= 4 {
        return digits;
    }
    let mut text = String::new();
    for (ix, digit) in digits.chars().enumerate() {
        if ix > 0 && (digits.len() - ix).is_multiple_of(3) {
            text.push(NBSP);
        }
        text.push(digit);
    }
    text
}

/// The text with ordinary spaces, for use after line breaking.
pub fn spaced(text: &str) -> String {
    text.replace(NBSP, " ")
}

/// A share in per cent: `0 %`, `0.03 %`, `65.3 %`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p.is_nan() => NONE.into(),
        0.0 => "0 %".into(),
        p if p < 0.01 => "<.01 %".into(),
        p if p < 9.995 => format!("{p:.2} %"),
        p if p >= 1e9 => format!("{p:.1e} %"),
        p => format!("{p:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: zero divided by zero was shown as "unbounded".
    #[test]
    fn nan_is_a_dash() {
        assert_eq!([si, ratio, percent].map(|show| show(f64::NAN)), ["-"; 3]);
        assert_eq!([si, ratio].map(|show| show(f64::INFINITY)), ["unbounded"; 2]);
    }

    #[test]
    fn figures_keep_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.250"),
            (1.0, "1.00"),
            (81.25, "81.2"),
            (812.0, "812"),
            (999.6, "1.00k"),
            (7_813.0, "7.81k"),
            (99_960.0, "100k"),
            (18_210_000.0, "18.2M"),
            (2.5e9, "2.50G"),
            (f64::INFINITY, "unbounded"),
            (1e200, "1.0e200"),
        ] {
            assert_eq!(si(value), text, "{value}");
        }
    }

    #[test]
    fn ratios_and_shares() {
        let ratios = [0.0, 0.1, 0.984, 12.34, 148.2].map(ratio);
        assert_eq!(ratios, ["0x", "0.10x", "0.98x", "12.3x", "148x"]);
        assert_eq!(
            [24_763.0, 1e300, f64::INFINITY].map(ratio),
            ["24800x", "1.0e300x", "unbounded"]
        );
        // Regression: a fall to 1/33 000 was shown as "3.0e-5x".
        let small = [0.099, 0.0141, 0.00234, 1.0 / 9_960.0, 3.0e-5, 2.5e-7, 1e-300].map(ratio);
        let expected =
            ["1/10", "1/71", "1/430", "1/10 000", "1/33 000", "1/4 000 000", "1/1.0e300"];
        assert!(!small[4].contains(' '), "a line may end there: {small:?}");
        assert_eq!(small.map(|text| spaced(&text)), expected);
        let shares = [0.0, 0.00001, 0.0003, 0.6534, 1.0].map(percent);
        assert_eq!(shares, ["0 %", "<.01 %", "0.03 %", "65.3 %", "100.0 %"]);
    }
}
