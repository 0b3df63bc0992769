use super::*;

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Returns the tables by signature, found as a kernel would.
fn walk(vcpus: u32) -> Vec<(String, Vec<u8>)> {
    let tables = tables(vcpus.try_into().unwrap());
    let at = |address: u64| tables.iter().find(|table| table.0 == address).unwrap().1.clone();
    let rsdp = at(layout::ACPI.0);
    assert_eq!((sum(&rsdp), sum(&rsdp[..20])), (0, 0));
    let xsdt = at(u64_at(&rsdp, 24));
    let mut reachable: Vec<_> = xsdt[36..].chunks(8).map(|entry| at(u64_at(entry, 0))).collect();
    let fadt = reachable.iter().find(|table| &table[..4] == b"FACP").unwrap();
    reachable.push(at(u64_at(fadt, 140)));
    reachable.push(xsdt);
    let name = |table: &Vec<u8>| String::from_utf8_lossy(&table[..4]).into_owned();
    reachable.into_iter().map(|table| (name(&table), table)).collect()
}

fn table(vcpus: u32, name: &str) -> Vec<u8> {
    walk(vcpus).into_iter().find(|table| table.0 == name).unwrap().1
}

#[test]
fn tables_are_reachable_with_zero_checksums() {
    for vcpus in [1, 2, 128] {
        let tables = walk(vcpus);
        assert_eq!(tables.len(), 4);
        for (name, table) in tables {
            assert_eq!(sum(&table), 0, "{name}");
            assert_eq!(u32_at(&table, 4) as usize, table.len(), "{name}");
        }
    }
}

#[test]
fn tables_do_not_overlap_and_stay_in_range() {
    let mut tables = tables(128.try_into().unwrap());
    tables.sort();
    let ends = tables.iter().map(|(at, bytes)| at + bytes.len() as u64);
    let next = tables.iter().skip(1).map(|table| table.0).chain([layout::ACPI_END.0]);
    assert!(ends.zip(next).all(|(end, next)| end <= next));
}

#[test]
fn the_madt_lists_each_apic_once_and_one_io_apic() {
    for vcpus in [1, 4, 128] {
        let madt = table(vcpus, "APIC");
        let (mut ids, mut io_apics, mut rest) = (Vec::new(), 0, &madt[44..]);
        while let [kind, length, ..] = *rest {
            match kind {
                0 => {
                    assert_eq!((rest[2], u32_at(rest, 4)), (rest[3], 1));
                    ids.push(u32::from(rest[3]));
                }
                1 => io_apics += 1,
                kind => panic!("entry of type {kind}"),
            }
            rest = &rest[length.into()..];
        }
        assert_eq!(ids, (0..vcpus).collect::<Vec<_>>());
        assert_eq!(io_apics, 1);
    }
}

#[test]
fn the_fadt_is_hardware_reduced_with_sleep_and_reset_ports() {
    let fadt = table(1, "FACP");
    assert_eq!(u32_at(&fadt, 112) & (1 << 20 | 1 << 10), 1 << 20 | 1 << 10);
    // Generic addresses: space 1 is I/O, eight bits, byte access.
    for (at, port) in [
        (116, layout::ACPI_RESET_PORT),
        (244, layout::ACPI_SLEEP_CONTROL_PORT),
        (256, layout::ACPI_SLEEP_STATUS_PORT),
    ] {
        assert_eq!(fadt[at..at + 4], [1, 8, 0, 1]);
        assert_eq!(u64_at(&fadt, at + 4), u64::from(port));
    }
    assert_eq!(fadt[128], layout::ACPI_RESET_VALUE);
}

#[test]
fn the_dsdt_has_both_serial_ports_and_power_off() {
    let dsdt = table(1, "DSDT");
    let count = |needle: &[u8]| dsdt.windows(needle.len()).filter(|w| w == &needle).count();
    // EISA id PNP0501; an I/O descriptor for each port; an interrupt for each.
    assert_eq!(count(&[0x0c, 0x41, 0xd0, 0x05, 0x01]), 2);
    for (port, irq) in [(layout::COM1_PORT, 4), (layout::COM2_PORT, 3)] {
        let [low, high] = port.to_le_bytes();
        assert_eq!(count(&[0x47, 1, low, high, low, high, 1, 8]), 1);
        assert_eq!(count(&[0x89, 6, 0, 3, 1, irq, 0, 0, 0]), 1);
    }
    assert_eq!(count(b"_S5_\x12"), 1);
    assert_eq!(layout::ACPI_POWER_OFF, 0x34);
}
