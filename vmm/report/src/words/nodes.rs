//! The nodes that measured parts of a run: a table, and their differences.

use std::collections::{BTreeMap, BTreeSet};

use super::tables::Table;
use study::findings::{Study, diff};

/// The nodes with their numbers of sessions.
pub(super) fn table(study: &Study) -> Table {
    let note = "Permutation tests exchange repetitions only within a node.";
    let head = ["node", "CPU", "Linux", "microcode", "sessions"];
    let mut table = Table::new("nodes", "Nodes", note, &head);
    table.figures_from = 4;
    let mut sessions: BTreeMap<(&str, &str, &str, &str), usize> = BTreeMap::new();
    for session in study.runs.iter().flat_map(|run| &run.sessions) {
        let host = &session.host;
        if let Some(node) = &host.node {
            let microcode = host.microcode.as_deref().unwrap_or_default();
            *sessions.entry((node, &host.cpu, &host.kernel, microcode)).or_default() += 1;
        }
    }
    for ((node, cpu, kernel, microcode), sessions) in sessions {
        table.cells([node, cpu, kernel, microcode, &sessions.to_string()].map(str::to_owned));
    }
    table
}

/// Facts that may differ between nodes and affect figures, and their names.
const OF_NODES: [(&str, &str); 3] =
    [("cpu", "CPU model"), ("kernel", "host's Linux"), ("microcode", "microcode")];

/// Names the nodes that differ in CPU model, kernel or microcode.
pub(super) fn differences(study: &Study) -> Vec<String> {
    let sessions = study.runs.iter().flat_map(|run| &run.sessions);
    let of_nodes: Vec<_> = sessions
        .filter_map(|session| Some((session.host.node.as_ref()?, diff::facts(&session.host))))
        .collect();
    let mut differences = Vec::new();
    for (fact, name) in OF_NODES {
        let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (node, facts) in &of_nodes {
            let value = facts.iter().find(|(name, _)| name == fact);
            values.entry(value.map_or("unknown", |(_, value)| value)).or_default().insert(node);
        }
        if values.len() > 1 {
            let each = values.iter().map(|(value, nodes)| {
                let nodes: Vec<&str> = nodes.iter().copied().collect();
                format!("{value} on {}", nodes.join(", "))
            });
            let each: Vec<String> = each.collect();
            differences.push(format!("The nodes differ in {name}: {}.", each.join("; ")));
        }
    }
    differences
}
