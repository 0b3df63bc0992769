//! Enumerations whose variants have names in options, specs and stores.

/// Implements `ALL`, `name`, `Display` and `FromStr` for an enumeration. `$unknown` is the error for unknown
/// words, with `{}` in place of the word.
#[macro_export]
macro_rules! names {
    ($kind:ident, $unknown:literal: $($variant:ident $name:literal),+) => {
        impl $kind {
            /// All variants in listing order.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name in options, specs and stores.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $kind {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                let known = Self::ALL.into_iter().find(|known| known.name() == word);
                known.ok_or_else(|| format!($unknown, word))
            }
        }
    };
}
