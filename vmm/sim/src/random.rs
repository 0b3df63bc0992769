//! Random durations, identical on every platform.

use base::rng::SplitMix64;

use crate::time::Picos;

/// A random or fixed duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Constant.
    Fixed(Picos),
    /// Exponentially distributed with this mean.
    Exponential(Picos),
    /// Uniformly distributed from zero to twice this mean.
    Uniform(Picos),
    /// A fixed number of increments, each of about the same duration: uniformly distributed within
    /// a sixteenth of this mean (`doctor` accepts up to a tenth as steady).
    Steady(Picos),
}

impl Span {
    /// The mean.
    pub const fn mean(self) -> Picos {
        match self {
            Self::Fixed(span)
            | Self::Exponential(span)
            | Self::Uniform(span)
            | Self::Steady(span) => span,
        }
    }

    #[inline]
    pub(crate) fn draw(self, rng: &mut SplitMix64) -> Picos {
        match self {
            Self::Fixed(span) => span,
            Self::Exponential(mean) => Picos((mean.0 as f64 * exponential(rng)) as u64),
            Self::Uniform(mean) => Picos(rng.below(2 * mean.0 as usize + 1) as u64),
            Self::Steady(mean) => {
                let spread = mean.0 / 16;
                Picos(mean.0 - spread + rng.below(2 * spread as usize + 1) as u64)
            }
        }
    }
}

/// An exponentially distributed number with mean 1.
pub(crate) fn exponential(rng: &mut SplitMix64) -> f64 {
    // In (0, 1]: 53 random bits plus 1, to exclude zero.
    let unit = ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    -ln(unit)
}

/// Leading fraction bits that select an entry of [`PIECES`].
const PIECE_BITS: u32 = 7;

/// For each piece of `[1, 2)`: the reciprocal of its start, and the logarithm of the start.
static PIECES: [(f64, f64); 1 << PIECE_BITS] = {
    let mut pieces = [(0.0, 0.0); 1 << PIECE_BITS];
    let mut at = 0;
    while at < pieces.len() {
        // Logarithm of the rounded reciprocal, so that its rounding error cancels.
        let inverse = 1.0 / (1.0 + at as f64 / pieces.len() as f64);
        pieces[at] = (inverse, -ln_of_piece(inverse));
        at += 1;
    }
    pieces
};

/// Natural logarithm of a number from 0.5 to 1.
const fn ln_of_piece(x: f64) -> f64 {
    // ln(x) = 2 artanh(s) with |s| <= 1/3: the terms from s^35 on are below 1e-17.
    let s = (x - 1.0) / (x + 1.0);
    let (mut sum, mut power, mut odd) = (0.0, s, 1.0);
    while odd < 35.0 {
        sum += power / odd;
        power *= s * s;
        odd += 2.0;
    }
    2.0 * sum
}

/// The natural logarithm of a positive normal number to ten digits. It uses only arithmetic that
/// IEEE 754 defines exactly. The platform's math library differs between versions, and simulations
/// would differ with it.
#[inline]
fn ln(x: f64) -> f64 {
    const LN_2: f64 = std::f64::consts::LN_2;
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let fraction = bits & ((1 << 52) - 1);
    let (inverse, start_log) = PIECES[(fraction >> (52 - PIECE_BITS)) as usize];
    // Relative distance from the start of its piece: r < 1/128. There is no division on this path.
    let r = f64::from_bits(fraction | 1023 << 52) * inverse - 1.0;
    let log_rest = r - r * r * (0.5 - r * (1.0 / 3.0 - r * 0.25));
    exponent as f64 * LN_2 + (start_log + log_rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ln_matches_std() {
        let mut rng = SplitMix64::new(5);
        for _ in 0..100_000 {
            let x = (rng.next_u64() >> 11) as f64 / 1e9 + 1e-12;
            assert!((ln(x) - x.ln()).abs() <= 1e-10, "{x}");
        }
        assert_eq!(ln(1.0), 0.0);
    }

    #[test]
    fn spans_have_their_mean_and_variance() {
        let mean = Picos(1_000_000);
        let squares = |span: Span| {
            let mut rng = SplitMix64::new(9);
            let draw = |_| span.draw(&mut rng).0 as f64 / 1e6;
            let samples: Vec<f64> = (0..400_000).map(draw).collect();
            let mean = samples.iter().sum::<f64>() / samples.len() as f64;
            (mean, samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / samples.len() as f64)
        };
        for (span, variance) in [
            (Span::Fixed(mean), 0.0),
            (Span::Exponential(mean), 1.0),
            (Span::Uniform(mean), 1.0 / 3.0),
            (Span::Steady(mean), 1.0 / 768.0),
        ] {
            let (drawn, squared) = squares(span);
            assert!((drawn - 1.0).abs() < 0.01, "{span:?}: mean {drawn}");
            assert!((squared - variance).abs() < 0.01, "{span:?}: variance {squared}");
        }
    }
}
