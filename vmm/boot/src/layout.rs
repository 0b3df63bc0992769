//! The layout of a guest's physical address space.
//!
//! ```text
//! 0x0000_7000  zero page (struct boot_params)
//! 0x0000_8000  GDT; the boot stack grows down from 0x9000 in the same page
//! 0x0000_9000  page tables: PML4, PDPT, up to four page directories
//! 0x0002_0000  kernel command line
//! 0x0009_fc00  end of the low RAM that e820 reports
//! 0x000d_0000  telemetry lines of the contract
//! 0x000e_0000  ACPI: RSDP first, the tables behind it
//! 0x000f_fff0  reset vector of a PC's firmware: code that resets the VM
//! 0x0010_0000  1 MiB: kernels, payload images
//!              ... initrd at the top of RAM below the hole
//! 0xc000_0000  3 GiB: MMIO hole (IOAPIC, local APIC, KVM's own pages)
//! 0x1_0000_0000  4 GiB: the rest of RAM
//! ```
//!
//! Addresses below 1 MiB are arbitrary: the x86 boot protocol only requires RAM that is identity-mapped
//! and outside the kernel.

use base::units::Gpa;

/// Size of a page, in bytes.
pub const PAGE_SIZE: u64 = 0x1000;

/// `struct boot_params`, one page. RSI points to it at a Linux kernel's entry.
pub const BOOT_PARAMS: Gpa = Gpa(0x7000);

/// Global descriptor table.
pub const GDT: Gpa = Gpa(0x8000);

/// First address above the boot CPU's stack, for a kernel that pushes before it has set up its own
/// stack (Linux does not). The stack shares the page of [`GDT`].
pub const BOOT_STACK_TOP: Gpa = Gpa(0x9000);

/// PML4, followed by the PDPT and the page directories, one page each.
pub const PAGE_TABLES: Gpa = Gpa(0x9000);

/// First address above the page tables with all four directories.
pub const PAGE_TABLES_END: Gpa = Gpa(PAGE_TABLES.0 + 6 * PAGE_SIZE);

/// Task state segment of a ring-3 payload, with its I/O permission bitmap.
pub const PAYLOAD_TSS: Gpa = Gpa(0x1_0000);

/// The kernel command line, NUL-terminated.
pub const CMDLINE: Gpa = Gpa(0x2_0000);

/// Bytes reserved at [`CMDLINE`], including the NUL. Linux's limit is 2048.
pub const CMDLINE_SPACE: u64 = 0x1_0000;

/// End of conventional memory in the e820 map. The last KiB below 640 KiB is a PC's extended BIOS data
/// area, and Linux searches it.
pub const LOW_RAM_END: Gpa = Gpa(0x9_fc00);

/// The [`telemetry`](hypercalls::telemetry) lines of a Linux guest. Linux maps the complete first MiB
/// (`init_mem_mapping`, the ISA range), so they are accessible early and cheaply.
pub const TELEMETRY: Gpa = Gpa(0xd_0000);

/// First address above the telemetry lines and the machine's words.
pub const TELEMETRY_END: Gpa = Gpa(TELEMETRY.0 + hypercalls::telemetry::MEMORY);

/// ACPI: the RSDP. In the range that an OS scans for it (ACPI 5.2.5.1), so that kernels find it even
/// without the zero page's pointer.
pub const ACPI: Gpa = Gpa(0xe_0000);

/// First address above the ACPI tables, which is the end of the first MiB.
pub const ACPI_END: Gpa = Gpa(0x10_0000);

/// The reset vector of real mode. Kernels jump here to reset (`reboot=b`).
pub const RESET_VECTOR: Gpa = Gpa(0xf_fff0);

/// First address for kernels. All boot data is below it.
pub const HIGH_RAM: Gpa = Gpa(0x10_0000);

/// Start of the MMIO hole below 4 GiB.
pub const HOLE_START: Gpa = Gpa(0xc000_0000);

