//! Names that most tests use: `use crate::prelude::*`.

pub(crate) use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

pub(crate) use anyhow::{Context, bail, ensure};
pub(crate) use rustix::process::{Pid, Signal, kill_process};
pub(crate) use serde_json::{Value, json};
pub(crate) use tempfile::TempDir;

pub(crate) use crate::{
    expect_usually,
    facts::need_kvm,
    files::{self, code},
    form::by_form,
    process::{Input, Program, Running, Stopwatch, children, wait_until},
    product::{Boot, Compared, binary, count, each_operations, operations, pvticket},
    run_result::RunResult,
    suite::{kernel_7, kvm, skip},
    terminal::Terminal,
    tests,
};
