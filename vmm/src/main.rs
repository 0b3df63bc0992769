//! pvticket: a virtual machine monitor for spinlocks under overcommit.

#![forbid(unsafe_code)]

#[global_allocator]
static HEAP: pvticket::cli::Heap = pvticket::cli::Heap;

fn main() -> std::process::ExitCode {
    pvticket::cli::main()
}
