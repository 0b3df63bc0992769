//! ACPI tables, by which a stock kernel finds the CPUs, the serial ports, and the ports for power-off
//! and reset.
//!
//! The machine is *hardware-reduced* (ACPI 4.1): no PM timer, no fixed registers, no SCI. Linux
//! does not probe the 8259 and the 8254, which saves time at boot. Interrupt lines are then known
//! only from these tables, so the serial ports need the DSDT.

use acpi_tables::aml::{
    Device, EISAName, IO, Interrupt, Name, Package, Path, ResourceTemplate, Scope,
};
use acpi_tables::fadt::{FADTBuilder, Flags, PmProfile};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::madt::{EnabledStatus, IoApic, ProcessorLocalApic};
use acpi_tables::{Aml, rsdp::Rsdp, sdt::Sdt, xsdt::XSDT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap, bitmap::Bitmap};

use super::layout;
use base::units::VcpuCount;

const OEM_ID: [u8; 6] = *b"PVTICK";
const OEM_TABLE_ID: [u8; 8] = *b"PVTICKET";
const OEM_REVISION: u32 = 1;

const ALIGNMENT: u64 = 16;

/// Size of the common table header in bytes.
const HEADER_SIZE: u32 = 36;

/// Writes all tables, starting with the RSDP at [`layout::ACPI`].
pub(super) fn write(
    memory: &GuestMemoryMmap<impl Bitmap>,
    vcpus: VcpuCount,
) -> Result<(), GuestMemoryError> {
    for (at, bytes) in tables(vcpus) {
        memory.write_slice(&bytes, GuestAddress(at))?;
    }
    Ok(())
}

/// Returns every table and its address.
fn tables(vcpus: VcpuCount) -> Vec<(u64, Vec<u8>)> {
    let mut placed = Vec::new();
    let mut next = layout::ACPI.0 + (Rsdp::len() as u64).next_multiple_of(ALIGNMENT);
    let mut place = |bytes: Vec<u8>| {
        let at = next;
        next = (at + bytes.len() as u64).next_multiple_of(ALIGNMENT);
        placed.push((at, bytes));
        at
    };
    let dsdt = place(dsdt());
    let fadt = place(fadt(dsdt));
    let madt = place(madt(vcpus));
    let mut xsdt = XSDT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    xsdt.add_entry(fadt);
    xsdt.add_entry(madt);
    let xsdt = place(bytes(&xsdt));
    placed.push((layout::ACPI.0, bytes(&Rsdp::new(OEM_ID, xsdt))));
    placed
}

fn bytes(table: &dyn Aml) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.to_aml_bytes(&mut bytes);
    bytes
}

/// The DSDT: devices and sleep states.
fn dsdt() -> Vec<u8> {
    let mut dsdt = Sdt::new(*b"DSDT", HEADER_SIZE, 6, OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    let com1 = serial("COM1", 0, layout::COM1_PORT, layout::COM1_IRQ);
    let com2 = serial("COM2", 1, layout::COM2_PORT, layout::COM2_IRQ);
    dsdt.append_slice(&Scope::raw(Path::new("\\_SB_"), [com1, com2].concat()));
    let off = layout::ACPI_S5_TYPE;
    let package = Package::new(vec![&off, &off, &0_u8, &0_u8]);
    dsdt.append_slice(&bytes(&Name::new(Path::new("\\_S5_"), &package)));
    dsdt.as_slice().to_vec()
}

/// A 16550 and its interrupt line, which replace an entry in the legacy port table of Linux's 8250
/// driver.
fn serial(name: &str, uid: u8, port: u16, irq: u32) -> Vec<u8> {
    let io = IO::new(port, port, 1, layout::COM_SPAN);
    // Consumer, edge, active high, exclusive.
    let interrupt = Interrupt::new(true, true, false, false, irq);
    bytes(&Device::new(
        Path::new(name),
        vec![
            &Name::new(Path::new("_HID"), &EISAName::new("PNP0501")),
            &Name::new(Path::new("_UID"), &uid),
            &Name::new(Path::new("_CRS"), &ResourceTemplate::new(vec![&io, &interrupt])),
        ],
    ))
}

/// The FADT: absent hardware, and the three registers that exist.
fn fadt(dsdt: u64) -> Vec<u8> {
    /// IA-PC boot flags (ACPI 5.2.9.3): no VGA to probe, no CMOS clock to read. The bit for an 8042
    /// is clear: Linux does not probe for a keyboard, but can still reset through the 8042 (`reboot=k`).
    const NO_VGA: u16 = 1 << 2;
    const NO_CMOS_CLOCK: u16 = 1 << 5;

    let mut fadt = FADTBuilder::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION)
        .dsdt_64(dsdt)
        .preferred_pm_profile(PmProfile::EnterpriseServer)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::ResetRegSup)
        .flag(Flags::Wbinvd)
        // Set: these buttons are not fixed hardware. There are no other buttons.
        .flag(Flags::PwrButton)
        .flag(Flags::SlpButton)
        .flag(Flags::Headless);
    fadt.iapc_boot_arch = (NO_VGA | NO_CMOS_CLOCK).into();
    fadt.reset_reg = port(layout::ACPI_RESET_PORT);
    fadt.reset_value = layout::ACPI_RESET_VALUE;
    fadt.sleep_control_reg = port(layout::ACPI_SLEEP_CONTROL_PORT);
    fadt.sleep_status_reg = port(layout::ACPI_SLEEP_STATUS_PORT);
    fadt.hypervisor_vendor_identity = u64::from_le_bytes(OEM_TABLE_ID).into();
    bytes(&fadt.finalize())
}

/// An 8-bit I/O port.
fn port(port: u16) -> GAS {
    GAS::new(AddressSpace::SystemIo, 8, 0, AccessSize::ByteAccess, port.into())
}

/// The MADT: a local APIC for each vCPU, and an I/O APIC whose pins are the interrupt lines one to
/// one, as in KVM's default routing.
fn madt(vcpus: VcpuCount) -> Vec<u8> {
    /// Flag: the machine also has 8259s (KVM's).
    const PCAT_COMPAT: u32 = 1 << 0;
    let mut madt = Sdt::new(*b"APIC", HEADER_SIZE + 8, 5, OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    madt.write_u32(36, layout::LOCAL_APIC.0 as u32);
    madt.write_u32(40, PCAT_COMPAT);
    let mut entries = Vec::new();
    // With up to 128 vCPUs the ids stay below 255. Higher ids would need x2APIC entries.
    for id in vcpus.ids().map(|id| id.0 as u8) {
        ProcessorLocalApic::new(id, id, EnabledStatus::Enabled).to_aml_bytes(&mut entries);
    }
    IoApic::new(0, layout::IOAPIC.0 as u32, 0).to_aml_bytes(&mut entries);
    madt.append_slice(&entries);
    madt.as_slice().to_vec()
}

#[cfg(test)]
#[path = "acpi_tests.rs"]
mod tests;
