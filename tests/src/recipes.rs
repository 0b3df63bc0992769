//! The recipes of `CONTRIBUTING.md`: the files that they name are there, and are all that it takes.

use std::{collections::BTreeSet, fs, path::Path};

use crate::references::root;

/// The recipe for an axis of a spec: the number in its brackets, and the files before its optional part.
fn of_axes() -> (usize, BTreeSet<String>) {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, recipe) = text.split_once("**An axis of a spec** [").expect("no recipe");
    let (number, rest) = recipe.split_once(']').unwrap();
    let (needed, _) = rest.split_once("By choice").expect("no optional part");
    let names = needed.split('`').skip(1).step_by(2).filter(|name| name.contains('/'));
    (number.parse().unwrap(), names.map(str::to_owned).collect())
}

/// The sources below a folder, without tests, that contain this word.
fn naming(word: &str, folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            naming(word, &path, found);
        } else if name.ends_with(".rs") && !name.contains("test") && !name.ends_with("mistakes.rs")
        {
            let text = fs::read_to_string(&path).unwrap();
            let is_end = |c: char| !(c.is_alphanumeric() || c == '_');
            if text.split(is_end).any(|part| part == word) {
                found.insert(name);
            }
        }
    }
}

#[test]
fn the_recipe_of_an_axis_names_files_that_are_there() {
    let (number, files) = of_axes();
    assert_eq!(files.len(), number, "{files:?}");
    for file in &files {
        assert!(root().join(file).exists(), "{file}");
    }
}

/// What plans, stores, sorts, exports and draws points knows an axis by its entry alone.
#[test]
fn no_other_source_of_specs_and_reports_names_an_axis() {
    let (_, files) = of_axes();
    for field in ["other_vms", "cgroups"] {
        let mut found = BTreeSet::new();
        for part in ["vmm/study/src", "vmm/report/src", "vmm/src"] {
            naming(field, &root().join(part), &mut found);
        }
        // Which guests cannot have it; how the windows of a group with a quota are judged.
        found.retain(|name| {
            !name.ends_with("spec/possible.rs") && !name.ends_with("disturbance.rs")
        });
        let expected: BTreeSet<_> =
            files.iter().filter(|file| file.starts_with("vmm/study/")).cloned().collect();
        assert_eq!(found, expected, "{field}");
    }
}
