//! Files for tests: scratch directories, kernels of a few instructions, initial RAM disks, noise.

use std::env;

use crate::prelude::*;

/// Creates a directory that other users can read, deleted when the value is dropped.
pub fn scratch() -> anyhow::Result<TempDir> {
    scratch_in(&env::temp_dir())
}

/// Creates a scratch directory in memory where possible: a write to a busy disk may take seconds.
pub fn scratch_in_memory() -> anyhow::Result<TempDir> {
    scratch_in(Path::new("/dev/shm")).or_else(|_| scratch())
}

fn scratch_in(place: &Path) -> anyhow::Result<TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::Permissions::from_mode(0o755);
    tempfile::Builder::new()
        .prefix("pvticket-test-")
        .permissions(mode)
        .tempdir_in(place)
        .context("no scratch directory")
}

/// Writes a file into a directory.
pub fn put(folder: &TempDir, name: &str, bytes: &[u8]) -> anyhow::Result<PathBuf> {
    let file = folder.path().join(name);
    fs::write(&file, bytes).with_context(|| file.display().to_string())?;
    Ok(file)
}

/// Lists the names in a folder, sorted; empty if there is no folder.
pub fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let name = |entry: std::io::Result<fs::DirEntry>| {
        Ok(entry?.file_name().to_string_lossy().into_owned())
    };
    let mut names: Vec<String> = fs::read_dir(folder)?.map(name).collect::<anyhow::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Returns the path of a file or folder of the repository; skips the test if it does not exist.
pub fn repository(name: &str) -> anyhow::Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    if path.exists() { Ok(path) } else { skip("the repository is not here") }
}

/// Reads a JSON file.
pub fn json(file: &Path) -> anyhow::Result<Value> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    serde_json::from_slice(&bytes).with_context(|| file.display().to_string())
}

/// Copies a program and makes it executable for all users.
///
/// A child writes the copy. Otherwise a child that another test forks at that moment would inherit the writable
/// descriptor, and execve(2) of the copy would fail (`ETXTBSY`) until that child calls execve.
pub fn install(program: &Path, to: &Path) -> anyhow::Result<()> {
    run_install(Program::new("install").args(["-m", "755"]).args([program, to]))
}

/// Writes these commands as a shell script, like [`install`].
pub fn script(to: &Path, commands: &str) -> anyhow::Result<()> {
    let text = format!("#!/bin/sh\n{commands}\n").into_bytes();
    let install = Program::new("install").args(["-m", "755", "/dev/stdin"]).args([to]);
    run_install(install.input(Input::Bytes(text)))
}

fn run_install(install: Program) -> anyhow::Result<()> {
    install.run()?.exits(0).map(drop)
}

/// Returns a file of the product's cache, located by the product's own rule.
pub fn cached(name: &str) -> anyhow::Result<PathBuf> {
    let path = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = path("PVTICKET_CACHE")
        .or_else(|| path("XDG_CACHE_HOME").map(|folder| folder.join("pvticket")))
        .or_else(|| path("HOME").map(|home| home.join(".cache/pvticket")))
        .context("no cache directory")?;
    let file = cache.join(name);
    ensure!(file.is_file(), "no {}: run make build kernels host busybox", file.display());
    Ok(file)
}

/// Kernel of `pvticket setup kernel` as an ELF file, by the name that the product looks for.
pub const BUILT_KERNEL: &str = "kernel/pvticket-6.12/vmlinux";
/// The same kernel as a bzImage.
pub const BUILT_BZIMAGE: &str = "kernel/pvticket-6.12/bzImage";
/// Symbols of the same kernel.
pub const SYSTEM_MAP: &str = "kernel/pvticket-6.12/System.map";
/// Kernel of `pvticket setup kernel-stock` as an ELF file.
pub const BUILT_STOCK: &str = "kernel/stock-pvqspinlock-6.12/vmlinux";
/// Archive with PostgreSQL, of `pvticket setup guest-disk`.
pub const GUEST_DISK: &str = "guest-disk/current/root.cpio";
/// Debian's cloud kernel, a bzImage.
pub const STOCK_KERNEL: &str = "host/current/vmlinuz";

/// The 7.x kernel of the emulated host.
pub const HOST_KERNEL_7: &str = "host-7/current/vmlinuz";

/// Memory of a [`vmlinux`]: 1 MiB at 16 MiB.
const KERNEL_AT: u64 = 16 << 20;
const KERNEL_SIZE: u64 = 1 << 20;
const ELF_HEADER: u64 = 64;
const PROGRAM_HEADER: u64 = 56;

