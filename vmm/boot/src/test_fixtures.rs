//! Small synthetic kernels for tests, with only the parts of the formats that loaders check.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use vm_memory::GuestMemoryMmap;

use super::memory;
use base::units::ByteSize;

/// Load address of the synthetic kernels.
pub const KERNEL_AT: u64 = 0x100_0000;
/// Memory size that the bzImage requests.
pub const INIT_SIZE: u64 = 0x20_0000;
/// The code of the synthetic kernels.
pub const CODE: [u8; 64] = [0x90; 64];

/// Returns fresh guest memory.
pub fn guest(mib: u64) -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&memory::regions(ByteSize::mib(mib))).unwrap()
}

/// Sets one field of an image: little-endian bytes at an offset.
pub fn put(image: &mut [u8], offset: usize, bytes: &[u8]) {
    image[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// Returns an ELF file with one segment, entered at its start.
pub fn elf(physical: u64, virtual_address: u64, memory_size: u64) -> Vec<u8> {
    let mut image = vec![0; 64 + 56];
    put(&mut image, 0, b"\x7fELF\x02\x01\x01");
    put(&mut image, 16, &[2, 0, 62, 0, 1]); // executable, x86-64, version
    put(&mut image, 24, &physical.to_le_bytes()); // entry
    put(&mut image, 32, &64_u64.to_le_bytes()); // program headers
    put(&mut image, 52, &[64, 0, 56, 0, 1, 0]); // sizes, one program header
    put(&mut image, 64, &[1, 0, 0, 0, 5]); // load; read and execute
    let fields = [120, virtual_address, physical, CODE.len() as u64, memory_size, 0x1000];
    for (index, field) in fields.iter().enumerate() {
        put(&mut image, 72 + index * 8, &field.to_le_bytes());
    }
    image.extend(CODE);
    image
}

/// Returns a `vmlinux`.
pub fn vmlinux() -> Vec<u8> {
    elf(KERNEL_AT, 0xffff_ffff_8100_0000, 0x10_0000)
}

/// Returns a bzImage of protocol 2.15, relocatable.
pub fn bzimage() -> Vec<u8> {
    let mut image = vec![0xcc; 512 * 2];
    put(&mut image, 0x1f1, &[1, 0, 0]); // one setup sector
    put(&mut image, 0x1f4, &(CODE.len() as u32 / 16).to_le_bytes());
    put(&mut image, 0x1fe, &[0x55, 0xaa, 0xeb, 0x6a]); // the jump over the header, to 0x26c
    put(&mut image, 0x202, b"HdrS\x0f\x02");
    put(&mut image, 0x208, &[0; 100]);
    put(&mut image, 0x211, &[1]); // loaded high
    put(&mut image, 0x22c, &0x7fff_ffff_u32.to_le_bytes()); // initrd_addr_max
    put(&mut image, 0x230, &0x20_0000_u32.to_le_bytes()); // alignment
    put(&mut image, 0x234, &[1, 21, 1, 0]); // relocatable, min alignment, 64-bit entry
    put(&mut image, 0x238, &2047_u32.to_le_bytes()); // cmdline_size
    put(&mut image, 0x258, &KERNEL_AT.to_le_bytes()); // pref_address
    put(&mut image, 0x260, &(INIT_SIZE as u32).to_le_bytes());
    image.extend(CODE);
    image
}

/// Returns a file of a newc archive, padded as the format requires.
pub fn newc_file(name: &str, content: &[u8]) -> Vec<u8> {
    let numbers = [0, 0o100_755, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, name.len() + 1, 0];
    let mut bytes = b"070701".to_vec();
    bytes.extend(numbers.iter().flat_map(|n| format!("{n:08x}").into_bytes()));
    for part in [[name.as_bytes(), b"\0"].concat(), content.to_vec()] {
        bytes.extend(part);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// Returns the names in an uncompressed newc archive, up to its trailer.
pub fn newc_names(archive: &[u8]) -> Vec<String> {
    let (mut at, mut names) = (0, Vec::new());
    loop {
        assert_eq!((at % 4, &archive[at..at + 6]), (0, &b"070701"[..]), "at {at}");
        let field = |index: usize| {
            let digits = &archive[at + 6 + index * 8..][..8];
            usize::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
        };
        let (size, name_size) = (field(6), field(11));
        let name = String::from_utf8(archive[at + 110..][..name_size - 1].to_vec()).unwrap();
        if name == "TRAILER!!!" {
            return names;
        }
        names.push(name);
        at = ((at + 110 + name_size).next_multiple_of(4) + size).next_multiple_of(4);
    }
}
