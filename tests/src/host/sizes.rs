//! `other-vms`: VMs of different sizes under one schedule.

use super::run::Run;
use crate::prelude::*;

kvm::tests![vms_of_different_sizes_run_together, the_reader_of_each_vm_counts_no_operations];

/// Each vCPU of each VM makes operations, and the host's counts of each vCPU are listed with its VM.
fn vms_of_different_sizes_run_together() -> anyhow::Result<()> {
    let run = Run::new(
        "host = \"direct\"\nlocks = \"pv-ticket\"\nvcpus = 2\nslots = 2\nrepetitions = 1\n\
         seconds = 0.6\nlatency = true\npolicies = [\"host\", \"fair\"]\n\
         other-vms = [\"none\", \"1+3\"]\n",
        &[],
    )?;
    let cells = run.cells()?;
    ensure!(cells.len() == 4, "{cells:?}");
    for cell in cells {
        let sizes = match cell["point"]["other_vms"].as_str() {
            None => vec![2],
            Some(others) => {
                ensure!(others == "1+3", "{cell}");
                vec![2, 1, 3]
            }
        };
        let figures = &cell["figures"];
        ensure!(cell["status"] == "done" && figures["violations"] == 0, "{cell}");
        let counts = each_operations(figures);
        ensure!(counts.len() == sizes.iter().sum::<usize>(), "{cell}");
        expect_usually!(!counts.contains(&0), "{cell}");
        let host = figures["host"].as_array().map_or(&[][..], Vec::as_slice);
        let counted = host.iter().map(|vm| vm["vcpus"].as_array().map_or(0, Vec::len));
        ensure!(counted.eq(sizes), "{cell}");
    }
    Ok(())
}

/// The last vCPU of each VM reads the others' line; its operations are not in the list.
fn the_reader_of_each_vm_counts_no_operations() -> anyhow::Result<()> {
    let run = Run::new(
        "host = \"direct\"\nlocks = \"ticket\"\nworkloads = \"hot-line\"\nvcpus = 2\nslots = 2\n\
         repetitions = 1\nseconds = 0.6\npolicies = \"rr\"\nother-vms = \"4+3\"\n",
        &[],
    )?;
    let cells = run.cells()?;
    ensure!(cells.len() == 1, "{cells:?}");
    let counts = each_operations(&cells[0]["figures"]);
    ensure!(counts.len() == 1 + 3 + 2, "{counts:?}");
    expect_usually!(!counts.contains(&0), "{counts:?}");
    Ok(())
}
