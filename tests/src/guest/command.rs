//! `pvticket boot -- CMD`: the product passes on the command's streams and exit status.

use super::{ON_VCPU_1, one_slot};
use crate::{files::noise, prelude::*, product};

tests![
    exit_status_is_passed_on: Boot::direct().script("exit 7").run()?.exits(7)?.stdout_is("")?.no_stderr().map(drop),
    unknown_command_gives_127,
    signal_gives_128_and_its_number: Boot::direct().script("kill -TERM $$").run()?.exits(128 + 15).map(drop),
    stdout_and_stderr_are_separate,
    the_last_output_on_the_serial_line_arrives,
    a_mebibyte_of_noise_comes_back_unchanged,
    end_of_input_is_seen,
    input_is_left_to_others,
    unread_input_delays_nothing: Boot::direct().script("exit 3").input(Input::Bytes(noise(1 << 20))).run()?.exits(3).map(drop),
    silent_input_delays_nothing: Boot::direct().script("exit 4").input(Input::Silence).run()?.exits(4).map(drop),
    arguments_arrive_unchanged,
];

fn unknown_command_gives_127() -> anyhow::Result<()> {
    let ran = Boot::direct().command(["no-such-command", "x"]).run()?;
    ran.exits(127)?.stderr_has(&["no-such-command"])?.stdout_is("").map(drop)
}

fn stdout_and_stderr_are_separate() -> anyhow::Result<()> {
    let ran = Boot::direct().script("echo out; echo err >&2; printf end").run()?.exits(0)?;
    let ran = ran.stdout_is("out\nend")?;
    ensure!(ran.stderr == b"err\n", "stderr has other lines\n{}", ran.show());
    Ok(())
}

fn the_last_output_on_the_serial_line_arrives() -> anyhow::Result<()> {
    let script = format!("{ON_VCPU_1}; for i in 0 1 2 3 4 5 6 7 8 9; do echo word; done");
    let ran = one_slot().script(&format!("exec >/dev/ttyS0; {script}")).run()?.exits(0)?;
    let lines = String::from_utf8_lossy(&ran.stderr).matches("word").count();
    ensure!(lines == 10, "{lines} of 10 lines arrived\n{}", ran.show());
    Ok(())
}

fn a_mebibyte_of_noise_comes_back_unchanged() -> anyhow::Result<()> {
    let noise = noise((1 << 20) + 13);
    let ran = Boot::direct().command(["cat"]).input(Input::Bytes(noise.clone())).run()?.exits(0)?;
    ensure!(ran.stdout.len() == noise.len(), "{} bytes came back", ran.stdout.len());
    let difference = ran.stdout.iter().zip(&noise).position(|(received, sent)| received != sent);
    ensure!(difference.is_none(), "byte {difference:?} came back changed");
    Ok(())
}

fn end_of_input_is_seen() -> anyhow::Result<()> {
    let script = "read a; echo got $a; read b || echo end";
    let ran = Boot::direct().script(script).input(Input::Bytes(b"word\n".into())).run()?;
    ran.exits(0)?.stdout_is("got word\nend\n")?;
    Boot::direct().command(["cat"]).run()?.exits(0)?.stdout_is("").map(drop)
}

/// Without `-n`, each boot would read ahead in the loop's input.
fn input_is_left_to_others() -> anyhow::Result<()> {
    let script = "while read line; do \"$0\" boot --host direct -n -- cat; echo got $line; done";
    // There is no other shell in the emulated host.
    let shell = Program::new(files::cached("busybox/busybox")?).args(["sh", "-c", script]);
    let shell = shell.args([product::binary()]);
    let ran = shell.input(Input::Bytes(b"1\n2\n3\n".into())).run()?.exits(0)?;
    ran.stdout_is("got 1\ngot 2\ngot 3\n")?;
    // The second of several VMs has no input, either.
    let boot =
        Boot::direct().with("--vms 2").command(["cat"]).input(Input::Bytes(b"line\n".into()));
    boot.run()?.exits(0)?.stdout_is("line\n").map(drop)
}

fn arguments_arrive_unchanged() -> anyhow::Result<()> {
    let words = ["a b", "", "c'd\"e", "é\n", "$x", "-n", "--"];
    let ran = Boot::direct().command(["printf", "<%s>"].iter().chain(&words)).run()?.exits(0)?;
    ran.stdout_is(&words.map(|word| format!("<{word}>")).concat()).map(drop)
}
