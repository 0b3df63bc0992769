//! Runs the end-to-end tests of the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tests::main()
}
