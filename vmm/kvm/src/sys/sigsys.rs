//! Handles system calls trapped by a seccomp filter: reports them, and either ends the process or makes
//! the call anyway.
//!
//! A trap (`SECCOMP_RET_TRAP`) raises SIGSYS in the calling thread, the only place where its class and
//! the request are known. If the kernel killed the process instead, the parent would learn only the
//! signal number.

use std::{
    cell::Cell,
    io, mem, ptr,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::fatal;

/// Exit status of a process after a forbidden call: 128 plus the number of SIGSYS, as in shells.
pub const STATUS: i32 = 128 + libc::SIGSYS;

/// `si_code` of a SIGSYS from a seccomp filter (include/uapi/asm-generic/siginfo.h).
const SYS_SECCOMP: i32 = 1;

/// The action on a trapped call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Report the call and end the process.
    End,
    /// Report the first occurrence and make the call.
    Log,
    /// Log the first occurrence as `class call request`, and make the call.
    Note,
}

/// Configuration of the SIGSYS handler.
#[derive(Debug)]
pub struct Reporter {
    /// The action on a trapped call.
    pub action: Action,
    /// The descriptor to write reports to.
    pub to: i32,
    /// System call names, indexed by number; empty if unknown.
    pub calls: &'static [&'static str],
    /// Names of ioctl requests.
    pub requests: &'static [(u32, &'static str)],
}

/// The class of threads that have not set one.
pub const NEW: &str = "new";

static REPORTER: OnceLock<Reporter> = OnceLock::new();

thread_local! {
    static CLASS: Cell<&'static str> = const { Cell::new(NEW) };
}

/// Sets the class under which this thread is reported.
pub fn set_class(class: &'static str) {
    CLASS.set(class);
}

/// Reports trapped calls from now on. Only the first `install` in a process has an effect.
pub fn install(reporter: Reporter) -> io::Result<()> {
    // Under `End`, a trapped call within the handler ends the process without a report.
    let flags = if reporter.action == Action::End { 0 } else { libc::SA_NODEFER };
    if REPORTER.set(reporter).is_err() {
        return Ok(());
    }
    // SAFETY: the sigaction is zeroed and then filled in. The handler has the signature required by
    // SA_SIGINFO and makes only async-signal-safe calls (signal-safety(7)) on data initialised before.
    // With SA_NODEFER, a trapped call within the handler is reported as well. Otherwise the signal is
    // blocked, and its default action ends the process, so no call remains unnoticed.
    let result = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction =
            handle as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        libc::sigaction(libc::SIGSYS, &action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

std::arch::global_asm!(
    ".pushsection .text.pvticket_gate, \"ax\"",
    ".globl pvticket_gate",
    ".globl pvticket_gate_end",
    "pvticket_gate:",
    // (number, six arguments): the last one is on the stack.
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, [rsp + 8]",
    "syscall",
    "pvticket_gate_end:",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    /// Makes a system call from the only address that filters with [`gate`] let pass.
    fn pvticket_gate(number: i64, a: i64, b: i64, c: i64, d: i64, e: i64, f: i64) -> i64;
    /// The instruction after the system call.
    fn pvticket_gate_end();
}

/// The instruction pointer that seccomp sees for calls made by the handler under [`Action::Log`] and
/// [`Action::Note`].
pub fn gate() -> u64 {
    pvticket_gate_end as *const () as u64
}

extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a siginfo and the ucontext of the interrupted call. Both live until the
    // handler returns, and nothing else refers to them.
    let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    let registers = &mut context.uc_mcontext.gregs;
    let at = |register: libc::c_int| registers[register as usize];
    // The kernel restores the number before the trap (syscall_rollback).
    let number = at(libc::REG_RAX);
    let arguments =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8].map(at);
    let last = at(libc::REG_R9);
    let reporter = REPORTER.get().filter(|_| info.si_code == SYS_SECCOMP);
    let Some(reporter) = reporter.filter(|reporter| reporter.action != Action::End) else {
        end(reporter, number, arguments[1] as u32);
    };
    if REPORTED_CALLS.is_first(CLASS.get(), number, arguments[1] as u32) {
        report(reporter, number, arguments[1] as u32);
    }
    let [a, b, c, d, e] = arguments;
    // SAFETY: makes the program's own call with its own arguments, as safe as the original. Filters with
    // a gate never trap calls that a handler cannot make for its thread (clone, sigreturn, the signal
    // mask).
    registers[libc::REG_RAX as usize] = unsafe { pvticket_gate(number, a, b, c, d, e, last) };
}

/// Reports the call and ends the process.
fn end(reporter: Option<&Reporter>, number: i64, request: u32) -> ! {
    fatal::restore_terminal();
    if let Some(reporter) = reporter {
        report(reporter, number, request);
    }
    // SAFETY: ends the process without touching its state.
    unsafe { libc::_exit(STATUS) }
}

