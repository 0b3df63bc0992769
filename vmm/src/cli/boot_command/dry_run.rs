//! Output of `boot --dry-run`.

use std::fmt;

use super::plan::{InitMode, Plan};
use experiment::host_choice::ChosenPlace;
use study::point::{HostKernel, HostKind};

/// A plan and its host, one row per property.
pub(super) struct DryRun<'a> {
    pub(super) plan: &'a Plan,
    pub(super) choice: ChosenPlace,
    pub(super) host_kernel: HostKernel,
}

impl fmt::Display for DryRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, choice, host_kernel } = self;
        let mut row = |name: &str, value: &dyn fmt::Display| writeln!(f, "{name:<9} {value}");
        row("kernel", &plan.kernel.display())?;
        match (&plan.initrd, plan.mode) {
            (Some(file), InitMode::OwnInit) => row("initrd", &file.display())?,
            (Some(file), _) => row("initrd", &format_args!("{} + our init", file.display()))?,
            (None, _) => row("initrd", &"our init and busybox")?,
        }
        if let Some(disk) = &plan.guest_disk {
            row("disk", &disk.display())?;
        }
        row("cmdline", &plan.cmdline())?;
        row("vcpus", &plan.cpus)?;
        row("memory", &plan.mem)?;
        row("pv", &plan.pv)?;
        if plan.schedule.vms > 1 {
            row("machines", &plan.schedule.vms)?;
        }
        row("policy", &plan.schedule.policy)?;
        if !plan.driver.is_user() {
            row("driver", &plan.driver)?;
        }
        if let Some(faults) = &plan.faults {
            row("faults", faults)?;
        }
        let reason = choice.reason;
        match choice.place {
            HostKind::Direct => row("host", &format_args!("direct ({reason})"))?,
            HostKind::Emulated => {
                row("host", &format_args!("emulated ({reason}), kernel {host_kernel}"))?;
            }
        }
        match plan.mode {
            InitMode::Command => {
                let words: Vec<_> =
                    plan.command.iter().map(|word| word.to_string_lossy()).collect();
                row("runs", &words.join(" "))
            }
            InitMode::Shell => row("runs", &"a shell on the console"),
            InitMode::OwnInit => row("runs", &"the initrd's /init"),
        }
    }
}
