//! Tests of pvticket from outside: see the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tests::main()
}
