//! The VMM that runs the guest: pvticket with its ports, or another.

use core::arch::{asm, x86_64::__cpuid};

use hypercalls::{
    ABI_VERSION, cpuid,
    ports::{self, GuestEvent},
};
use rustix::{
    fs,
    system::{RebootCommand, reboot},
};

use crate::{console, kernel_facts, output_page::OutputPage, report, syscall};

/// The destination of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// The VMM, with the features that process 1 can use.
pub enum Platform {
    /// The pvticket VMM.
    Pvticket(Ports),
    /// No usable ports, for example under QEMU: only the console is available.
    Other,
}

impl Platform {
    /// Detects pvticket by CPUID and, if it is found, opens its ports.
    pub fn detect() -> Self {
        Ports::detect().map_or(Self::Other, Self::Pvticket)
    }

    /// Reports an event to the VMM, if it is pvticket.
    pub fn event(&self, event: GuestEvent) {
        if let Self::Pvticket(ports) = self {
            ports.write(ports::EVENT, event as u32);
        }
    }

    /// Reports the locations of the kernel's locks to the VMM, if it is pvticket and asks for them.
    pub fn report_kernel_facts(&self) {
        if let Self::Pvticket(ports) = self {
            ports.report_kernel_facts();
        }
    }

    /// Ends the VM with this exit status.
    pub fn shut_down(&self, status: i32) -> ! {
        fs::sync();
        console::drain();
        if let Self::Pvticket(ports) = self {
            ports.write(ports::EXIT, status as u32);
        }
        // Without pvticket, or if it did not end the VM, only the console can show the status.
        report::error(format_args!("exit status {status}"));
        console::drain();
        let _ = reboot(RebootCommand::PowerOff);
        // Reached only if reboot fails: the end of process 1 panics the kernel, which ends the VM.
        syscall::exit(status)
    }
}

/// The VMM's ports, open to this process.
pub struct Ports {
    base: u16,
    features: u32,
}

impl Ports {
    fn detect() -> Option<Self> {
        let base = __cpuid(cpuid::LEAF_BASE);
        if [base.ebx, base.ecx, base.edx] != cpuid::signature_registers() {
            return None;
        }
        let leaf = __cpuid(cpuid::LEAF_FEATURES);
        if leaf.edx != ABI_VERSION || leaf.eax & cpuid::FEATURE_CONSOLE == 0 {
            return None;
        }
        let base = leaf.ebx as u16;
        match syscall::ioperm(base, ports::SPAN, true) {
            Ok(()) => Some(Self { base, features: leaf.eax }),
            Err(_) => {
                report::error(format_args!(
                    "the kernel denies port access, which requires CONFIG_X86_IOPL_IOPERM"
                ));
                None
            }
        }
    }

    /// Revokes the calling process's access: for a child that is about to execute another program.
    pub fn revoke(&self) {
        // Access was granted, so revoking it succeeds.
        let _ = syscall::ioperm(self.base, ports::SPAN, false);
    }

    /// Allocates and announces a page for output, if the VMM accepts it and its frame is known.
    pub fn output_page(&self) -> Option<OutputPage> {
        if self.features & cpuid::FEATURE_OUTPUT_PAGE == 0 {
            return None;
        }
        let page = OutputPage::new()?;
        self.write(ports::OUTPUT_PAGE, page.frame());
        Some(page)
    }

    /// Reports the locations of the kernel's locks to the VMM, if it asks for them.
    fn report_kernel_facts(&self) {
        if self.read(ports::KERNEL_FACTS) == 0 {
            return;
        }
        if let Some((facts, mut page)) = kernel_facts::read().zip(OutputPage::new()) {
            let bytes = facts.to_bytes();
            page.bytes()[..bytes.len()].copy_from_slice(&bytes);
            self.write(ports::KERNEL_FACTS, page.frame());
        }
    }

    /// Hands the first `count` bytes of the output page to the VMM.
    pub fn write_output_page(&self, stream: OutputStream, count: u32) {
        let port = match stream {
            OutputStream::Stdout => ports::STDOUT_PAGE,
            OutputStream::Stderr => ports::STDERR_PAGE,
        };
        self.write(port, count);
    }

    /// Passes `bytes` to the VMM by a string instruction.
    pub fn write_output(&self, stream: OutputStream, bytes: &[u8]) {
        let port = match stream {
            OutputStream::Stdout => ports::STDOUT,
            OutputStream::Stderr => ports::STDERR,
        };
        // SAFETY: `detect` was granted these ports; the instruction only reads `bytes`, upwards,
        // because the direction flag is clear by the ABI.
        unsafe {
            asm!("rep outsb", in("dx") self.base + port, inout("rcx") bytes.len() => _,
                inout("rsi") bytes.as_ptr() => _, options(nostack, preserves_flags, readonly));
        }
    }

    /// The number of bytes of stdin that are ready, or [`ports::STDIN_EOF`].
    pub fn stdin_ready(&self) -> u32 {
        self.read(ports::STDIN_AVAIL)
    }

    /// Fills `into`, of at most [`stdin_ready`](Self::stdin_ready) bytes, from stdin.
    pub fn read_stdin(&self, into: &mut [u8]) {
        // SAFETY: `detect` was granted these ports; the instruction writes all of `into` and nothing
        // else, upwards, because the direction flag is clear by the ABI.
        unsafe {
            asm!("rep insb", in("dx") self.base + ports::STDIN, inout("rcx") into.len() => _,
                inout("rdi") into.as_mut_ptr() => _, options(nostack, preserves_flags));
        }
    }

    fn read(&self, port: u16) -> u32 {
        let value;
        // SAFETY: `detect` was granted these ports.
        unsafe {
            asm!("in eax, dx", in("dx") self.base + port, out("eax") value,
                options(nostack, nomem, preserves_flags));
        }
        value
    }

    fn write(&self, port: u16, value: u32) {
        // SAFETY: `detect` was granted these ports. Not `nomem`: the VMM may read guest memory.
        unsafe {
            asm!("out dx, eax", in("dx") self.base + port, in("eax") value,
                options(nostack, preserves_flags));
        }
    }
}
