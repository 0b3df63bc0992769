//! Kernel parameters and memory layout of Linux guests.

use base::units::Gpa;
use kvm::vcpu::TscClock;

/// Kernel parameters of every boot. `reboot=k` resets through the keyboard controller's port, which ends the
/// machine. `panic=-1` resets immediately after a panic. COM2 carries the wake byte for the command's stdin.
/// `noreplace-smp`: with one vCPU, Linux would patch out its lock prefixes one by one, which takes a sixth of
/// the boot time in the emulated host (measured). The parameter also makes one vCPU run the same lock code as several.
pub const BASE_CMDLINE: &str = "console=ttyS0 reboot=k panic=-1 8250.nr_uarts=2 noreplace-smp";

/// Shows the reason for a panic before the console driver is registered; otherwise such a guest resets
/// without any output. Output begins at this parameter, so `quiet` goes before it.
pub const EARLY_CONSOLE: &str = "earlycon=uart8250,io,0x3f8";

/// Returns the parameter for the frequency of the time stamp counter, or None if unknown. The VM has no clock
/// to calibrate it by. A kernel without KVM's clock (`no-kvmclock`, `nopv`, without CONFIG_PARAVIRT) would
/// otherwise wait forever for the first tick of its timer. KVM's clock has the same frequency.
pub fn clock_parameter(clock: TscClock) -> Option<String> {
    (clock.khz > 0).then(|| format!("tsc_early_khz={}", clock.khz))
}

/// Virtual address of the kernel's image (`__START_KERNEL_map`, x86/x86_64/mm.rst).
const KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
/// Size of that mapping without KASLR: 512 MiB.
const KERNEL_MAP_SIZE: u64 = 512 << 20;
/// The direct map of all physical memory with 4-level paging and without KASLR.
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
/// Size of that mapping: 64 TiB.
const DIRECT_MAP_SIZE: u64 = 64 << 40;

/// Translates the virtual address of a lock of our kernel, in the kernel's image or in the direct map, to its
/// guest-physical address. None for other mappings (vmalloc).
pub fn lock_address(address: u64) -> Option<Gpa> {
    LOCK_MAPS.into_iter().find_map(|(base, size)| offset_in(base, size, address)).map(Gpa)
}

/// Ranges of virtual addresses that contain our kernel's locks. Each begins at guest-physical address 0.
pub const LOCK_MAPS: [(u64, u64); 2] =
    [(KERNEL_MAP, KERNEL_MAP_SIZE), (DIRECT_MAP, DIRECT_MAP_SIZE)];

/// Whether the address is in the kernel's image, without KASLR.
pub fn is_in_image(address: u64) -> bool {
    offset_in(KERNEL_MAP, KERNEL_MAP_SIZE, address).is_some()
}

fn offset_in(base: u64, size: u64, address: u64) -> Option<u64> {
    address.checked_sub(base).filter(|offset| *offset < size)
}

/// Runs our init even if the initrd has no `/init` or a different one.
pub const OUR_INIT: &str = "quiet rdinit=/pvticket/init";

/// Returns the first parameter that leaves Linux without an I/O APIC, if any. Its serial ports then have no
/// interrupts (it assumes that the 8259s of a hardware-reduced machine are absent), and a terminal on them
/// cannot be opened. All were tested with Linux 6.1; `nr_cpus=0` has no effect.
pub fn io_apic_disabler(parameters: &str) -> Option<&str> {
    let disables_io_apic = |word: &&str| {
        let word = word.replace('"', "");
        match word.split_once('=') {
            None => ["noapic", "nosmp", "nolapic", "disableapic"].contains(&word.as_str()),
            Some(("acpi", value)) => ["off", "noirq"].contains(&value),
            Some(("pci", value)) => value.split(',').any(|value| value == "noacpi"),
            Some(("maxcpus", count)) => is_zero(count),
            Some(_) => false,
        }
    };
    parameters.split_ascii_whitespace().find(disables_io_apic)
}

/// Whether a parameter found by [`io_apic_disabler`] restricts the guest to its boot CPU.
pub fn is_single_cpu(parameter: &str) -> bool {
    parameter.contains("nosmp") || parameter.contains("maxcpus")
}

/// Whether a number is zero as parsed by the kernel (`get_option` in lib/cmdline.c): decimal, octal or
/// hexadecimal, up to the first non-digit.
fn is_zero(number: &str) -> bool {
    let digits = number.strip_prefix("0x").or_else(|| number.strip_prefix("0X")).unwrap_or(number);
    let is_hexadecimal = digits.len() < number.len();
    let is_digit =
        |c: &char| if is_hexadecimal { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
    let digits: String = digits.chars().take_while(is_digit).collect();
    !digits.is_empty() && digits.chars().all(|digit| digit == '0')
}

/// Returns the command line for a guest with only our init, with these parameters.
pub fn bare_cmdline(parameters: &str) -> String {
    format!("{BASE_CMDLINE} {OUR_INIT} {EARLY_CONSOLE} {parameters}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_parameters_that_disable_the_io_apic() {
        let parameters =
            ["quiet noapic", "maxcpus=0", "noapictimer maxcpus=1", ""].map(io_apic_disabler);
        assert_eq!(parameters, [Some("noapic"), Some("maxcpus=0"), None, None]);
        for word in [
            "maxcpus=0x0",
            "maxcpus=00",
            "\"maxcpus=0\"",
            "maxcpus=\"0\"",
            "acpi=off",
            "pci=nomsi,noacpi",
            "nolapic",
            "disableapic",
        ] {
            assert_eq!(io_apic_disabler(&format!("quiet {word}")), Some(word));
        }
        for word in ["maxcpus=0x1", "maxcpus=10", "maxcpus=", "nr_cpus=0", "acpi=on", "lapic"] {
            assert_eq!(io_apic_disabler(word), None, "{word}");
        }
    }

    #[test]
    fn the_rate_of_the_clock_is_a_parameter() {
        let option = |khz| clock_parameter(TscClock { offset: 7, khz });
        assert_eq!((option(2_445_424), option(0)), (Some("tsc_early_khz=2445424".into()), None));
    }

    #[test]
    fn locks_are_found_in_both_mappings_and_nowhere_else() {
        assert_eq!(lock_address(0xffff_ffff_8100_0010), Some(Gpa(0x100_0010)));
        assert_eq!(lock_address(0xffff_8880_0200_0000), Some(Gpa(0x200_0000)));
        for elsewhere in [0, 0xffff_c900_0000_0000, u64::MAX, 0x7fff_ffff_f000] {
            assert_eq!(lock_address(elsewhere), None, "{elsewhere:#x}");
        }
    }
}
