//! Counts in sentences: `1 vCPU`, `2 vCPUs`, `0 entries`.

use std::fmt::{self, Display};

/// A number with its noun.
#[derive(Debug, Clone, Copy)]
pub struct CountedNoun<'a, N> {
    number: N,
    noun: Noun<'a>,
}

/// A noun in the singular or the plural.
#[derive(Debug, Clone, Copy)]
pub struct Noun<'a> {
    singular: &'a str,
    is_one: bool,
}

/// Returns a number with its noun. Only the last word of `singular` gets a plural.
pub fn count<N: Copy + Display + PartialEq + From<u8>>(
    number: N,
    singular: &str,
) -> CountedNoun<'_, N> {
    CountedNoun { number, noun: noun(number, singular) }
}

/// Returns the noun alone, for a number that is formatted separately.
pub fn noun<N: PartialEq + From<u8>>(number: N, singular: &str) -> Noun<'_> {
    Noun { singular, is_one: number == N::from(1) }
}

/// Formats a range that begins with one: `1 CPU`, `1 to 80 CPUs`.
pub fn one_to<N: Copy + Display + PartialEq + From<u8>>(max: N, singular: &str) -> String {
    if max == N::from(1) {
        count(max, singular).to_string()
    } else {
        format!("1 to {}", count(max, singular))
    }
}

/// Returns the form that agrees with the number, such as the verb `is` or `are`.
pub fn agree<N: PartialEq + From<u8>>(
    number: N,
    singular: &'static str,
    plural: &'static str,
) -> &'static str {
    if number == N::from(1) { singular } else { plural }
}

impl<N: Display> Display for CountedNoun<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, noun } = self;
        // A width applies to the number.
        number.fmt(f)?;
        write!(f, " {noun}")
    }
}

impl Display for Noun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { singular, is_one } = *self;
        let before_y = || singular.strip_suffix('y').filter(|stem| !stem.ends_with(is_vowel));
        if is_one {
            f.write_str(singular)
        } else if let Some(stem) = before_y() {
            write!(f, "{stem}ies")
        } else if ["s", "x", "ch", "sh"].iter().any(|end| singular.ends_with(end)) {
            write!(f, "{singular}es")
        } else {
            write!(f, "{singular}s")
        }
    }
}

const fn is_vowel(letter: char) -> bool {
    matches!(letter, 'a' | 'e' | 'i' | 'o' | 'u')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let texts = [0_usize, 1, 2].map(|number| count(number, "vCPU").to_string());
        assert_eq!(texts, ["0 vCPUs", "1 vCPU", "2 vCPUs"]);
        assert_eq!(count(1.0, "lock holder").to_string(), "1 lock holder");
        assert_eq!(count(1.5, "lock holder").to_string(), "1.5 lock holders");
        assert_eq!(format!("{:>4}", count(1_u64, "row")), "   1 row");
    }

    #[test]
    fn plurals_follow_the_ending() {
        for (singular, plural) in [
            ("switch", "switches"),
            ("process", "processes"),
            ("history", "histories"),
            ("key", "keys"),
            ("CPU", "CPUs"),
        ] {
            assert_eq!(noun(2_u32, singular).to_string(), plural);
            assert_eq!(noun(1_u32, singular).to_string(), singular);
        }
    }

    #[test]
    fn ranges_of_one_are_one_number() {
        assert_eq!(
            [1_usize, 2, 80].map(|max| one_to(max, "CPU")),
            ["1 CPU", "1 to 2 CPUs", "1 to 80 CPUs"]
        );
    }

    #[test]
    fn verbs_agree() {
        let verbs = [0_u32, 1, 2].map(|number| agree(number, "is", "are"));
        assert_eq!(verbs, ["are", "is", "are"]);
    }
}
