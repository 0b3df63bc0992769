//! The three configurations, and how our kernel is switched between them: by files in debugfs, see
//! guest-kernel-config/linux/README.md.

use std::{
    fs, io,
    ops::AddAssign,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::TableError;

/// A configuration of the guest's ticketlocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Configuration {
    /// PV is switched off.
    Native,
    /// PV is on, with an unreachable threshold.
    NoHalts,
    /// PV is on, with the threshold of the boot.
    Pv,
}

impl Configuration {
    /// All configurations; the baseline is first.
    pub const ALL: [Self; 3] = [Self::Native, Self::NoHalts, Self::Pv];

    /// The heading of its column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::NoHalts => "PV, no halts",
            Self::Pv => "PV",
        }
    }

    /// The title of its block: what the configuration is.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Native => "native: PV off, the instructions of an unpatched ticketlock",
            Self::NoHalts => "PV, no halts: PV on, with a threshold that no waiter reaches",
            Self::Pv => "PV: PV on, waiters halt and are kicked",
        }
    }
}

/// Halts and kicks of PV locks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Slow {
    /// Halts of waiters.
    pub halts: u64,
    /// Kicks by releases.
    pub kicks: u64,
}

impl AddAssign for Slow {
    fn add_assign(&mut self, other: Self) {
        self.halts += other.halts;
        self.kicks += other.kicks;
    }
}

impl Slow {
    /// Takes them from `counters`, which [`guest_bench::stats::between`] returns.
    pub fn of(counters: &serde_json::Value) -> Self {
        let count = |name: &str| counters[name].as_u64().unwrap_or(0);
        Self { halts: count("halted_irq_off") + count("halted_irq_on"), kicks: count("kicked") }
    }
}

/// Our kernel's folder in debugfs.
const FOLDER: &str = "/sys/kernel/debug/pvticket";
/// The highest threshold that the kernel accepts: minutes of spinning.
const OUT_OF_REACH: u64 = u32::MAX as u64;

/// The switches of a kernel with PV ticketlocks, which are restored on drop.
#[derive(Debug)]
pub struct LockSwitches {
    folder: PathBuf,
    /// The backend of halts and kicks.
    pub backend: String,
    /// Looks at the head before a waiter halts, as booted.
    pub threshold: u64,
}

impl LockSwitches {
    /// Those of this guest, if its kernel can switch PV.
    pub fn find() -> Result<Self, TableError> {
        Self::find_in(Path::new(FOLDER))
    }

    fn find_in(folder: &Path) -> Result<Self, TableError> {
        let not_ours = |error: io::Error| {
            TableError::Usage(format!(
                "{}: {error}: the locks of this kernel cannot be switched; boot that of `pvticket setup kernel`",
                folder.display()
            ))
        };
        let stats = fs::read_to_string(folder.join("stats")).map_err(not_ours)?;
        let threshold = fs::read_to_string(folder.join("spin_threshold")).map_err(not_ours)?;
        let backend = stats.lines().find_map(|line| line.strip_prefix("backend "));
        let (Some(backend), Ok(threshold)) = (backend, threshold.trim().parse()) else {
            return Err(not_ours(io::ErrorKind::InvalidData.into()));
        };
        if backend == "off" {
            return Err(TableError::Usage(
                "this guest was booted without PV ticketlocks, so there is nothing to compare: \
                 boot it with --pv vmm, doorbell or kvm"
                    .into(),
            ));
        }
        Ok(Self { folder: folder.into(), backend: backend.into(), threshold })
    }

    /// Switches to a configuration.
    pub fn set(&self, configuration: Configuration) -> io::Result<()> {
        let (enabled, threshold) = match configuration {
            Configuration::Native => (0, self.threshold),
            Configuration::NoHalts => (1, OUT_OF_REACH),
            Configuration::Pv => (1, self.threshold),
        };
        self.write("spin_threshold", threshold)?;
        self.write("enabled", enabled)
    }

    fn write(&self, name: &str, value: u64) -> io::Result<()> {
        let file = self.folder.join(name);
        fs::write(&file, format!("{value}\n")).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot write {value} to {}: {error}", file.display()),
            )
        })
    }
}

impl Drop for LockSwitches {
    fn drop(&mut self) {
        // Back to the state at boot. The file was writable before, and an error could not be
        // reported here.
        let _ = self.set(Configuration::Pv);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debugfs(name: &str, backend: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("pgbench-table-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("stats"), format!("backend {backend}\nkicked 3\n")).unwrap();
        fs::write(folder.join("spin_threshold"), "512\n").unwrap();
        folder
    }

    fn switches(folder: &Path) -> (String, String) {
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap().trim().to_owned();
        (text("enabled"), text("spin_threshold"))
    }

    #[test]
    fn configurations_are_switched_and_the_boots_comes_back() {
        let folder = debugfs("on", "vmm");
        let locks = LockSwitches::find_in(&folder).unwrap();
        assert_eq!((locks.backend.as_str(), locks.threshold), ("vmm", 512));
        for (configuration, enabled, threshold) in [
            (Configuration::NoHalts, "1", "4294967295"),
            (Configuration::Native, "0", "512"),
            (Configuration::Pv, "1", "512"),
            (Configuration::Native, "0", "512"),
        ] {
            locks.set(configuration).unwrap();
            assert_eq!(switches(&folder), (enabled.into(), threshold.into()));
        }
        drop(locks);
        assert_eq!(switches(&folder), ("1".into(), "512".into()));
    }

    #[test]
    fn guests_without_pv_are_refused() {
        let says = |folder: &Path| match LockSwitches::find_in(folder) {
            Err(TableError::Usage(text)) => text,
            other => panic!("{other:?}"),
        };
        assert!(says(&debugfs("off", "off")).contains("--pv vmm, doorbell or kvm"));
        assert!(says(Path::new("/nowhere")).contains("pvticket setup kernel"));
    }

    #[test]
    fn halts_of_both_kinds_count() {
        let counters = serde_json::json!({"kicked": 4, "halted_irq_off": 2, "halted_irq_on": 3});
        assert_eq!(Slow::of(&counters), Slow { halts: 5, kicks: 4 });
        assert_eq!(Slow::of(&serde_json::Value::Null), Slow::default());
    }
}
