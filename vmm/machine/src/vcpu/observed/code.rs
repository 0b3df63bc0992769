//! Locates the lock and the spin loops in the machine code of a slow path.

/// Maximum number of code bytes to read. The slow paths have about 700 bytes.
pub(super) const MAX_CODE: u64 = 4096;

/// Number of RDI, the first argument register (System V ABI).
const RDI: u8 = 7;

/// The callee-saved registers, which survive a function's own calls: RBX, RBP, R12 to R15.
const CALLEE_SAVED: [u8; 6] = [3, 5, 12, 13, 14, 15];

/// The register that holds a slow path's lock argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LockRegister {
    register: u8,
    /// Offset of the first instruction after the copy. Before it, the lock is in RDI.
    from: u64,
}

impl LockRegister {
    /// Finds the copy of RDI in a function's code: to a callee-saved register or, in a function without
    /// calls, to any register. The relevant functions make one such copy, and use the register for nothing
    /// else (Linux 6.1, 6.12 and 7.3, of Debian and of our configuration, GCC 12 and 14).
    pub(super) fn find(code: &[u8]) -> Option<Self> {
        // MOV r/m64, r64 (SDM vol. 2, REX.W 89 /r) between registers: REX with W and optionally B, the
        // opcode, and a ModR/M byte with mod 3 and reg RDI.
        let copies = code.windows(3).zip(3..).filter_map(|(bytes, from)| {
            let [rex @ (0x48 | 0x49), 0x89, modrm] = bytes else { return None };
            let register = (modrm & 7) | (rex & 1) << 3;
            (modrm >> 3 == 0b11 << 3 | RDI).then_some(Self { register, from })
        });
        let copies: Vec<_> = copies.collect();
        copies.iter().find(|copy| copy.is_callee_saved()).or(copies.first()).copied()
    }

    /// Returns the number of the register that holds the lock at this offset in the function.
    pub(super) const fn at(self, offset: u64) -> u8 {
        if offset < self.from { RDI } else { self.register }
    }

    fn is_callee_saved(self) -> bool {
        CALLEE_SAVED.contains(&self.register)
    }

    /// Returns the number of the register that holds the lock across calls.
    pub(super) fn across_calls(self) -> Option<u8> {
        self.is_callee_saved().then_some(self.register)
    }
}

/// Offsets of the PAUSE instructions where a function spins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpinLoops(Vec<u64>);

impl SpinLoops {
    /// Number of bytes around a PAUSE that belong to its loop: a load, a test and a branch.
    const REACH: u64 = 12;

    pub(super) fn find(code: &[u8]) -> Self {
        // SDM vol. 2: F3 90.
        let pauses = code.windows(2).zip(0..).filter(|(bytes, _)| **bytes == [0xf3, 0x90]);
        Self(pauses.map(|(_, at)| at).collect())
    }

    /// Whether the instruction at this offset is in one of the loops.
    pub(super) fn contain(&self, offset: u64) -> bool {
        self.0.iter().any(|pause| pause.abs_diff(offset) <= Self::REACH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locates_the_copy_of_the_first_argument() {
        // push %r12; mov %rdi,%rbx; nop
        let code = [0x41, 0x54, 0x48, 0x89, 0xfb, 0x90];
        let copy = LockRegister::find(&code).unwrap();
        assert_eq!((copy.at(0), copy.at(4), copy.at(5), copy.across_calls()), (7, 7, 3, Some(3)));
        // mov %rdi,%r13
        assert_eq!(LockRegister::find(&[0x49, 0x89, 0xfd]).unwrap().across_calls(), Some(13));
        // mov %rdi,%rdx, in a function without calls. A function with calls has another copy.
        let (leaf, calls) = ([0x48, 0x89, 0xfa], [0x48, 0x89, 0xfa, 0x48, 0x89, 0xfd]);
        let copy = LockRegister::find(&leaf).unwrap();
        assert_eq!((copy.at(3), copy.across_calls()), (2, None));
        assert_eq!(LockRegister::find(&calls).unwrap().across_calls(), Some(5));
    }

    #[test]
    fn spin_loops_surround_pause_instructions() {
        let mut code = [0x90; 64];
        code[30] = 0xf3;
        let loops = SpinLoops::find(&code);
        assert!(loops.contain(30) && loops.contain(32) && loops.contain(20) && loops.contain(42));
        assert!(!loops.contain(17) && !loops.contain(43));
    }

    #[test]
    fn ignores_other_moves() {
        // mov %rsi,%rbx; mov %rdi,(%rbx); mov %edi,%ebx
        let code = [0x48, 0x89, 0xf3, 0x48, 0x89, 0x3b, 0x89, 0xfb];
        assert_eq!(LockRegister::find(&code), None);
        assert_eq!(LockRegister::find(&[]), None);
    }
}
