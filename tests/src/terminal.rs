//! A pseudo-terminal on which the product runs.

use std::{
    ffi::CStr,
    fs::File,
    io::Write,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{
    fs::{Mode, OFlags},
    mount::MountFlags,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Termios, tcgetattr},
};

use crate::{prelude::*, unlisted_calls};

/// Maximum delay of output on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The user's side of a pseudo-terminal.
pub struct Terminal {
    keyboard: File,
    /// The program's side, kept open so that its settings outlive the program.
    line: OwnedFd,
    screen: Arc<Mutex<Vec<u8>>>,
    /// All settings before the program started.
    before: String,
}

impl Terminal {
    pub fn open() -> anyhow::Result<Self> {
        mount_devpts()?;
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("no terminal")?;
        grantpt(&master).context("grantpt")?;
        unlockpt(&master).context("unlockpt")?;
        let name = ptsname(&master, Vec::new()).context("ptsname")?;
        let line = open_line(&name)?;
        let before = format!("{:?}", tcgetattr(&line).context("tcgetattr")?);
        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (bytes, source) = (screen.clone(), keyboard.try_clone()?);
        thread::spawn(move || collect(source, &bytes));
        Ok(Self { keyboard, line, screen, before })
    }

    /// Starts a program on this terminal.
    pub fn start(&self, program: Program) -> anyhow::Result<Running> {
        let input = Input::From(self.line.try_clone()?);
        program.input(input).output(self.line.try_clone()?).start()
    }

    pub fn press(&self, keys: &[u8]) -> anyhow::Result<()> {
        (&self.keyboard).write_all(keys).context("cannot type")
    }

    /// Waits until the program has set the terminal to raw mode.
    pub fn wait_for_raw(&self, running: &mut Running) -> anyhow::Result<()> {
        running.wait_until("raw mode of its terminal", || self.is_raw().is_ok_and(|raw| raw))
    }

    /// Waits until this text is on the screen.
    pub fn wait_for(&self, running: &mut Running, text: &str) -> anyhow::Result<()> {
        running
            .wait_until(&format!("'{text}' on its terminal"), || self.text().contains(text))
            .with_context(|| format!("--- screen\n{}", self.text()))
    }

    /// Expects the settings from before the program's start.
    pub fn is_restored(&self) -> anyhow::Result<()> {
        let now = format!("{:?}", self.settings()?);
        ensure!(now == self.before, "the terminal was {} and is left {now}", self.before);
        Ok(())
    }

    /// Whether this text is shown within [`TIMEOUT`]: the program's last output may arrive after its end.
    pub fn has_shown(&self, text: &str) -> bool {
        wait_until(text, TIMEOUT, || Ok(self.text().contains(text))).is_ok()
    }

    pub fn is_raw(&self) -> anyhow::Result<bool> {
        let cooked = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        Ok(!self.settings()?.local_modes.intersects(cooked))
    }

    /// Returns the output on the screen since the start.
    pub fn text(&self) -> String {
        let bytes = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn settings(&self) -> anyhow::Result<Termios> {
        tcgetattr(self.line.as_fd()).context("tcgetattr")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        unlisted_calls::note("(on a terminal)", self.text().as_bytes());
    }
}

fn collect(mut source: File, screen: &Mutex<Vec<u8>>) {
    use std::io::Read;
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = source.read(&mut buffer) {
        screen.lock().unwrap_or_else(PoisonError::into_inner).extend(&buffer[..count]);
    }
}

fn open_line(name: &CStr) -> anyhow::Result<OwnedFd> {
    let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())
        .with_context(|| path.display().to_string())
}

/// Mounts devpts if it is missing, as in the emulated host; skips the test on failure.
fn mount_devpts() -> anyhow::Result<()> {
    const PTS: &str = "/dev/pts";
    if Path::new("/dev/pts/ptmx").exists() {
        return Ok(());
    }
    let _ = fs::create_dir(PTS);
    match rustix::mount::mount("devpts", PTS, "devpts", MountFlags::empty(), c"ptmxmode=0666") {
        Ok(()) => Ok(()),
        Err(error) => skip(format!("no pseudo-terminals here ({error})")),
    }
}
