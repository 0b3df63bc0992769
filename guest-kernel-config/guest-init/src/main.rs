//! `/init` of the Linux guest: sets up the file systems, runs the command (or a shell), and passes
//! its output and exit status to the VMM.
//!
//! Freestanding: no libc, one thread, system calls through rustix.

#![no_std]
#![no_main]

extern crate alloc;

mod child;
mod command;
mod console;
mod entry;
mod filesystems;
mod heap;
mod kernel_facts;
mod machine;
mod memory;
mod output_page;
mod report;
mod shell;
mod stdin;
mod syscall;

use machine::Platform;

/// Exit status if the command or shell cannot run.
const STATUS_FAILURE: i32 = 255;

/// Runs process 1; in any other process returns the exit status.
fn run() -> i32 {
    if rustix::process::getpid().is_init() {
        init()
    }
    report::error(format_args!("this is not process 1"));
    2
}

fn init() -> ! {
    // First, because the kernel's boot time is measured up to here.
    let machine = Platform::detect();
    machine.event(hypercalls::ports::GuestEvent::InitReached);

    filesystems::set_up();
    machine.report_kernel_facts();
    let _serial_line = console::keep_serial_line();
    let (program, result) = match filesystems::read(c"/pvticket/argv") {
        Some(argv) => ("the command", command::run(&machine, &argv)),
        None => ("a shell on the console", shell::run(&machine)),
    };
    machine.shut_down(result.unwrap_or_else(|error| {
        report::error(format_args!("cannot start {program}: {error}"));
        STATUS_FAILURE
    }))
}
