//! Correction of p-values for multiple comparisons: among many, some differ by chance.

/// Returns the p-values after Holm's correction (1979), in their original order. If corrected
/// values below 0.05 are called significant, the probability of any false positive is at most 0.05,
/// regardless of dependencies between the comparisons.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut highest = 0.0f64;
    for (rank, index) in order.into_iter().enumerate() {
        highest = highest.max((p.len() - rank) as f64 * p[index]).min(1.0);
        adjusted[index] = highest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn correction_raises_p_and_keeps_the_order(p in prop::collection::vec(0.0..=1.0, 0..40)) {
            let adjusted = holm(&p);
            for (p, adjusted) in p.iter().zip(&adjusted) {
                prop_assert!(p <= adjusted && *adjusted <= 1.0);
            }
            for (a, b) in (0..p.len()).flat_map(|i| (0..i).map(move |j| (i, j))) {
                if p[a] < p[b] {
                    prop_assert!(adjusted[a] <= adjusted[b]);
                }
            }
        }
    }
}
