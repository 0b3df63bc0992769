//! Random spans, the same on every platform.

use base::rng::SplitMix64;

use crate::time::Picos;

/// A random or fixed span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Always this long.
    Fixed(Picos),
    /// Exponentially distributed, with this mean.
    Exponential(Picos),
    /// Uniformly distributed, from zero to twice this mean.
    Uniform(Picos),
}

impl Span {
    /// The mean.
    pub const fn mean(self) -> Picos {
        match self {
            Self::Fixed(span) | Self::Exponential(span) | Self::Uniform(span) => span,
        }
    }

    /// Draws one.
    #[inline]
    pub(crate) fn draw(self, rng: &mut SplitMix64) -> Picos {
        match self {
            Self::Fixed(span) => span,
            Self::Exponential(mean) => Picos((mean.0 as f64 * exponential(rng)) as u64),
            Self::Uniform(mean) => Picos(rng.below(2 * mean.0 as usize + 1) as u64),
        }
    }
}

/// An exponentially distributed number with mean 1.
pub(crate) fn exponential(rng: &mut SplitMix64) -> f64 {
    // In (0, 1]: 53 bits and one more, so that zero cannot be drawn.
    let unit = ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    -ln(unit)
}

/// The natural logarithm of a positive normal number, to ten digits, by arithmetic that IEEE 754 defines to the
/// bit: that of a platform's mathematical library differs between versions, and with it a
/// simulation would.
fn ln(x: f64) -> f64 {
    const LN_2: f64 = std::f64::consts::LN_2;
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut m = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    // ln(m) = 2 artanh((m-1)/(m+1)), with |s| < 0.172.
    let s = (m - 1.0) / (m + 1.0);
    let [q, qq] = [s * s, s * s * (s * s)];
    // To 1e-11, in an order with few dependent steps.
    let sum = (1.0 + q * (1.0 / 3.0))
        + qq * ((1.0 / 5.0 + q * (1.0 / 7.0)) + qq * (1.0 / 9.0 + q * (1.0 / 11.0)));
    exponent as f64 * LN_2 + 2.0 * s * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_that_of_the_library() {
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
            let of = |_| span.draw(&mut rng).0 as f64 / 1e6;
            let all: Vec<f64> = (0..400_000).map(of).collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            (mean, all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64)
        };
        for (span, variance) in [
            (Span::Fixed(mean), 0.0),
            (Span::Exponential(mean), 1.0),
            (Span::Uniform(mean), 1.0 / 3.0),
        ] {
            let (drawn, squared) = squares(span);
            assert!((drawn - 1.0).abs() < 0.01, "{span:?}: mean {drawn}");
            assert!((squared - variance).abs() < 0.01, "{span:?}: variance {squared}");
        }
    }
}
