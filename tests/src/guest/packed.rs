//! Archives of one file each, in each compression that our kernel unpacks. The file has the program's name,
//! and a line with that name. Made by `printf 'zstd\n' >zstd; echo zstd | cpio -o -H newc | zstd -19`.

/// Returns each compression and its archive in hexadecimal digits. lzma is last: not all of its end is read.
fn digits() -> impl Iterator<Item = (&'static str, &'static str)> {
    include_str!("packed.txt").lines().filter_map(|line| line.split_once(' '))
}

/// Returns the names of the files.
pub fn names() -> Vec<&'static str> {
    digits().map(|(name, _)| name).collect()
}

/// Returns all archives, one after the other, each at a multiple of four bytes; zeros end the data of lz4.
pub fn archives() -> Vec<u8> {
    let mut joined = Vec::new();
    for (_, digits) in digits() {
        joined.extend(bytes(digits));
        joined.resize((joined.len() + 4).next_multiple_of(4), 0);
    }
    joined
}

/// Returns the archive of this name.
pub fn archive(name: &str) -> Vec<u8> {
    digits().find(|(entry, _)| *entry == name).map(|(_, digits)| bytes(digits)).unwrap_or_default()
}

fn bytes(digits: &str) -> Vec<u8> {
    let value = |digit: u8| (digit as char).to_digit(16).unwrap_or_default() as u8;
    digits.as_bytes().chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}
