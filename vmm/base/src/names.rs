//! Enumerations whose variants have names in options, specs and stores.

/// Gives an enumeration `ALL` and `name`, and makes it print and parse as its name. The text is the error for other
/// words; `{}` in it is the word.
#[macro_export]
macro_rules! names {
    ($kind:ident, $unknown:literal: $($variant:ident $name:literal),+) => {
        impl $kind {
            /// All, in the order in which they are listed.
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