/// End of the MMIO hole. RAM continues here.
pub const HOLE_END: Gpa = Gpa(0x1_0000_0000);

/// KVM's page for identity-mapped real mode (Intel without unrestricted guest).
pub const KVM_IDENTITY_MAP: Gpa = Gpa(0xfffb_c000);

/// KVM's three pages for a real-mode TSS (`KVM_SET_TSS_ADDR`).
pub const KVM_TSS: Gpa = Gpa(0xfffb_d000);

/// First address above KVM's own pages.
pub const KVM_PAGES_END: Gpa = Gpa(0xfffc_0000);

/// The I/O APIC, at the address of KVM's in-kernel I/O APIC.
pub const IOAPIC: Gpa = Gpa(0xfec0_0000);

/// The local APICs, at their reset address.
pub const LOCAL_APIC: Gpa = Gpa(0xfee0_0000);

/// First serial port (COM1): base I/O port.
pub const COM1_PORT: u16 = 0x3f8;
/// First serial port: interrupt line (GSI).
pub const COM1_IRQ: u32 = 4;
/// Second serial port (COM2): base I/O port.
pub const COM2_PORT: u16 = 0x2f8;
/// Second serial port: interrupt line (GSI).
pub const COM2_IRQ: u32 = 3;
/// Number of I/O ports of one serial port.
pub const COM_SPAN: u8 = 8;

/// ACPI sleep control register, 8 bits wide. Writing [`ACPI_POWER_OFF`] powers the machine off;
/// other values are ignored. S5 is its only sleep state.
pub const ACPI_SLEEP_CONTROL_PORT: u16 = 0x680;
/// ACPI sleep status register, 8 bits wide. Reads as zero, writes are ignored (Linux clears the wake
/// bit there before it powers off).
pub const ACPI_SLEEP_STATUS_PORT: u16 = 0x681;
/// ACPI reset register, 8 bits wide. Writing [`ACPI_RESET_VALUE`] resets the machine.
pub const ACPI_RESET_PORT: u16 = 0x682;

/// SLP_TYP of S5 in our DSDT (ACPI 7.4.2).
pub const ACPI_S5_TYPE: u8 = 5;
/// SLP_EN in the sleep control register (ACPI 4.8.4.2).
pub const ACPI_SLEEP_ENABLE: u8 = 1 << 5;
/// Value that a guest writes to [`ACPI_SLEEP_CONTROL_PORT`] to power off. SLP_TYP is in bits 2 to 4.
pub const ACPI_POWER_OFF: u8 = ACPI_S5_TYPE << 2 | ACPI_SLEEP_ENABLE;
/// Value that a guest writes to [`ACPI_RESET_PORT`] to reset.
pub const ACPI_RESET_VALUE: u8 = 1;

// No two areas overlap.
const _: () = {
    assert!(BOOT_PARAMS.0 + PAGE_SIZE <= GDT.0);
    assert!(BOOT_STACK_TOP.0 <= PAGE_TABLES.0);
    assert!(PAGE_TABLES_END.0 <= CMDLINE.0);
    assert!(CMDLINE.0 + CMDLINE_SPACE <= LOW_RAM_END.0);
    assert!(LOW_RAM_END.0 <= TELEMETRY.0 && TELEMETRY_END.0 <= ACPI.0);
    assert!(TELEMETRY.0.is_multiple_of(PAGE_SIZE));
    assert!(RESET_VECTOR.0 > ACPI.0 && RESET_VECTOR.0 < ACPI_END.0);
    assert!(ACPI_END.0 <= HIGH_RAM.0);
    assert!(HOLE_START.0 <= IOAPIC.0 && KVM_PAGES_END.0 <= HOLE_END.0);
    assert!(KVM_IDENTITY_MAP.0 + PAGE_SIZE == KVM_TSS.0);
    let contract_end = hypercalls::ports::DEFAULT_BASE + hypercalls::ports::SPAN;
    assert!(contract_end <= ACPI_SLEEP_CONTROL_PORT);
};
