use std::{collections::BTreeSet, fs};

use clap::Command;

use super::*;

fn text(name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    write_to(folder.path()).unwrap();
    fs::read_to_string(folder.path().join("share").join(name)).unwrap()
}

fn hidden() -> Vec<String> {
    let command = pvticket::cli::command();
    let hidden = command.get_subcommands().filter(|command| command.is_hide_set());
    hidden.map(|command| command.get_name().to_owned()).collect()
}

/// Collects page names such as `pvticket-bench-boot`.
fn names(command: &Command, parent: &str, list: &mut BTreeSet<String>) {
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        let name = format!("{parent}-{}", child.get_name());
        names(child, &name, list);
        list.insert(name);
    }
}

#[test]
fn visible_subcommands_have_pages() {
    let mut expected = BTreeSet::from(["pvticket".to_owned()]);
    names(&pvticket::cli::command(), "pvticket", &mut expected);
    let folder = tempfile::tempdir().unwrap();
    write_to(folder.path()).unwrap();
    let pages = fs::read_dir(folder.path().join("share/man/man1")).unwrap();
    let pages: BTreeSet<_> =
        pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(pages, expected.iter().map(|name| format!("{name}.1")).collect());
    assert!(expected.contains("pvticket-bench-boot") && !hidden().is_empty());
}

/// `whatis` and `apropos` read the line below NAME.
#[test]
fn each_page_has_a_description() {
    let folder = tempfile::tempdir().unwrap();
    write_to(folder.path()).unwrap();
    for page in fs::read_dir(folder.path().join("share/man/man1")).unwrap() {
        let path = page.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let name = text.lines().skip_while(|line| *line != ".SH NAME").nth(1).unwrap();
        assert!(name.contains(" \\- "), "{path:?}: {name}");
    }
}

#[test]
fn subcommand_page_has_options() {
    let page = text("man/man1/pvticket-compare.1");
    assert!(page.contains("\\-\\-policy") && page.contains(".SH \"SEE ALSO\""), "{page}");
    let first = page.lines().find(|line| line.starts_with(".TH")).unwrap();
    assert!(first.contains("pvticket-compare 1"), "{first}");
}

#[test]
fn main_page_has_the_manuals_sections() {
    let page = text("man/man1/pvticket.1");
    let parts = source::sections().unwrap().into_iter().flat_map(|section| section.parts);
    let rows: Vec<_> = parts
        .filter_map(|part| match part {
            source::SectionPart::Row(name, _) => Some(name),
            source::SectionPart::Paragraph(_) => None,
        })
        .collect();
    assert!(rows.iter().any(|name| name == "tar c src | pvticket boot -- wc -c"), "{rows:?}");
    for variable in rows.iter().filter(|name| name.starts_with("PVTICKET_")) {
        assert!(page.contains(&format!("\\fB{variable}\\fR")), "no {variable}\n{page}");
    }
    let expected =
        [".SH \"EXIT STATUS\"", "SIGINT (130)", ".SH SIGNALS", ".SH FILES", "pvticket\\-boot(1)"];
    for section in expected {
        assert!(page.contains(section), "no {section}\n{page}");
    }
    assert!(!page.contains('`') && !page.contains("]("), "Markdown remains\n{page}");
}

#[test]
fn completions_match_the_help() {
    for shell in [
        "bash-completion/completions/pvticket",
        "zsh/site-functions/_pvticket",
        "fish/vendor_completions.d/pvticket.fish",
    ] {
        let script = text(shell);
        for word in ["compare", "hypercalls", "host-kernel", "emulated"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
        for word in hidden() {
            let word = format!("pvticket__subcmd__{}", word.replace('-', "__"));
            assert!(!script.contains(&word), "{shell}: {word}");
        }
        assert!(!script.contains("drill"), "{shell}");
    }
}
