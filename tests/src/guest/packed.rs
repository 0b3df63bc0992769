//! Archives of one file each, in each compression that our kernel unpacks. The file has the name of the program and one
//! line with it; each archive was made by `printf 'zstd\n' >zstd; echo zstd | cpio -o -H newc | zstd -19`.

/// The compression and the archive, in hexadecimal digits. What ends lzma's data is not all read: it is the last one.
const ARCHIVES: [(&str, &str); 6] = [
    (
        "gzip",
        "1f8b0800000000000203333037303730348000306d61986862801d18a2f14d0d88037075e95599050c0c20928b8181c100d96e42805875\
         e82009c6080972f4f4710d525454045acd0000a7aeb203f8000000",
    ),
    (
        "bzip2",
        "425a68313141592653594cd12acc00001e7f804c18080028007dc02224140030204010200054354d184d1800f50094d26a034d340016a6\
         845f8a648838718699dd5ea9d41a091813966abafa4bc8a7807b037272679edbb1b04705dc914e142413344ab300",
    ),
    (
        "xz",
        "fd377a585a0000016922de360200210110000000a8708e86e000f3003a5d00180ddd046232f9750b80a2bd0f51067bc44473963b0d9157\
         2e82a0438fb73b09438b16e66340697eadd7b3dabeaf11d83c13562f5cdc0fd28000000000514f0f05000152f401000000d9ec1b873e30\
         0d8b020000000001595a",
    ),
    (
        "lz4",
        "02214c184d000000723037303730313001000108005f38316134300100031b3110002f3430010013052800a96c7a340000006c7a340a78\
         000f40000d2f313001002314620900e0545241494c455221212100000000",
    ),
    (
        "zstd",
        "28b52ffd04682d0200c2020a11a0ab0398c537be619efd28e772d76b0153ff21047512326ab5357ff00ebed8d1ac60599a25250d0b0020\
         c30327c65ff8439214ab965200583090b1abd49d7001232ebb2a65",
    ),
    (
        "lzma",
        "5d00001000ffffffffffffffff00180ddd046232f9750b80a2bd0f51067bc4447397785d6d0dcc24d6f1c77242386e92fbe3924e20fbcf\
         57701fd40ead372bce757c51055ae5d51e7dad5fffef7d0000",
    ),
];

/// The names of the files.
pub fn names() -> Vec<&'static str> {
    ARCHIVES.map(|(name, _)| name).into()
}

/// All archives, one after the other. Each begins at a multiple of four bytes, and zeros end the data of lz4.
pub fn archives() -> Vec<u8> {
    let mut all = Vec::new();
    for (_, digits) in ARCHIVES {
        all.extend(bytes(digits));
        all.resize((all.len() + 4).next_multiple_of(4), 0);
    }
    all
}

/// The bytes of the archive of this name.
pub fn archive(name: &str) -> Vec<u8> {
    let found = ARCHIVES.iter().find(|(known, _)| *known == name);
    found.map(|(_, digits)| bytes(digits)).unwrap_or_default()
}

fn bytes(digits: &str) -> Vec<u8> {
    let value = |digit: u8| (digit as char).to_digit(16).unwrap_or_default() as u8;
    digits.as_bytes().chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}
