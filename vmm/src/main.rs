//! pvticket: a virtual machine monitor for spinlocks under overcommit.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    pvticket::cli::main()
}
