//! Stores that earlier versions wrote: each is read and resumed, or refused with a message that names what it lacks.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::run::lines;
use crate::{facts::need_kvm, files, process::Program, product::pvticket, tests};

tests![
    an_old_store_is_shown_and_exported,
    an_old_store_is_resumed,
    another_format_is_refused_with_its_number,
    a_missing_field_is_named,
];

/// Written by `pvticket run` of commit 6505bdb (November 2026); the names of its machine are removed. Its spec:
///
/// ```text
/// locks = ["ticket", "pv-ticket"]
/// vcpus = 2
/// slots = 1
/// policies = "rr"
/// repetitions = 2
/// seconds = 0.02
/// ```
const STORE: &str = include_str!("old_stores/6505bdb.jsonl");
/// Number of cells in [`STORE`].
const CELLS: usize = 4;

fn put(folder: &TempDir, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let dir = folder.path().join(name);
    fs::create_dir(&dir)?;
    fs::write(dir.join("cells.jsonl"), text)?;
    Ok(dir)
}

/// Commands that read a store and write nothing into it.
fn readers(dir: &Path) -> Vec<Program> {
    let commands: [&[&str]; 5] = [
        &["report"],
        &["report", "--text"],
        &["report", "--brief"],
        &["export", "--csv", "-"],
        &["export", "--json", "-"],
    ];
    let single = commands.into_iter().map(|words| pvticket(words).args([dir]));
    single.chain([pvticket(["report", "--diff"]).args([dir, dir])]).collect()
}

fn resume(dir: &Path) -> Program {
    pvticket(["run", "--resume"]).args([dir])
}

/// Operations and seconds of each cell.
fn figures(cells: &[Value]) -> Vec<(Value, Value)> {
    let operations = |cell: &Value| cell["figures"]["operations"].clone();
    let seconds = |cell: &Value| cell["figures"]["seconds"].clone();
    // Recognized by its figures: an exported cell has no `kind`.
    let cells = cells.iter().filter(|line| line.get("figures").is_some());
    cells.map(|cell| (operations(cell), seconds(cell))).collect()
}

fn an_old_store_is_shown_and_exported() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let dir = put(&folder, "old", STORE)?;
    for reader in readers(&dir) {
        let ran = reader.run()?.exits(0)?;
        ensure!(!ran.text()?.trim().is_empty(), "{}", ran.show());
        ensure!(!ran.errors().contains("pvticket: "), "{}", ran.show());
    }
    let report = pvticket(["report"]).args([&dir]).run()?.exits(0)?;
    report.shows(&["pv-ticket"])?;
    let table = pvticket(["export", "--csv", "-"]).args([&dir]).run()?.exits(0)?;
    let done = table.text()?.lines().filter(|line| line.contains(",done,")).count();
    ensure!(done == CELLS, "{}", table.show());
    // The exported figures are those of the store.
    let json = pvticket(["export", "--json", "-"]).args([&dir]).run()?.exits(0)?;
    let json: Value = serde_json::from_str(json.text()?)?;
    let read = json["runs"][0]["lines"].as_array().context("no lines")?;
    ensure!(figures(read) == figures(&lines(&dir)?), "{read:?}");
    Ok(())
}

/// The store lacks its last cell, which is then measured.
fn an_old_store_is_resumed() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let (kept, _) = STORE.trim_end().rsplit_once('\n').context("lines")?;
    let dir = put(&folder, "old", &format!("{kept}\n"))?;
    resume(&dir).run()?.exits(0)?;
    let now = fs::read_to_string(dir.join("cells.jsonl"))?;
    ensure!(now.starts_with(kept), "the old lines were changed:\n{now}");
    let cells = figures(&lines(&dir)?);
    ensure!(cells.len() == CELLS, "{now}");
    for reader in readers(&dir) {
        reader.run()?.exits(0)?;
    }
    Ok(())
}

/// Expects that all commands fail with one line that contains `parts`, and that the store is unchanged.
fn expect_refused(dir: &Path, parts: &[&str]) -> anyhow::Result<()> {
    let store = dir.join("cells.jsonl");
    let before = fs::read(&store)?;
    for command in readers(dir).into_iter().chain([resume(dir)]) {
        command.run()?.fails(1, parts)?.says("")?;
    }
    ensure!(fs::read(&store)? == before, "the store was written to");
    Ok(())
}

fn another_format_is_refused_with_its_number() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    for format in ["0", "2", "4294967295"] {
        let text = STORE.replacen("\"format\":1", &format!("\"format\":{format}"), 1);
        ensure!(text != STORE, "the store has no format");
        let what = format!("cells.jsonl is of format {format}, this pvticket reads format 1");
        expect_refused(&put(&folder, format, &text)?, &[&what])?;
    }
    Ok(())
}

/// A store of a version before the first format lacks fields: the message names the field and the line.
fn a_missing_field_is_named() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    // Line 1 is the run, line 3 its first cell.
    for (line, name) in [(1, "cells"), (1, "format"), (3, "at_ms"), (3, "point"), (3, "status")] {
        let mut text = String::new();
        for (number, one) in (1..).zip(STORE.lines()) {
            let mut value: Value = serde_json::from_str(one)?;
            if number == line {
                let fields = value.as_object_mut().context("an object")?;
                fields.remove(name).with_context(|| format!("line {line} has no {name}"))?;
            }
            text += &format!("{value}\n");
        }
        let dir = put(&folder, &format!("{line}-{name}"), &text)?;
        let (place, what) = (format!("damaged in line {line}"), format!("missing field `{name}`"));
        expect_refused(&dir, &[&place, &what])?;
    }
    Ok(())
}
