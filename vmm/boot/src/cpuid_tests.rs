use super::*;

fn intel() -> Vec<kvm_cpuid_entry2> {
    vec![
        leaf(0, [0x1f, 0x756e_6547, 0x6c65_746e, 0x4965_6e69]),
        leaf(1, [0x806f8, 0xff12_0800, 0xffff_ffff, 0x0fff_ffff]),
        subleaf(4, 0, [0xfc00_4121, 0, 0, 0]),
        subleaf(4, 1, [0xfc00_4143, 0, 0, 0]),
        subleaf(4, 2, [0xfc03_c163, 0, 0, 0]),
        subleaf(4, 3, [0, 0, 0, 0]),
        subleaf(0xa, 0, [0x0830_0805, 1, 2, 3]),
        subleaf(0xb, 0, [1, 2, 0x100, 77]),
        subleaf(0xb, 1, [7, 128, 0x201, 77]),
        leaf(0x4000_0000, [0x4000_0001, 0x4b4d_564b, 0x564b_4d56, 0x4d]),
        leaf(0x4000_0001, [0x0100_7efb & !(1 << 7), 0, 0, 1]),
        leaf(0x8000_0001, [0, 0, 0x2f, 0]),
        leaf(0x8000_0008, [0x3030, 0, 0xbeef, 0]),
    ]
}

fn amd() -> Vec<kvm_cpuid_entry2> {
    let mut table = intel();
    table[0] = leaf(0, [0xd, 0x6874_7541, 0x444d_4163, 0x6974_6e65]);
    table.retain(|entry| !matches!(entry.function, 4 | 0xb));
    table.push(subleaf(0x8000_001d, 0, [0x121, 0, 0, 0]));
    table.push(subleaf(0x8000_001d, 3, [0x163, 0, 0, 0]));
    table.push(leaf(0x8000_001e, [9, 9, 9, 0]));
    table
}

fn spec(vcpus: u32) -> CpuidSpec {
    CpuidSpec {
        steal: StealSource::Kvm,
        vcpus: vcpus.try_into().unwrap(),
        tsc_deadline: true,
        lock_hypercalls: true,
        halts_in_kvm: true,
        kvm_kick: true,
        doorbell: false,
        telemetry: false,
    }
}

fn registers(table: &[kvm_cpuid_entry2], leaf: u32, index: u32) -> [u32; 4] {
    let same = |e: &&kvm_cpuid_entry2| e.function == leaf && e.index == index;
    let entries: Vec<_> = table.iter().filter(same).collect();
    assert_eq!(entries.len(), 1, "leaf {leaf:#x}.{index} is there once");
    [entries[0].eax, entries[0].ebx, entries[0].ecx, entries[0].edx]
}

#[test]
fn extended_state_needs_xsave() {
    let mut table = vec![leaf(1, [0, 0, 1 << 26, 0]), subleaf(0xd, 0, [7, 0, 0, 2])];
    assert_eq!(extended_state(&mut table), Some(0x2_0000_0007));
    table[0].ecx = 0;
    assert_eq!(extended_state(&mut table), None);
    assert_eq!(extended_state(&mut []), None);
}

#[test]
fn every_leaf_gives_the_vcpus_own_apic_id() {
    for supported in [intel(), amd()] {
        for id in [0, 1, 5, 127] {
            let table = table(&supported, &spec(128), VcpuId(id));
            assert_eq!(registers(&table, 1, 0)[1] >> 24, id);
            for index in 0..3 {
                assert_eq!(registers(&table, 0xb, index)[3], id);
            }
        }
    }
    assert_eq!(registers(&table(&intel(), &spec(8), VcpuId(5)), 0x1f, 1)[3], 5);
    assert_eq!(registers(&table(&amd(), &spec(8), VcpuId(5)), 0x8000_001e, 0), [5, 5, 0, 0]);
}

#[test]
fn one_socket_of_cores_with_one_thread() {
    // Number of vCPUs, and of the APIC id bits for the cores.
    for (vcpus, bits) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (128, 7)] {
        let of_intel = table(&intel(), &spec(vcpus), VcpuId(0));
        assert_eq!(registers(&of_intel, 1, 0)[1] >> 16 & 0xff, vcpus);
        assert_eq!(registers(&of_intel, 0xb, 0), [0, 1, 0x100, 0]);
        assert_eq!(registers(&of_intel, 0xb, 1), [bits, vcpus, 0x201, 0]);
        assert_eq!(registers(&of_intel, 0xb, 2), [0, 0, 2, 0]);
        assert_eq!(registers(&of_intel, 1, 0)[3] >> 28 & 1, u32::from(vcpus > 1));

        let of_amd = table(&amd(), &spec(vcpus), VcpuId(0));
        assert_eq!(registers(&of_amd, 0, 0)[0], 0xd, "no leaf 0x1f where it was not");
        assert_eq!(registers(&of_amd, 0x8000_0008, 0)[2] & 0xf0ff, (vcpus - 1) | (bits << 12));
        assert_eq!(registers(&of_amd, 0x8000_0001, 0)[2] >> 1 & 1, u32::from(vcpus > 1));
    }
}

