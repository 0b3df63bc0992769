//! The coroutine that runs a vCPU's code.

use std::cell::Cell;
use std::{io, mem, ptr};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::{Access, Answer, Request, cover};

type RequestYielder = Yielder<Answer, Request>;

/// Address space of a stack; only touched pages cost memory. The deepest lock needs 1.1 KiB, a panic
/// that prints a backtrace 64 KiB. An overflow hits a guard page.
const STACK: usize = 128 << 10;

thread_local! {
    /// The yielder of the coroutine that runs on this thread; null outside a coroutine.
    static LINK: Cell<*const RequestYielder> = const { Cell::new(ptr::null()) };

    /// The cache line whose next load needs no request: see [`Vcpu::resume_with_line`].
    static GRANTED: Cell<usize> = const { Cell::new(NO_LINE) };
}

/// Bytes of a cache line, as a shift.
const LINE: u32 = 6;

const NO_LINE: usize = usize::MAX;

/// Restores the link when dropped, also by a panic.
struct Restore(*const RequestYielder);

impl Drop for Restore {
    fn drop(&mut self) {
        LINK.set(self.0);
    }
}

/// Suspends the calling vCPU until its machine grants `request`; returns the machine's answer. Outside a
/// vCPU it does nothing and returns zero.
#[inline(always)]
#[track_caller]
pub fn request(request: Request) -> Answer {
    cover::reach();
    suspend(request)
}

#[inline(always)]
fn suspend(request: Request) -> Answer {
    let link = LINK.get();
    if link.is_null() {
        return 0;
    }
    // SAFETY: LINK is not null only while the coroutine whose link it is runs on this thread: the
    // coroutine sets it when it is entered, here each time it is entered again, and `Vcpu::resume`
    // restores the previous link as soon as it is left, also by a panic. Neither the link nor the
    // coroutine can move to another thread. A running coroutine's link is alive.
    let answer = unsafe { &*link }.suspend(request);
    LINK.set(link);
    answer
}

/// Requests the access to an atomic at `address`, unless it is the load that was granted in advance.
#[inline(always)]
#[track_caller]
pub(crate) fn access(access: Access, address: usize) {
    cover::reach();
    if access == Access::Load && GRANTED.get() == address >> LINE {
        GRANTED.set(NO_LINE);
        return;
    }
    suspend(Request::Access(access, address));
}

/// Code on a separate stack that runs from one [`Request`] to the next.
pub struct Vcpu {
    /// `None` only during the drop.
    coroutine: Option<Coroutine<Answer, Request, (), DefaultStack>>,
}

impl Vcpu {
    /// Creates a vCPU that will run `code`. It has not started.
    pub fn new(code: impl FnOnce() + 'static) -> io::Result<Self> {
        let stack = DefaultStack::new(STACK)?;
        let coroutine = Coroutine::with_stack(stack, move |link: &RequestYielder, _| {
            LINK.set(link);
            code();
        });
        Ok(Self { coroutine: Some(coroutine) })
    }

    /// Answers the vCPU's last request, which now takes effect, and runs it to its next request.
    /// `None` if its code has returned; it must not be resumed again.
    ///
    /// The first call starts the code; its answer is ignored.
    #[inline(always)]
    pub fn resume(&mut self, answer: Answer) -> Option<Request> {
        let _restore = Restore(LINK.get());
        match self.coroutine.as_mut()?.resume(answer) {
            CoroutineResult::Yield(request) => Some(request),
            CoroutineResult::Return(()) => None,
        }
    }
}

impl Vcpu {
    /// Like [`Vcpu::resume`]. If the vCPU's first access is a load from the 64-byte cache line at
    /// `line`, it takes effect at once and is not requested. Also returns whether this was the case.
    #[inline(always)]
    pub fn resume_with_line(&mut self, answer: Answer, line: usize) -> (Option<Request>, bool) {
        GRANTED.set(line >> LINE);
        let request = self.resume(answer);
        let is_loaded = GRANTED.replace(NO_LINE) == NO_LINE;
        (request, is_loaded)
    }
}

