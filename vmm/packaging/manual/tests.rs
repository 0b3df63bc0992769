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
    let hidden = command.get_subcommands().filter(|one| one.is_hide_set());
    hidden.map(|one| one.get_name().to_owned()).collect()
}

/// Collects page names such as `pvticket-bench-boot`.
fn names(command: &Command, above: &str, all: &mut BTreeSet<String>) {
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        let name = format!("{above}-{}", one.get_name());
        names(one, &name, all);
        all.insert(name);
    }
}

#[test]
fn each_subcommand_has_a_page_and_hidden_ones_have_none() {
    let mut wanted = BTreeSet::from(["pvticket".to_owned()]);
    names(&pvticket::cli::command(), "pvticket", &mut wanted);
    let folder = tempfile::tempdir().unwrap();
    write_to(folder.path()).unwrap();
    let pages = fs::read_dir(folder.path().join("share/man/man1")).unwrap();
    let pages: BTreeSet<_> =
        pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(pages, wanted.iter().map(|name| format!("{name}.1")).collect());
    assert!(wanted.contains("pvticket-bench-boot") && !hidden().is_empty());
}

/// `whatis` and `apropos` read the line below NAME.
#[test]
fn each_page_says_in_a_line_what_it_is_about() {
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
fn the_page_of_a_subcommand_has_its_options() {
    let page = text("man/man1/pvticket-compare.1");
    assert!(page.contains("\\-\\-policy") && page.contains(".SH \"SEE ALSO\""), "{page}");
    let first = page.lines().find(|line| line.starts_with(".TH")).unwrap();
    assert!(first.contains("pvticket-compare 1"), "{first}");
}

#[test]
fn the_page_of_the_whole_has_the_manuals_sections() {
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
    let wanted =
        [".SH \"EXIT STATUS\"", "SIGINT (130)", ".SH SIGNALS", ".SH FILES", "pvticket\\-boot(1)"];
    for of_page in wanted {
        assert!(page.contains(of_page), "no {of_page}\n{page}");
    }
    assert!(!page.contains('`') && !page.contains("]("), "Markdown is left\n{page}");
}

#[test]
fn completions_offer_what_the_help_shows() {
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