#[test]
fn caches_are_shared_by_level() {
    let table = table(&intel(), &spec(6), VcpuId(0));
    let shared = |index| registers(&table, 4, index)[0] >> 14 & 0xfff;
    assert_eq!([shared(0), shared(1), shared(2)], [0, 0, 7]);
    assert_eq!(registers(&table, 4, 0)[0] >> 26, 7);
    assert_eq!(registers(&table, 4, 3), [0; 4]);
}

#[test]
fn absent_features_are_masked() {
    let table = table(&intel(), &spec(2), VcpuId(0));
    let ecx = registers(&table, 1, 0)[2];
    for (bit, expected) in [(3, 0), (5, 0), (15, 0), (24, 1), (31, 1), (21, 1)] {
        assert_eq!(ecx >> bit & 1, expected, "bit {bit}");
    }
    assert_eq!(registers(&table, 0xa, 0), [0; 4]);
    assert_eq!(registers(&table, 0x8000_0001, 0)[2] & 1 << 2, 0);

    let no_timer = CpuidSpec { tsc_deadline: false, ..spec(2) };
    let table = super::table(&intel(), &no_timer, VcpuId(0));
    assert_eq!(registers(&table, 1, 0)[2] >> 24 & 1, 0);
}

#[test]
fn lock_features_depend_on_the_backend() {
    let always =
        FEATURE_CONSOLE | FEATURE_OUTPUT_PAGE | FEATURE_WINDOW | FEATURE_PANIC | FEATURE_YIELD_TO;
    let with_locks = always | FEATURE_LOCK_HYPERCALLS;
    let cases = [
        (false, false, always),
        (true, false, with_locks),
        (false, true, always | FEATURE_DOORBELL),
    ];
    for (lock_hypercalls, doorbell, features) in cases {
        let spec = CpuidSpec { lock_hypercalls, doorbell, ..spec(2) };
        let table = table(&intel(), &spec, VcpuId(1));
        let [eax, ebx, ecx, edx] = registers(&table, LEAF_BASE, 0);
        assert_eq!(
            (eax, [ebx, ecx, edx]),
            (LEAF_FEATURES, hypercalls::cpuid::signature_registers())
        );
        let expected = [features, ports::DEFAULT_BASE.into(), 0, ABI_VERSION];
        assert_eq!(registers(&table, LEAF_FEATURES, 0), expected);
    }
}

#[test]
fn table_is_idempotent() {
    let once = table(&amd(), &spec(4), VcpuId(3));
    assert_eq!(table(&once, &spec(4), VcpuId(3)), once);
    // No leaf is assumed to exist.
    assert_eq!(table(&[], &spec(4), VcpuId(3)).len(), 2);
}

/// KVM flushes a preempted vCPU's TLB at its entry only if KVM writes the record with the request.
#[test]
fn steal_time_and_its_flushes_follow_the_writer() {
    const STEAL_TIME: u32 = 1 << 5;
    const PV_TLB_FLUSH: u32 = 1 << 9;
    let features = |offered: u32, steal| {
        let mut host = intel();
        host.retain(|entry| entry.function != 0x4000_0001);
        host.push(leaf(0x4000_0001, [offered, 0, 0, 0]));
        let table = table(&host, &CpuidSpec { steal, ..spec(2) }, VcpuId(0));
        registers(&table, 0x4000_0001, 0)[0] & (STEAL_TIME | PV_TLB_FLUSH)
    };
    let both = STEAL_TIME | PV_TLB_FLUSH;
    assert_eq!(features(both, StealSource::Kvm), both);
    assert_eq!(features(both, StealSource::Schedule), STEAL_TIME);
    assert_eq!(features(both, StealSource::Off), 0);
    assert_eq!(features(0, StealSource::Schedule), STEAL_TIME, "KVM is not asked");
    assert_eq!(features(0, StealSource::Kvm), 0);
}

/// Row 14 of tests/HISTORY.md: a guest that is offered kicks for halted vCPUs must be able to halt. Stock
/// kernels without KVM's kick use test-and-set, as they detect the hypervisor. `HINTS_REALTIME` is clear.
#[test]
fn kicks_are_offered_only_where_hlt_halts_in_kvm() {
    const PV_UNHALT: u32 = 1 << 7;
    for (halts_in_kvm, kvm_kick, unhalt, doorbell) in [
        (true, true, PV_UNHALT, FEATURE_DOORBELL),
        (false, true, 0, 0),
        (true, false, 0, FEATURE_DOORBELL),
    ] {
        let spec = CpuidSpec { halts_in_kvm, kvm_kick, doorbell: true, ..spec(2) };
        let table = table(&intel(), &spec, VcpuId(0));
        assert_eq!(registers(&table, 0x4000_0000, 0)[0], 0x4000_0001);
        let [features, _, _, hints] = registers(&table, 0x4000_0001, 0);
        assert_eq!((features & PV_UNHALT, hints & 1), (unhalt, 0), "{spec:?}");
        assert_eq!(registers(&table, 1, 0)[2] >> 31, 1, "{spec:?}");
        assert_eq!(registers(&table, LEAF_FEATURES, 0)[0] & FEATURE_DOORBELL, doorbell);
    }
}
