//! `other-vms`: VMs of different sizes under one schedule.

use std::{fs, path::Path};

use anyhow::ensure;
use serde_json::{Value, json};

use crate::{expect_usually, facts::need_kvm, files, product::pvticket, tests};

tests![vms_of_different_sizes_run_together, the_reader_of_each_vm_counts_no_operations];

/// The cells of a run of this spec on this host.
fn cells(spec: &str) -> anyhow::Result<Vec<Value>> {
    need_kvm()?;
    let folder = files::scratch()?;
    let file = files::put(&folder, "spec.toml", spec.as_bytes())?;
    let dir = folder.path().join("run");
    pvticket(["run"]).args([&file]).args([Path::new("--dir"), &dir]).run()?.exits(0)?;
    let lines = fs::read_to_string(dir.join("cells.jsonl"))?;
    let lines: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    Ok(lines.into_iter().filter(|line| line["kind"] == "cell").collect())
}

/// Each vCPU of each VM makes operations, and the host's counts of it are with its own VM.
fn vms_of_different_sizes_run_together() -> anyhow::Result<()> {
    let cells = cells(
        "host = \"direct\"\nlocks = \"pv-ticket\"\nvcpus = 2\nslots = 2\nrepetitions = 1\n\
         seconds = 0.6\nlatency = true\npolicies = [\"host\", \"fair\"]\n\
         other-vms = [\"none\", \"1+3\"]\n",
    )?;
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
        let operations = figures["operations"].as_array().map_or(&[][..], Vec::as_slice);
        ensure!(operations.len() == sizes.iter().sum::<usize>(), "{cell}");
        expect_usually!(operations.iter().all(|count| count.as_u64() > Some(0)), "{cell}");
        let host = figures["host"].as_array().map_or(&[][..], Vec::as_slice);
        let counted = host.iter().map(|vm| vm["vcpus"].as_array().map_or(0, Vec::len));
        ensure!(counted.eq(sizes), "{cell}");
    }
    Ok(())
}

/// The last vCPU of each VM reads the others' line; its operations are not in the list.
fn the_reader_of_each_vm_counts_no_operations() -> anyhow::Result<()> {
    let cells = cells(
        "host = \"direct\"\nlocks = \"ticket\"\nworkloads = \"hot-line\"\nvcpus = 2\nslots = 2\n\
         repetitions = 1\nseconds = 0.6\npolicies = \"rr\"\nother-vms = \"4+3\"\n",
    )?;
    ensure!(cells.len() == 1, "{cells:?}");
    let operations = &cells[0]["figures"]["operations"];
    let all = operations.as_array().map_or(&[][..], Vec::as_slice);
    ensure!(all.len() == 1 + 3 + 2, "{operations}");
    expect_usually!(all.iter().all(|count| count != &json!(0)), "{operations}");
    Ok(())
}
