//! Names that users give to their own files.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// A parsed name, with the file that has it. An error is a reason.
pub type NameAndFile<Name> = Result<(Name, Option<PathBuf>), String>;

/// Maximum length of a name, for columns of tables.
const MAX_LENGTH: usize = 32;

/// All names so far. A process reads few of them, and keeps them.
static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// A name: 1 to 32 letters, digits, '.', '_', '+' and '-'. Points have it by value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(&'static str);

impl Label {
    /// Creates a label. Fails with the reason.
    pub fn new(name: &str) -> Result<Self, String> {
        if name.is_empty() || name.len() > MAX_LENGTH || !name.chars().all(is_plain) {
            return Err(format!(
                "invalid name '{name}': use 1 to {MAX_LENGTH} letters, digits, '.', '_', '+' and '-'"
            ));
        }
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(name) {
            return Ok(Self(known));
        }
        let name: &'static str = String::leak(name.to_owned());
        names.insert(name);
        Ok(Self(name))
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// Parses `NAME=PATH`, or a path, whose last component gives the name.
    pub fn with_file(text: &str) -> Result<(Self, PathBuf), String> {
        if let Some((name, path)) = text.split_once('=') {
            return Ok((Self::new(name)?, path.into()));
        }
        let last = Path::new(text).file_name().unwrap_or_default().to_string_lossy();
        let stem = last.strip_suffix(".deb").unwrap_or(&last);
        let plain: String = stem.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
        Ok((Self::new(&plain.chars().take(MAX_LENGTH).collect::<String>())?, text.into()))
    }
}

const fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-')
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Implements for an enumeration with the variant `Own(Label)`, besides the named ones: `ALL` without `Own`, `name`,
/// `Display`, `FromStr` for stores, and `with_file` for options and specs.
#[macro_export]
macro_rules! names_or_own {
    ($kind:ident: $($variant:ident $name:literal),+) => {
        impl $kind {
            /// All variants but `Own`, in listing order.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name in options, specs and stores.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                    Self::Own(label) => label.name(),
                }
            }

            /// Parses a value of an option or a spec: a name, or the user's file as `NAME=PATH` or `PATH`.
            pub fn with_file(text: &str) -> $crate::label::NameAndFile<Self> {
                if let Some(known) = Self::known(text) {
                    return Ok((known, None));
                }
                let (label, file) = $crate::label::Label::with_file(text)?;
                match Self::known(label.name()) {
                    Some(_) => Err(format!("'{text}': {label} is taken, name the file otherwise")),
                    None => Ok((Self::Own(label), Some(file))),
                }
            }

            fn known(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|known| known.name() == word)
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
                Self::known(word).map_or_else(|| $crate::label::Label::new(word).map(Self::Own), Ok)
            }
        }
    };
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Kernel {
        Six,
        Own(Label),
    }

    names_or_own!(Kernel: Six "6");

    #[test]
    fn files_have_names() {
        let own = |name| Kernel::Own(Label::new(name).unwrap());
        for (text, expected) in [
            ("6", Ok((Kernel::Six, None))),
            ("mine=/a b/vmlinux", Ok((own("mine"), Some("/a b/vmlinux")))),
            ("m=a=b", Ok((own("m"), Some("a=b")))),
            ("../linux/bzImage", Ok((own("bzImage"), Some("../linux/bzImage")))),
            ("tree/", Ok((own("tree"), Some("tree/")))),
            ("x_6.1~rc1 y.deb", Ok((own("x_6.1-rc1-y"), Some("x_6.1~rc1 y.deb")))),
            ("6=/a", Err("'6=/a': 6 is taken, name the file otherwise")),
            ("/boot/6", Err("'/boot/6': 6 is taken, name the file otherwise")),
            ("=/a", Err("invalid name ''")),
            ("a b=/a", Err("invalid name 'a b'")),
            ("..", Err("invalid name ''")),
        ] {
            match (Kernel::with_file(text), expected) {
                (Err(error), Err(expected)) => assert!(error.starts_with(expected), "{error}"),
                (found, expected) => {
                    let expected = expected.map(|(kernel, file)| (kernel, file.map(PathBuf::from)));
                    assert_eq!(found, expected.map_err(str::to_owned), "{text}");
                }
            }
        }
        assert_eq!("mine".parse(), Ok(own("mine")));
        assert_eq!(own("mine").to_string(), "mine");
        assert!("a/b".parse::<Kernel>().is_err());
    }
}
