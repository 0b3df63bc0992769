use std::os::unix::fs::PermissionsExt;

use super::*;

/// A tree whose build runs these commands.
fn tree(commands: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("arch/x86/boot")).unwrap();
    fs::write(folder.path().join("Makefile"), format!("bzImage:\n\t{commands}\n")).unwrap();
    folder
}

fn built(tree: &Path, flags: &str, kbuild: &str) -> Result<String, String> {
    let kbuild = Some(kbuild).filter(|kbuild| !kbuild.is_empty());
    let assignments = variables_in(OsStr::new(flags));
    let variables = MakeVariables { assignments, output: kbuild.map(OsString::from) };
    let file = build(tree, &variables, &Interrupt::never()).map_err(|error| error.to_string())?;
    let name = file.strip_prefix(tree).unwrap_or(&file).display().to_string();
    Ok(format!("{name}: {}", fs::read_to_string(&file).unwrap().trim()))
}

#[test]
fn make_variables_are_parsed() {
    for (flags, expected) in [
        ("", vec![]),
        ("-j8 --jobserver-auth=3,4", vec![]),
        ("rR -j8 -- O=/out", vec!["O=/out"]),
        ("O=/a\\ b CC=gcc\t-k --output-sync=line", vec!["O=/a b", "CC=gcc"]),
        (" O=a  O=b ", vec!["O=a", "O=b"]),
    ] {
        assert_eq!(variables_in(OsStr::new(flags)), expected, "{flags}");
    }
}

/// Regression: the build's output was elsewhere, and an older kernel was tested.
#[test]
fn output_directory_is_kbuilds() {
    for (flags, kbuild, expected) in [
        ("", "", "/tree"),
        ("", "/out", "/out"),
        ("", "out", "/tree/out"),
        ("O=/out", "", "/out"),
        ("O=/out", "/other", "/out"),
        ("O=../out", "", "/tree/../out"),
        ("O=/a O=/b", "", "/b"),
        ("O:=/a", "", "/a"),
        ("KBUILD_OUTPUT=/a O=/b", "/c", "/a"),
        ("O=", "/out", "/tree"),
        ("FOO=/out", "", "/tree"),
    ] {
        let assignments = variables_in(OsStr::new(flags));
        let variables = MakeVariables { assignments, output: Some(kbuild.into()) };
        assert_eq!(variables.output(Path::new("/tree")), Path::new(expected), "{flags} {kbuild}");
    }
}

#[test]
fn built_kernel_is_used() {
    let elsewhere = tempfile::tempdir().unwrap();
    let out = elsewhere.path().to_str().unwrap();
    let make = "mkdir -p $(or $(O),$(KBUILD_OUTPUT),.)/arch/x86/boot && \
                echo new > $(or $(O),$(KBUILD_OUTPUT),.)/arch/x86/boot/bzImage";
    let tree = tree(make);
    let old = tree.path().join(BZIMAGE);
    fs::write(&old, "old").unwrap();
    let expected = Ok(format!("{out}/{BZIMAGE}: new"));
    assert_eq!(built(tree.path(), &format!("-j -- O={out}"), ""), expected);
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
    assert_eq!(built(tree.path(), "O=out", ""), Ok(format!("out/{BZIMAGE}: new")));
    assert_eq!(built(tree.path(), "", ""), Ok(format!("{BZIMAGE}: new")));
    assert!(!tree.path().join(PREVIOUS).exists());
}

#[test]
fn stale_kernel_is_not_used() {
    for commands in ["true", "mkdir -p out && echo new > out/bzImage"] {
        let tree = tree(commands);
        let old = tree.path().join(BZIMAGE);
        assert!(built(tree.path(), "", "").unwrap_err().contains("did not create"), "none at all");
        fs::write(&old, "old").unwrap();
        let reason = built(tree.path(), "", "").unwrap_err();
        assert!(reason.contains("did not create") && reason.contains(BZIMAGE), "{reason}");
        assert_eq!(fs::read_to_string(&old).unwrap(), "old", "it is still there");
    }
    let fails = tree("exit 1");
    fs::write(fails.path().join(BZIMAGE), "old").unwrap();
    assert!(built(fails.path(), "", "").unwrap_err().contains("does not build"));
    assert!(fails.path().join(BZIMAGE).exists());
}

/// Regression: commands of a world-writable Makefile ran as root.
#[test]
fn world_writable_tree_is_not_built() {
    for place in ["", "Makefile", "arch", "arch/x86"] {
        let tree = tree("touch $(CURDIR)/executed");
        let open = tree.path().join(place);
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let text = built(tree.path(), "", "").unwrap_err();
        assert!(text.contains("everybody may write to") && text.contains("--as-built"), "{text}");
        assert!(!tree.path().join("executed").exists());
    }
    let out = tempfile::tempdir().unwrap();
    fs::set_permissions(out.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let reason = built(tree("true").path(), "", out.path().to_str().unwrap()).unwrap_err();
    assert!(reason.contains("everybody may write to"), "{reason}");
}

#[test]
fn users_path_replaces_the_file() {
    let kernel = Kernel { file: "/in/0/k/vmlinux".into(), name: "/k/vmlinux".into() };
    assert_eq!(kernel.replace_path("cannot read /in/0/k/vmlinux\n"), "cannot read /k/vmlinux\n");
}