/// Builds an ELF kernel that contains only this code, entered at its start in 64-bit mode.
pub fn vmlinux(code: &[u8]) -> Vec<u8> {
    vmlinux_of_size(KERNEL_SIZE, code)
}

/// Builds a [`vmlinux`] that occupies `size` bytes of memory.
pub fn vmlinux_of_size(size: u64, code: &[u8]) -> Vec<u8> {
    const UPPER_HALF: u64 = 0xffff_ffff_8100_0000;
    elf(KERNEL_AT, UPPER_HALF, size, code)
}

/// Builds a Linux program that contains only this code.
pub fn program(code: &[u8]) -> Vec<u8> {
    // The offset in a page equals the offset in the file (elf(5), p_align).
    const ADDRESS: u64 = 0x40_0000 + ELF_HEADER + PROGRAM_HEADER;
    elf(ADDRESS, ADDRESS, code.len() as u64, code)
}

/// Builds an ELF file with one segment of `size` bytes, entered at its start. `paddr` is the entry point and
/// the segment's physical address, `vaddr` its virtual address.
fn elf(paddr: u64, vaddr: u64, size: u64, code: &[u8]) -> Vec<u8> {
    const EXECUTABLE_X86_64: [u8; 4] = [2, 0, 62, 0];
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend(EXECUTABLE_X86_64);
    file.extend(1_u32.to_le_bytes());
    for field in [paddr, ELF_HEADER, 0] {
        file.extend(field.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for field in [ELF_HEADER as u16, PROGRAM_HEADER as u16, 1, 0, 0, 0] {
        file.extend(field.to_le_bytes());
    }
    for field in [1_u32, 5] {
        file.extend(field.to_le_bytes()); // PT_LOAD, read and execute
    }
    let offset = ELF_HEADER + PROGRAM_HEADER;
    for field in [offset, vaddr, paddr, code.len() as u64, size, 0x1000] {
        file.extend(field.to_le_bytes());
    }
    file.extend(code);
    file
}

/// Machine code for kernels.
pub mod code {
    /// Ports of the hypercall contract (`hypercalls/src/ports.rs`) at their usual base.
    pub mod port {
        pub const HALT: u16 = 0x600;
        pub const KICK: u16 = 0x604;
        pub const YIELD: u16 = 0x60c;
        pub const EXIT: u16 = 0x610;
        pub const EVENT: u16 = 0x618;
        pub const STDIN_AVAIL: u16 = 0x61c;
        pub const OUTPUT_PAGE: u16 = 0x624;
        pub const KERNEL_FACTS: u16 = 0x640;
        pub const STDOUT_PAGE: u16 = 0x628;
        pub const STDERR_PAGE: u16 = 0x62c;
        pub const DOORBELL: u16 = 0x634;
        pub const KICK_AND_HALT: u16 = 0x638;
        pub const GATE: u16 = 0x63c;
        pub const YIELD_TO: u16 = 0x644;
    }

    /// `jmp .`
    pub const SPIN: &[u8] = &[0xeb, 0xfe];
    /// Writes to COM1 forever: `mov dx, 0x3f8; mov al, 'x'; out dx, al; jmp` to the `out`.
    pub const FLOOD: &[u8] = &[0x66, 0xba, 0xf8, 0x03, 0xb0, b'x', 0xee, 0xeb, 0xfd];
    /// `int3; jmp .`
    pub const INT3: &[u8] = &[0xcc, 0xeb, 0xfe];
    /// `lidt` of an empty table, then an invalid instruction: every exception is a triple fault.
    pub const TRIPLE_FAULT: &[u8] =
        &[0x0f, 0x01, 0x1d, 2, 0, 0, 0, 0x0f, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    /// Encodes an instruction with a 32-bit operand.
    pub fn imm32(opcode: &[u8], operand: u32) -> Vec<u8> {
        [opcode, &operand.to_le_bytes()].concat()
    }

    /// `mov dx, port`
    pub fn dx(port: u16) -> Vec<u8> {
        [&[0x66, 0xba][..], &port.to_le_bytes()].concat()
    }

    /// Exits to the hypervisor `count` times by CPUID, then falls through.
    pub fn exits(count: u32) -> Vec<u8> {
        // mov esi, count; 1: xor eax, eax; cpuid; dec esi; jnz 1b
        [&imm32(&[0xbe], count)[..], &[0x31, 0xc0, 0x0f, 0xa2, 0xff, 0xce, 0x75, 0xf8]].concat()
    }

    /// Maps the 2 MiB at 512 MiB, where a VM of up to 512 MiB has no memory, and allows FXSAVE.
    pub const MAP: &[u8] = &[
        0x0f, 0x20, 0xd8, 0x48, 0x8b, 0x00, // mov rax, cr3; mov rax, [rax]
        0x48, 0x25, 0x00, 0xf0, 0xff, 0xff, // and rax, ~0xfff
        0x48, 0x8b, 0x00, 0x48, 0x25, 0x00, 0xf0, 0xff,
        0xff, // mov rax, [rax]; and rax, ~0xfff
        0xb9, 0x83, 0x00, 0x00, 0x20, // mov ecx, 0x20000083
        0x48, 0x89, 0x88, 0x00, 0x08, 0x00, 0x00, // mov [rax + 256 * 8], rcx
        0x0f, 0x20, 0xe0, 0x0d, 0x00, 0x02, 0x00, 0x00, // mov rax, cr4; or eax, 1 << 9
        0x0f, 0x22, 0xe0, // mov cr4, rax
    ];

    /// `mov dx, port; mov eax, value; out dx, eax`
    pub fn out(port: u16, value: u32) -> Vec<u8> {
        [dx(port), imm32(&[0xb8], value), vec![0xef]].concat()
    }

    /// `mov ecx, count`, the body of up to 124 bytes, `dec ecx; jnz` to the body, which must preserve ECX.
    pub fn times(count: u32, body: &[u8]) -> Vec<u8> {
        [&imm32(&[0xb9], count)[..], body, &[0xff, 0xc9, 0x75, (252 - body.len()) as u8]].concat()
    }

    /// Writes the text to COM1, then continues with the code.
    pub fn prints(text: &str, next: &[u8]) -> Vec<u8> {
        let mut code = vec![0x66, 0xba, 0xf8, 0x03]; // mov dx, 0x3f8
        for byte in text.bytes() {
            code.extend([0xb0, byte, 0xee]); // mov al, byte; out dx, al
        }
        code.extend(next);
        code
    }

    /// Writes the text to COM1, then resets the VM via the keyboard controller.
    pub fn hello(text: &str) -> Vec<u8> {
        prints(text, &[0xb0, 0xfe, 0xe6, 0x64, 0xeb, 0xfe]) // mov al, 0xfe; out 0x64, al; jmp .
    }
}

/// Builds an initial RAM disk of these files: path, mode and contents. A [`DIRECTORY`] has no contents.
pub fn cpio(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (index, (path, mode, bytes)) in files.iter().enumerate() {
        entry(&mut archive, index as u32 + 1, path, *mode, bytes);
    }
    entry(&mut archive, 0, "TRAILER!!!", 0, b"");
    archive
}

/// The mode of a program.
pub const EXECUTABLE: u32 = 0o100_755;
/// The mode of a directory.
pub const DIRECTORY: u32 = 0o040_755;

fn entry(archive: &mut Vec<u8>, inode: u32, path: &str, mode: u32, bytes: &[u8]) {
    archive.extend(b"070701");
    let name_size = path.len() as u32 + 1;
    // inode, mode, uid, gid, links, mtime, size, four device numbers, name size, check sum
    for field in [inode, mode, 0, 0, 1, 0, bytes.len() as u32, 0, 0, 0, 0, name_size, 0] {
        archive.extend(format!("{field:08x}").bytes());
    }
    archive.extend(path.bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(bytes);
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// A time slice of a recording.
#[derive(Debug)]
pub struct Slice {
    pub at_ns: u64,
    pub ran_ns: u64,
    pub vcpu: u32,
    pub slot: u16,
    /// How it ended, as numbered in the file.
    pub end: u8,
}

/// Reads the time slices of a recording: 24 bytes each after a header of 40 (`sched/recording.rs`).
pub fn slices(recording: &Path) -> anyhow::Result<Vec<Slice>> {
    let bytes = fs::read(recording)?;
    let (slices, _) = bytes.get(40..).context("no header")?.as_chunks::<24>();
    let slice = |slice: &[u8; 24]| Slice {
        at_ns: number(&slice[..8]),
        ran_ns: number(&slice[8..16]),
        vcpu: number(&slice[16..20]) as u32,
        slot: number(&slice[20..22]) as u16,
        end: slice[22],
    };
    Ok(slices.iter().map(slice).collect())
}

/// Decodes a little-endian number.
pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns pseudo-random bytes, the same in each run (xorshift64).
pub fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// Reads the first `bytes` bytes of a longer file.
pub fn head(file: &Path, bytes: usize) -> anyhow::Result<Vec<u8>> {
    let mut contents = fs::read(file).with_context(|| file.display().to_string())?;
    ensure!(contents.len() > bytes, "{} has no {bytes} bytes", file.display());
    contents.truncate(bytes);
    Ok(contents)
}
