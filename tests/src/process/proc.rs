//! Processes and threads in /proc.

use crate::prelude::*;

/// Lists the folders of a process's threads in /proc.
pub fn threads(process: Pid) -> impl Iterator<Item = PathBuf> {
    let tasks = fs::read_dir(folder(process).join("task"));
    tasks.into_iter().flatten().flatten().map(|task| task.path())
}

/// Returns a line of the `status` file of a process or thread by its name; None once it has ended.
pub fn status(folder: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(folder.join("status")).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
}

/// Returns the folder of a process in /proc.
pub fn folder(process: Pid) -> PathBuf {
    PathBuf::from(format!("/proc/{process}"))
}

/// Finds a thread of a process by name.
pub fn thread_named(process: Pid, name: &str) -> Option<Pid> {
    let is_it = |thread: &PathBuf| {
        fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let thread = threads(process).find(is_it)?;
    Pid::from_raw(thread.file_name()?.to_str()?.parse().ok()?)
}

/// Lists the children of all threads of a process.
pub fn children(parent: Pid) -> Vec<Pid> {
    let lists =
        threads(parent).filter_map(|thread| fs::read_to_string(thread.join("children")).ok());
    let pids = |list: String| -> Vec<Pid> {
        list.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
    };
    lists.flat_map(pids).collect()
}
