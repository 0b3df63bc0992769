//! Restores the FPU state, to measure the cost.

use std::arch::asm;

/// Memory area of FXSAVE, with the required alignment.
#[repr(C, align(16))]
struct Area([u8; 512]);

/// Restores this thread's FPU state `times` times, at least once, without changing it.
pub fn restore(times: u32) {
    let mut area = Area([0; 512]);
    // SAFETY: the area has FXSAVE's size and alignment. The block restores only the state that it
    // saved, so it changes no register except the counter.
    unsafe {
        asm!(
            "fxsave64 [{area}]",
            "2:",
            "fxrstor64 [{area}]",
            "dec {count:e}",
            "jnz 2b",
            area = in(reg) area.0.as_mut_ptr(),
            count = inout(reg) times.max(1) => _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn restore_changes_nothing() {
        let half = std::hint::black_box(0.5_f64);
        super::restore(1000);
        assert_eq!(half + std::hint::black_box(0.25), 0.75);
    }
}
