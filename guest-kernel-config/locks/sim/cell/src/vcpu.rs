//! The coroutine that a vCPU's code runs in.

use std::cell::Cell;
use std::{io, mem, ptr};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::{Answer, Request};

type Link = Yielder<Answer, Request>;

/// Address space of a stack, of which touched pages alone cost. The deepest lock needs 1.1 KiB; a
/// panic that prints a backtrace 64. What overflows hits a guard page.
const STACK: usize = 128 << 10;

thread_local! {
    /// The way out of the coroutine that runs on this thread right now; null: none does.
    static LINK: Cell<*const Link> = const { Cell::new(ptr::null()) };
}

/// Restores the link when it is dropped, by a panic too.
struct Restore(*const Link);

impl Drop for Restore {
    fn drop(&mut self) {
        LINK.set(self.0);
    }
}

/// Suspends the vCPU that runs this until its machine grants `what`, and gives the machine's answer.
/// Outside of a vCPU it does nothing, and the answer is zero.
#[inline(always)]
pub fn request(what: Request) -> Answer {
    let link = LINK.get();
    if link.is_null() {
        return 0;
    }
    // SAFETY: LINK is not null only while the coroutine whose link it is runs on this thread: the
    // coroutine sets it when it is entered, here each time it is entered again, and `Vcpu::resume`
    // puts back what was there before as soon as it is left, also by a panic. Neither the link nor
    // the coroutine can go to another thread. A running coroutine's link is alive.
    let answer = unsafe { &*link }.suspend(what);
    LINK.set(link);
    answer
}

/// Code on a stack of its own that runs from one [`Request`] to the next.
pub struct Vcpu {
    /// `None` only while it is dropped.
    coroutine: Option<Coroutine<Answer, Request, (), DefaultStack>>,
}

impl Vcpu {
    /// A vCPU that is to run `code`. It has not begun to.
    pub fn new(code: impl FnOnce() + 'static) -> io::Result<Self> {
        let stack = DefaultStack::new(STACK)?;
        let coroutine = Coroutine::with_stack(stack, move |link: &Link, _| {
            LINK.set(link);
            code();
        });
        Ok(Self { coroutine: Some(coroutine) })
    }

    /// Answers the request that the vCPU made last, which now takes effect, and lets it run to its
    /// next. `None`: its code has returned, and it must not be resumed again.
    ///
    /// The first call begins the code; its answer is for nobody.
    #[inline(always)]
    pub fn resume(&mut self, answer: Answer) -> Option<Request> {
        let _restore = Restore(LINK.get());
        match self.coroutine.as_mut()?.resume(answer) {
            CoroutineResult::Yield(request) => Some(request),
            CoroutineResult::Return(()) => None,
        }
    }
}

impl Drop for Vcpu {
    /// A coroutine that has not returned is unwound, so that what is on its stack is dropped. Where
    /// a panic aborts there is no unwinding, and it is left in memory instead.
    fn drop(&mut self) {
        // What is dropped on the coroutine's stack is no longer a step of anything.
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
        Vcpu::new(code).expect("a stack can be had")
    }

    #[test]
    fn answers_arrive_and_the_end_is_told() {
        let sum = Rc::new(Cell::new(0));
        let of_vcpu = Rc::clone(&sum);
        let mut vcpu = vcpu(move || {
            for cpu in 1..=3 {
                of_vcpu.set(of_vcpu.get() + request(Request::IsOff(cpu)));
            }
        });
        let mut asked = vcpu.resume(0);
        for cpu in 1..=3 {
            assert_eq!(asked, Some(Request::IsOff(cpu)));
            asked = vcpu.resume(10 * cpu as u32);
        }
        assert_eq!((asked, sum.get()), (None, 60));
    }

    #[test]
    fn nothing_is_asked_outside_of_a_vcpu_even_after_one_has_run() {
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
    fn a_half_run_vcpu_drops_what_is_on_its_stack() {
        let held = Rc::new(());
        let of_vcpu = Rc::clone(&held);
        let mut vcpu = vcpu(move || {
            let _held = of_vcpu;
            request(Request::Pause);
        });
        vcpu.resume(0);
        assert_eq!(Rc::strong_count(&held), 2);
        drop(vcpu);
        assert_eq!(Rc::strong_count(&held), 1);
    }

    #[test]
    fn a_panic_in_a_vcpu_reaches_its_machine_and_leaves_no_link_behind() {
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
    fn vcpus_nest() {
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
