//! A pseudo-terminal on which the product runs.

use std::{
    ffi::CStr,
    fs::{self, File},
    io::Write,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use rustix::{
    fs::{Mode, OFlags},
    mount::MountFlags,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Termios, tcgetattr},
};

use crate::{
    logged,
    process::{Input, Program, Running},
    suite::skip,
};

/// How late output may appear on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two polls.
const PAUSE: Duration = Duration::from_millis(10);

/// The user's side of a pseudo-terminal.
pub struct Terminal {
    keyboard: File,
    /// The program's side, kept open so that its settings outlive the program.
    line: OwnedFd,
    screen: Arc<Mutex<Vec<u8>>>,
    before: Settings,
}

/// All settings that a program may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    modes: [u32; 4],
    keys: String,
}

impl Settings {
    fn of(termios: &Termios) -> Self {
        Self {
            modes: [
                termios.input_modes.bits(),
                termios.output_modes.bits(),
                termios.control_modes.bits(),
                termios.local_modes.bits(),
            ],
            keys: format!("{:?}", termios.special_codes),
        }
    }

    fn is_raw(&self) -> bool {
        let cooked = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        self.modes[3] & cooked.bits() == 0
    }
}

impl Terminal {
    /// Opens a pseudo-terminal.
    pub fn open() -> anyhow::Result<Self> {
        mount_devpts()?;
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("no terminal")?;
        grantpt(&master).context("grantpt")?;
        unlockpt(&master).context("unlockpt")?;
        let name = ptsname(&master, Vec::new()).context("ptsname")?;
        let line = open_line(&name)?;
        let before = Settings::of(&tcgetattr(&line).context("tcgetattr")?);
        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (shown, source) = (screen.clone(), keyboard.try_clone()?);
        thread::spawn(move || watch(source, &shown));
        Ok(Self { keyboard, line, screen, before })
    }

    /// Starts a program on this terminal.
    pub fn start(&self, program: Program) -> anyhow::Result<Running> {
        let input = Input::From(self.line.try_clone()?);
        program.input(input).output(self.line.try_clone()?).start()
    }

    /// Types these bytes.
    pub fn press(&self, keys: &[u8]) -> anyhow::Result<()> {
        (&self.keyboard).write_all(keys).context("cannot type")
    }

    /// Waits until the program has set the terminal to raw mode.
    pub fn wait_for_raw(&self, running: &mut Running) -> anyhow::Result<()> {
        running.wait_until("raw mode of its terminal", || {
            self.settings().is_ok_and(|settings| settings.is_raw())
        })
    }

    /// Waits until this is on the screen.
    pub fn wait_for(&self, running: &mut Running, text: &str) -> anyhow::Result<()> {
        running
            .wait_until(&format!("'{text}' on its terminal"), || self.shown().contains(text))
            .with_context(|| format!("--- screen\n{}", self.shown()))
    }

    /// Expects the settings from before the program.
    pub fn is_restored(&self) -> anyhow::Result<()> {
        let now = self.settings()?;
        ensure!(now == self.before, "the terminal was {:?} and is left {now:?}", self.before);
        Ok(())
    }

    /// Was this shown? Output from before the program's end may arrive a moment later.
    pub fn has_shown(&self, text: &str) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !self.shown().contains(text) {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(PAUSE);
        }
        true
    }

    /// Is it in raw mode?
    pub fn is_raw(&self) -> anyhow::Result<bool> {
        Ok(self.settings()?.is_raw())
    }

    /// Everything that was ever on the screen.
    pub fn shown(&self) -> String {
        let bytes = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        Ok(Settings::of(&tcgetattr(self.line.as_fd()).context("tcgetattr")?))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        logged::look("(on a terminal)", self.shown().as_bytes());
    }
}

fn watch(mut source: File, screen: &Mutex<Vec<u8>>) {
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

/// The emulated host mounts no devpts by itself.
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
