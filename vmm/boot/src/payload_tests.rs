use vm_memory::{Bytes, GuestAddress};

use super::super::error::ImageError;
use super::super::test_fixtures::{CODE, elf, guest};
use super::*;

const MIB: u64 = MEMORY >> 20;

#[test]
fn a_payload_is_placed_between_image_and_stacks() {
    let memory = guest(MIB);
    let image = elf(IMAGE_GPA, IMAGE_GPA, STACKS_GPA - IMAGE_GPA);
    assert_eq!(load_payload(&memory, &image, Ring::User).unwrap(), Gpa(IMAGE_GPA));
    let mut code = [0; CODE.len()];
    memory.read_slice(&mut code, GuestAddress(IMAGE_GPA)).unwrap();
    assert_eq!(code, CODE);

    let refused = |image: &[u8]| match load_payload(&memory, image, Ring::User) {
        Err(BootError::Payload(error)) => error,
        result => panic!("{result:?}"),
    };
    let too_long = elf(IMAGE_GPA, IMAGE_GPA, STACKS_GPA - IMAGE_GPA + 1);
    assert!(matches!(refused(&too_long), ImageError::TooLarge { .. }));
    assert!(matches!(refused(&elf(SHARED_GPA, 0, 64)), ImageError::TooLow(IMAGE_GPA)));
    let mut elsewhere = elf(IMAGE_GPA, IMAGE_GPA, 64);
    elsewhere[24] = 64; // right after the code
    assert!(matches!(refused(&elsewhere), ImageError::Malformed(_)));
    assert!(matches!(
        refused(b"no ELF at all, but long enough for a header of sixty-four bytes"),
        ImageError::Truncated
    ));
}

#[test]
fn vcpus_start_in_ring_3_with_ports_and_a_stack() {
    for vcpu in [0, 1, 127] {
        let mut sregs = kvm_sregs::default();
        let regs = payload_registers(&mut sregs, VcpuId(vcpu), Gpa(IMAGE_GPA), Ring::User);
        assert_eq!((regs.rip, regs.rdi, regs.rsi), (IMAGE_GPA, vcpu.into(), SHARED_GPA));
        assert_eq!((regs.rflags, sregs.tr.base), (0x3002, layout::PAYLOAD_TSS.0));
        assert_eq!((regs.rsp + 8) % 16, 0);
        let stack = STACKS_GPA + u64::from(vcpu) * STACK_SIZE;
        assert!(regs.rsp > stack && regs.rsp < stack + STACK_SIZE);
        assert_eq!((sregs.cs.selector, sregs.ss.selector, sregs.ss.dpl), (0x23, 0x1b, 3));
        // EM clear, MP set; SSE allowed.
        assert_eq!(sregs.cr0 & 0b110, 0b010);
        assert_eq!(sregs.cr4, 0x620);
    }
}

#[test]
fn the_io_bitmap_permits_all_ports() {
    let memory = guest(MIB);
    write_tss(&memory).unwrap();
    let mut tss = vec![0; TSS_LIMIT as usize + 1];
    memory.read_slice(&mut tss, GuestAddress(layout::PAYLOAD_TSS.0)).unwrap();
    let bitmap = usize::from(u16::from_le_bytes([tss[102], tss[103]]));
    assert_eq!(tss[bitmap..].len(), 65536 / 8 + 1);
    assert!(tss[bitmap..tss.len() - 1].iter().all(|byte| *byte == 0));
    assert_eq!(tss.last(), Some(&0xff));
    const { assert!(layout::PAYLOAD_TSS.0 + (TSS_LIMIT as u64) < layout::CMDLINE.0) };
}
