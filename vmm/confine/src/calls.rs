//! Entries of the system call lists.

/// A system call that a class of threads may make.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// System call number.
    pub number: i64,
    /// Permitted arguments.
    pub rule: Rule,
    /// Reason for permitting it.
    pub reason: &'static str,
    /// Processes that need it.
    pub when: When,
    /// The reason why no test observes the call; None if a test does.
    pub untested: Option<Untested>,
}

/// Processes that need a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// All processes.
    Always,
    /// Processes whose machines have one of this program's schedules.
    Schedule,
    /// Processes whose machines have a scheduler in the host's kernel.
    DriverBpf,
}

/// Features of a process's machines, which select the calls of [`When`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// One of this program's schedules, which chooses the CPUs and priorities of threads.
    pub schedule: bool,
    /// A scheduler in the host's kernel.
    pub driver_bpf: bool,
}

impl Needs {
    /// All features.
    pub const ALL: Self = Self { schedule: true, driver_bpf: true };

    /// Whether a process with these features makes the calls of `when`.
    pub const fn has(self, when: When) -> bool {
        match when {
            When::Always => true,
            When::Schedule => self.schedule,
            When::DriverBpf => self.driver_bpf,
        }
    }
}

/// Reasons why no test observes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untested {
    /// Cannot be trapped, so it is not recorded.
    Untrappable,
    /// Made by `--driver bpf`, which needs a host kernel with sched_ext. Observed on such hosts.
    DriverBpf,
    /// Made by builds with debug assertions.
    DebugBuild,
    /// Made while a forbidden call ends the process, which does not happen where calls are recorded.
    AfterViolation,
    /// Made at a moment that a test cannot choose.
    Timing,
}

/// Arguments that a call may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Any.
    Any,
    /// This value of an argument (counted from 0). The kernel reads only its low 32 bits.
    Only(u8, u32),
    /// This argument is zero in all its 64 bits.
    Zero(u8),
    /// An ioctl with this request on this descriptor.
    Request(i32, u32),
    /// The first argument is this process.
    OurProcess,
    /// None of these bits of an argument (counted from 0) is set.
    Without(u8, u32),
    /// An fcntl with this command and no flags other than these.
    Flags(u32, u32),
    /// All of these bits of the first argument are set.
    With(u32),
}

impl Call {
    const fn new(number: i64, rule: Rule, reason: &'static str) -> Self {
        Self { number, rule, reason, when: When::Always, untested: None }
    }

    /// Marks the call as not observed by any test.
    pub(crate) const fn untested(self, reason: Untested) -> Self {
        Self { untested: Some(reason), ..self }
    }

    /// Limits the call to processes with a schedule.
    pub(crate) const fn with_schedule(self) -> Self {
        Self { when: When::Schedule, ..self }
    }

    /// Limits the call to processes with a scheduler in the host's kernel.
    pub(crate) const fn with_driver_bpf(self) -> Self {
        Self { when: When::DriverBpf, ..self }.untested(Untested::DriverBpf)
    }

    pub(crate) const fn any(number: i64, reason: &'static str) -> Self {
        Self::new(number, Rule::Any, reason)
    }

    pub(crate) const fn ioctl(request: u32, reason: &'static str) -> Self {
        Self::new(libc::SYS_ioctl, Rule::Only(1, request), reason)
    }

    pub(crate) const fn only(number: i64, argument: u8, value: i32, reason: &'static str) -> Self {
        Self::new(number, Rule::Only(argument, value as u32), reason)
    }

    pub(crate) const fn zero(number: i64, argument: u8, reason: &'static str) -> Self {
        Self::new(number, Rule::Zero(argument), reason)
    }

    pub(crate) const fn ioctl_on(fd: i32, request: u32, reason: &'static str) -> Self {
        Self::new(libc::SYS_ioctl, Rule::Request(fd, request), reason)
    }

    /// Permits only memory that is not executable.
    pub(crate) const fn no_code(number: i64, reason: &'static str) -> Self {
        Self::new(number, Rule::Without(2, libc::PROT_EXEC as u32), reason)
    }

    /// An fcntl that sets no flags other than these.
    pub(crate) const fn flags(command: i32, bits: i32, reason: &'static str) -> Self {
        Self::new(libc::SYS_fcntl, Rule::Flags(command as u32, bits as u32), reason)
    }

    pub(crate) const fn with_bits(number: i64, bits: u32, reason: &'static str) -> Self {
        Self::new(number, Rule::With(bits), reason)
    }

    pub(crate) const fn own_process(number: i64, reason: &'static str) -> Self {
        Self::new(number, Rule::OurProcess, reason)
    }

    /// Returns the call's name, with the request if it is an ioctl.
    pub fn name(&self) -> String {
        let name = crate::names::NAMES.get(self.number as usize).copied().unwrap_or_default();
        match self.rule {
            Rule::Only(1, request) | Rule::Request(_, request)
                if self.number == libc::SYS_ioctl =>
            {
                let requests = crate::requests::NAMES;
                let entry = requests.iter().find(|(number, _)| *number == request);
                match entry {
                    Some((_, request)) => format!("{name} {request}"),
                    None => format!("{name} {request:#x}"),
                }
            }
            _ => name.into(),
        }
    }
}
