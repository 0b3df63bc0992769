//! Archives of one file each, in each compression that our kernel unpacks. The file has the name of the program and one
//! line with it; each archive was made by `printf 'zstd\n' >zstd; echo zstd | cpio -o -H newc | zstd -19`.

/// The compression and the archive, in hexadecimal digits. What ends lzma's data is not all read: it is the last one.
fn digits() -> impl Iterator<Item = (&'static str, &'static str)> {
    include_str!("packed.txt").lines().filter_map(|line| line.split_once(' '))
}

/// The names of the files.
pub fn names() -> Vec<&'static str> {
    digits().map(|(name, _)| name).collect()
}

/// All archives, one after the other. Each begins at a multiple of four bytes, and zeros end the data of lz4.
pub fn archives() -> Vec<u8> {
    let mut all = Vec::new();
    for (_, digits) in digits() {
        all.extend(bytes(digits));
        all.resize((all.len() + 4).next_multiple_of(4), 0);
    }
    all
}

/// The bytes of the archive of this name.
pub fn archive(name: &str) -> Vec<u8> {
    digits().find(|(known, _)| *known == name).map(|(_, digits)| bytes(digits)).unwrap_or_default()
}

fn bytes(digits: &str) -> Vec<u8> {
    let value = |digit: u8| (digit as char).to_digit(16).unwrap_or_default() as u8;
    digits.as_bytes().chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}
