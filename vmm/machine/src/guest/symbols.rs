//! Symbols in a kernel's System.map.

use super::linux::is_in_image;

/// Parses lines with address, type letter and name (nm(1)).
pub(super) fn lines(system_map: &str) -> impl Iterator<Item = (u64, &str)> {
    system_map.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((u64::from_str_radix(words.next()?, 16).ok()?, words.nth(1)?))
    })
}

/// The symbols of a kernel's image, by address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbols {
    /// Sorted by address. For several symbols at one address, only the first in the file.
    sorted: Vec<(u64, String)>,
}

impl Symbols {
    /// Parses the text of a System.map. None if no symbol is in the image, i.e. for any other file.
    pub fn parse(system_map: &str) -> Option<Self> {
        let image_symbols = lines(system_map).filter(|(address, _)| is_in_image(*address));
        let mut sorted: Vec<_> =
            image_symbols.map(|(address, name)| (address, name.to_owned())).collect();
        sorted.sort_by_key(|(address, _)| *address);
        sorted.dedup_by_key(|(address, _)| *address);
        (!sorted.is_empty()).then_some(Self { sorted })
    }

    /// Returns the symbol at or below an address, with the offset. None outside the image, which
    /// ends at its last symbol.
    pub fn name(&self, address: u64) -> Option<String> {
        let after = self.sorted.partition_point(|(start, _)| *start <= address);
        let (start, name) = self.sorted.get(after.checked_sub(1)?)?;
        match address - start {
            0 => Some(name.clone()),
            _ if after == self.sorted.len() => None,
            offset => Some(format!("{name}+{offset:#x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAP: &str = "000000000001abc0 D __preempt_count\n\
                       ffffffff81a05080 D tasklist_lock\n\
                       ffffffff81a05080 d an_alias\n\
                       ffffffff81000000 T startup_64\n\
                       ffffffff81c16000 B _end\n";

    #[test]
    fn names_addresses_by_their_symbol() {
        let symbols = Symbols::parse(MAP).unwrap();
        let name = |address| symbols.name(address);
        assert_eq!(name(0xffff_ffff_81a0_5080).as_deref(), Some("tasklist_lock"));
        assert_eq!(name(0xffff_ffff_81a0_5090).as_deref(), Some("tasklist_lock+0x10"));
        assert_eq!(name(0xffff_ffff_81c1_6000).as_deref(), Some("_end"));
        for elsewhere in [0x1abc0, 0xffff_8880_0031_c200, 0xffff_ffff_81c1_6001, u64::MAX, 0] {
            assert_eq!(name(elsewhere), None, "{elsewhere:#x}");
        }
    }

    #[test]
    fn an_invalid_map_has_no_symbols() {
        for text in ["", "ffffffffffffffff B The real System.map", "1abc0 D x", "a b c\n\0\u{fffd}"]
        {
            assert_eq!(Symbols::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn tolerates_arbitrary_text(
            lines in proptest::collection::vec(("[0-9a-g]{0,20}", ".{0,3}", "\\PC{0,9}"), 0..9),
            noise in "(?s).{0,99}",
            address in any::<u64>(),
        ) {
            let lines = lines.iter().map(|(at, kind, name)| format!("ffffffff{at} {kind} {name}\n"));
            for text in [lines.collect::<String>(), noise] {
                let _ = Symbols::parse(&text).map(|symbols| symbols.name(address));
            }
        }
    }
}