/// Writes one line, if the descriptor accepts it without blocking.
fn report(reporter: &Reporter, number: i64, request: u32) {
    let mut line = LineBuffer::default();
    let call = usize::try_from(number).ok().and_then(|number| reporter.calls.get(number));
    let call = call.filter(|name| !name.is_empty());
    let is_note = reporter.action == Action::Note;
    line.add(if is_note { "" } else { "pvticket: seccomp: a thread of class " });
    line.add(CLASS.get());
    line.add(if is_note { " " } else { " called " });
    match call {
        Some(name) => line.add(name),
        None => line.add_hex(number as u64),
    }
    if number == libc::SYS_ioctl {
        line.add(" ");
        match reporter.requests.iter().find(|(known, _)| *known == request) {
            Some((_, name)) => line.add(name),
            None => line.add_hex(request.into()),
        }
    }
    line.add(match reporter.action {
        Action::Note => "\n",
        Action::Log => ", which is not on its list; allowed (PVTICKET_SECCOMP=log)\n",
        Action::End => ", which is not on its list; ended (PVTICKET_SECCOMP)\n",
    });
    let mut ready = libc::pollfd { fd: reporter.to, events: libc::POLLOUT, revents: 0 };
    let (ready, bytes) =
        (ptr::from_mut(&mut ready).expose_provenance(), line.bytes.as_ptr().expose_provenance());
    // SAFETY: both pointers refer to live objects of the lengths passed. The kernel writes only the
    // pollfd, which is not read afterwards. The write follows a poll that guarantees it does not block.
    // Both calls use the gate, so that the report itself is not trapped.
    unsafe {
        if pvticket_gate(libc::SYS_poll, ready as i64, 1, 0, 0, 0, 0) == 1 {
            let to = reporter.to.into();
            pvticket_gate(libc::SYS_write, to, bytes as i64, line.len as i64, 0, 0, 0);
        }
    }
}

/// A line built without allocation. Excess text is dropped.
struct LineBuffer {
    bytes: [u8; 192],
    len: usize,
}

impl Default for LineBuffer {
    fn default() -> Self {
        Self { bytes: [0; 192], len: 0 }
    }
}

impl LineBuffer {
    fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            if let Some(room) = self.bytes.get_mut(self.len) {
                *room = byte;
                self.len += 1;
            }
        }
    }

    fn add_hex(&mut self, number: u64) {
        self.add("0x");
        let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            let digit = (number >> (4 * digit) & 0xf) as usize;
            self.add(&"0123456789abcdef"[digit..=digit]);
        }
    }
}

/// An open-addressing hash table of reported calls.
struct ReportedCalls([AtomicU64; 1024]);

static REPORTED_CALLS: ReportedCalls = ReportedCalls([const { AtomicU64::new(0) }; 1024]);

impl ReportedCalls {
    /// Whether a thread of this class first makes this call (for an ioctl, this request). Also true if
    /// a full table lacks it.
    fn is_first(&self, class: &str, number: i64, request: u32) -> bool {
        let request = if number == libc::SYS_ioctl { request } else { 0 };
        // Never zero. Distinguishes classes by the addresses of their static names.
        let key =
            (class.as_ptr() as u64) << 40 ^ u64::from(request) << 10 ^ (number as u64 & 0x3ff)
                | 1 << 63;
        let start = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
        for step in 0..self.0.len() {
            let slot = &self.0[(start + step) % self.0.len()];
            match slot.compare_exchange(0, key, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(present) if present == key => return false,
                Err(_) => {}
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_of_a_class_is_reported_once() {
        let reported = ReportedCalls([const { AtomicU64::new(0) }; 1024]);
        let (vcpu, helper) = ("vcpu", "courier");
        assert!(reported.is_first(vcpu, 1, 0) && !reported.is_first(vcpu, 1, 7));
        assert!(reported.is_first(helper, 1, 0) && reported.is_first(vcpu, 2, 0));
        assert!(reported.is_first(vcpu, libc::SYS_ioctl, 0xae80));
        assert!(reported.is_first(vcpu, libc::SYS_ioctl, 0xae81));
        assert!(!reported.is_first(vcpu, libc::SYS_ioctl, 0xae80));
    }

    #[test]
    fn lines_have_a_limit() {
        let mut line = LineBuffer::default();
        line.add_hex(0xae80);
        line.add_hex(0);
        assert_eq!(&line.bytes[..line.len], b"0xae800x0");
        (0..100).for_each(|_| line.add("long"));
        assert_eq!(line.len, line.bytes.len());
    }

    #[test]
    fn the_gate_makes_calls() {
        // SAFETY: getpid has no arguments.
        let id = unsafe { pvticket_gate(libc::SYS_getpid, 0, 0, 0, 0, 0, 0) };
        assert_eq!(id, i64::from(std::process::id()));
    }
}
