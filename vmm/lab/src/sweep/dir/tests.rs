//! The directory of a sweep is data.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

const ID: &str = "pvticket-test";

fn submission(number: u32) -> Submission {
    Submission {
        number,
        engine: "slurm".into(),
        options: "-p all".into(),
        name: format!("pvticket-test-{number}"),
        units: vec![0, 2],
        at_ms: 5,
        job: None,
    }
}

/// Regression: it was left out, and its cells would have been submitted again. (A loop of links is refused to root,
/// too.)
#[test]
fn what_may_not_be_looked_at_is_not_skipped() {
    let folder = TempDir::new().unwrap();
    let dir = SweepDir::new(folder.path()).unwrap();
    dir.prepare().unwrap();
    dir.describe(&submission(1)).unwrap();
    let file = dir.submission(1).join(DESCRIPTION);
    fs::remove_file(&file).unwrap();
    symlink(&file, &file).unwrap();
    assert!(dir.submissions(ID).unwrap_err().to_string().contains("cannot look for"));
    let control = folder.path().join(CONTROL);
    fs::remove_dir(&control).unwrap();
    symlink(&control, &control).unwrap();
    let message = dir.begin(None).unwrap_err().to_string();
    assert!(message.contains("cannot look for") && message.contains("stop.0"), "{message}");
}

#[test]
fn submissions_are_read_as_they_were_described() {
    let folder = TempDir::new().unwrap();
    let dir = SweepDir::new(folder.path()).unwrap();
    dir.prepare().unwrap();
    assert_eq!(dir.submissions(ID).unwrap(), []);
    let second = Submission { job: Some("12".into()), ..submission(1) };
    dir.describe(&submission(1)).unwrap();
    dir.describe(&second).unwrap();
    dir.describe(&submission(0)).unwrap();
    // A head that died before it described anything.
    fs::create_dir(dir.submission(2)).unwrap();
    assert_eq!(dir.submissions(ID).unwrap(), [submission(0), second]);
    fs::write(dir.submission(0).join(DESCRIPTION), "{").unwrap();
    let message = dir.submissions(ID).unwrap_err().to_string();
    assert!(message.contains("submission.json") && !message.contains('\n'), "{message}");
}

/// Regression: Ctrl-C in a resumed sweep cancelled whatever job its directory named.
#[test]
fn jobs_of_others_are_not_touched() {
    let folder = TempDir::new().unwrap();
    let dir = SweepDir::new(folder.path()).unwrap();
    dir.prepare().unwrap();
    for (id, name) in [
        (ID, "thesis"),
        (ID, "pvticket-test-0,thesis"),
        (ID, "pvticket-test-1"),
        ("thesis", "thesis-0"),
        ("pvticket-a,thesis", "pvticket-a,thesis-0"),
    ] {
        dir.describe(&Submission { name: name.into(), ..submission(0) }).unwrap();
        let message = dir.submissions(id).unwrap_err().to_string();
        assert!(message.ends_with("it names jobs that are not this sweep's"), "{message}");
    }
    dir.describe(&submission(0)).unwrap();
    assert_eq!(dir.submissions(ID).unwrap(), [submission(0)]);
}

/// Regression: whatever a link pointed to was overwritten.
#[test]
fn nothing_is_written_through_a_link() {
    let folder = TempDir::new().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    let dir = SweepDir::new(&folder.path().join("sweep")).unwrap();
    dir.prepare().unwrap();
    dir.describe(&submission(0)).unwrap();
    fs::remove_file(dir.submission(0).join(DESCRIPTION)).unwrap();
    let script = dir.submission(0).join("script.sh");
    let description = dir.submission(0).join(DESCRIPTION);
    for place in [&script, &description, &dir.program(), &dir.log(0, 1), &dir.stop_file(0)] {
        symlink(&victim, place).unwrap();
    }
    dir.keep_script(0, "exit").unwrap();
    dir.describe(&submission(0)).unwrap();
    let original = folder.path().join("program");
    fs::write(&original, "new").unwrap();
    dir.keep(&original, &dir.program()).unwrap();
    assert!(dir.open_log(0, 1).is_err() && dir.stop(0).is_err());
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
    assert_eq!(fs::read(dir.program()).unwrap(), b"new");
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, dir.submission(1)).unwrap();
    let message = dir.describe(&submission(1)).unwrap_err().to_string();
    assert!(message.ends_with("it is a link or a file; remove it"), "{message}");
}

/// Regression: Slurm would have appended to a link that waited under the log's name.
#[test]
fn a_submission_has_a_directory_of_its_own() {
    let folder = TempDir::new().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    let dir = SweepDir::new(&folder.path().join("sweep")).unwrap();
    dir.prepare().unwrap();
    assert_eq!(dir.begin(None).unwrap(), 0);
    dir.describe(&submission(0)).unwrap();
    fs::create_dir(dir.submission(1)).unwrap();
    symlink(&victim, dir.log(1, 0)).unwrap();
    symlink(folder.path(), dir.submission(2)).unwrap();
    dir.stop(3).unwrap();
    let number = dir.begin(Some(0)).unwrap();
    assert_eq!(number, 4, "1 and 2 are there, 3 is stopped");
    assert_eq!(fs::read_dir(dir.submission(number)).unwrap().count(), 0);
    let mode = fs::metadata(dir.submission(number)).unwrap().permissions().mode();
    assert_eq!(mode & 0o022, 0, "others write nothing into it");
}

/// Regression: the number after the highest one was computed with an overflow, which ended the program.
#[test]
fn numbers_of_submissions_are_data() {
    let folder = TempDir::new().unwrap();
    let dir = SweepDir::new(folder.path()).unwrap();
    dir.prepare().unwrap();
    dir.describe(&submission(u32::MAX)).unwrap();
    let last = dir.submissions(ID).unwrap().last().map(|last| last.number);
    let message = dir.begin(last).unwrap_err().to_string();
    assert!(message.ends_with("the highest number; start the sweep anew"), "{message}");
    // Another folder than its number's: its logs and orders would be those of another one.
    fs::rename(dir.submission(u32::MAX), dir.submission(0)).unwrap();
    let message = dir.submissions(ID).unwrap_err().to_string();
    assert!(message.ends_with("it says that it is submission 4294967295"), "{message}");
}

#[test]
fn what_tasks_use_is_a_copy() {
    let folder = TempDir::new().unwrap();
    let dir = SweepDir::new(folder.path()).unwrap();
    dir.prepare().unwrap();
    let original = folder.path().join("program");
    fs::write(&original, "old").unwrap();
    dir.keep(&original, &dir.program()).unwrap();
    fs::write(&original, "new").unwrap();
    assert_eq!(fs::read(dir.program()).unwrap(), b"old");
    assert_eq!(fs::metadata(dir.program()).unwrap().permissions().mode() & 0o777, 0o555);
    dir.stop(3).unwrap();
    assert!(dir.stop_file(3).exists() && !dir.stop_file(2).exists());
    assert_eq!(dir.last_words(0, 0), None);
}
