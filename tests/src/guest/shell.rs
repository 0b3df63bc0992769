//! `pvticket boot` without a command: the guest's shell.

use super::{ON_VCPU_1, one_slot};
use crate::prelude::*;

tests![
    the_last_output_of_a_shell_arrives,
    the_end_of_the_input_ends_the_shell,
    a_shell_at_a_terminal,
    ctrl_a_x_leaves_the_shell,
];

fn the_last_output_of_a_shell_arrives() -> anyhow::Result<()> {
    let sums = "for i in 1 2 3 4 5 6 7 8; do echo sum $((40+i)); done";
    let script = format!("{ON_VCPU_1}\n{sums}\nexit 9\n").into_bytes();
    let ran = one_slot().input(Input::Bytes(script)).run()?.exits(9)?;
    ran.stdout_has(&["sum 48"])
}

/// The shell exits with the last command's status, also if a program read the input's end.
fn the_end_of_the_input_ends_the_shell() -> anyhow::Result<()> {
    Boot::direct().input(Input::Null).run()?.exits(0)?;
    let run = |script: &str| Boot::direct().input(Input::Bytes(script.into())).run();
    let ran = run("echo sum $((40+2))\nfalse\n")?.exits(1)?;
    ran.stdout_has(&["sum 42"])?;
    let ran = run("echo sum $((40+2)); sh -c 'exit 9'")?.exits(9)?;
    ran.stdout_has(&["sum 42"])?;
    let ran = run("wc -c > /count; echo read $(cat /count)\nhello\n")?.exits(0)?;
    ran.stdout_has(&["read 6"])
}

fn a_shell_at_a_terminal() -> anyhow::Result<()> {
    let terminal = Terminal::open()?;
    let mut running = terminal.start(Boot::direct().program())?;
    terminal.wait_for_raw(&mut running)?;
    terminal.wait_for(&mut running, "# ")?;
    terminal.press(b"echo sum $((40+2))\r")?;
    terminal.wait_for(&mut running, "sum 42")?;
    // Once the guest's shell runs, Ctrl-C goes to the guest.
    terminal.press(b"sh -c 'echo asleep; sleep 600' # x\r")?;
    terminal.wait_for(&mut running, "\nasleep")?;
    terminal.press(b"\x03")?;
    terminal.press(b"echo status $?\r")?;
    terminal.wait_for(&mut running, "status 130")?;
    terminal.press(b"exit 3\r")?;
    running.wait()?.exits(3)?;
    terminal.is_restored()
}

fn ctrl_a_x_leaves_the_shell() -> anyhow::Result<()> {
    let terminal = Terminal::open()?;
    let mut running = terminal.start(Boot::direct().program())?;
    terminal.wait_for(&mut running, "# ")?;
    terminal.press(b"\x01x")?;
    running.wait()?.exits(130)?;
    terminal.is_restored()
}