impl Drop for Vcpu {
    /// Unwinds a coroutine that has not returned, so that the values on its stack are dropped. With
    /// panic = "abort" there is no unwinding, and they are leaked instead.
    fn drop(&mut self) {
        // Drops on the coroutine's stack are not steps.
        let _restore = Restore(LINK.replace(ptr::null()));
        if let Some(coroutine) = self.coroutine.take()
            && !cfg!(panic = "unwind")
            && coroutine.started()
            && !coroutine.done()
        {
            mem::forget(coroutine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn vcpu(code: impl FnOnce() + 'static) -> Vcpu {
        Vcpu::new(code).expect("a stack can be mapped")
    }

    #[test]
    fn answers_and_the_end_are_returned() {
        let sum = Rc::new(Cell::new(0));
        let shared = Rc::clone(&sum);
        let mut vcpu = vcpu(move || {
            for cpu in 1..=3 {
                shared.set(shared.get() + request(Request::IsOff(cpu)));
            }
        });
        let mut received = vcpu.resume(0);
        for cpu in 1..=3 {
            assert_eq!(received, Some(Request::IsOff(cpu)));
            received = vcpu.resume(10 * cpu as u32);
        }
        assert_eq!((received, sum.get()), (None, 60));
    }

    #[test]
    fn requests_outside_a_vcpu_return_zero() {
        let mut half_run = vcpu(|| {
            request(Request::Pause);
            request(Request::Pause);
        });
        assert_eq!(half_run.resume(0), Some(Request::Pause));
        assert_eq!(request(Request::IsOff(1)), 0);
        drop(half_run);
        assert_eq!(request(Request::IsOff(1)), 0);
    }

    #[test]
    fn an_unfinished_vcpu_drops_its_stack() {
        let held = Rc::new(());
        let shared = Rc::clone(&held);
        let mut vcpu = vcpu(move || {
            let _held = shared;
            request(Request::Pause);
        });
        vcpu.resume(0);
        assert_eq!(Rc::strong_count(&held), 2);
        drop(vcpu);
        assert_eq!(Rc::strong_count(&held), 1);
    }

    #[test]
    fn a_panic_propagates_and_clears_the_link() {
        let mut vcpu = vcpu(|| {
            request(Request::Pause);
            panic!("in the vCPU");
        });
        vcpu.resume(0);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| vcpu.resume(0)));
        assert!(panicked.is_err());
        assert_eq!(request(Request::IsOff(1)), 0);
    }

    #[test]
    fn one_granted_load_needs_no_request() {
        use crate::atomic::{AtomicU32, Ordering::Relaxed};
        let words = Rc::new([AtomicU32::new(1), AtomicU32::new(2)]);
        let address = ptr::from_ref(&words[0]).addr();
        let shared = Rc::clone(&words);
        let mut vcpu = vcpu(move || {
            request(Request::Pause);
            shared[0].load(Relaxed);
            shared[0].load(Relaxed);
            request(Request::Pause);
            shared[0].store(3, Relaxed);
        });
        let load = Some(Request::Access(Access::Load, address));
        vcpu.resume(0);
        assert_eq!(vcpu.resume_with_line(0, address), (load, true), "the second one");
        assert_eq!(vcpu.resume(0), Some(Request::Pause));
        let store = Some(Request::Access(Access::Store, address));
        assert_eq!(vcpu.resume_with_line(0, address), (store, false), "no load");
        assert_eq!(vcpu.resume(0), None);
    }

    #[test]
    fn vcpus_may_be_nested() {
        let mut outer = vcpu(|| {
            let mut inner = vcpu(|| _ = request(Request::Kick(7)));
            assert_eq!(inner.resume(0), Some(Request::Kick(7)));
            request(Request::Pause);
            assert_eq!(inner.resume(0), None);
        });
        assert_eq!(outer.resume(0), Some(Request::Pause), "not the inner one's");
        assert_eq!(outer.resume(0), None);
    }
}
