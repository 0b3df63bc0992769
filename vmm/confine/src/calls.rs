//! Entries of the lists.

/// A system call that a class of threads may make.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Its number.
    pub number: i64,
    /// With which arguments.
    pub rule: Rule,
    /// What for.
    pub why: &'static str,
    /// Which processes need it.
    pub when: When,
    /// Why no test sees that it is made; None: one does.
    pub unseen: Option<Unseen>,
}

/// Which processes need a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// All.
    Always,
    /// Those whose machines have a schedule of this program's.
    Schedule,
    /// Those whose machines have a scheduler in the host's kernel.
    DriverBpf,
}

/// What the machines of a process have, which decides about the calls of [`When`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// A schedule of this program's, which chooses the CPUs and priorities of threads.
    pub schedule: bool,
    /// A scheduler in the host's kernel.
    pub driver_bpf: bool,
}

impl Needs {
    /// Everything.
    pub const ALL: Self = Self { schedule: true, driver_bpf: true };

    /// Does such a process need what is needed then?
    pub const fn has(self, when: When) -> bool {
        match when {
            When::Always => true,
            When::Schedule => self.schedule,
            When::DriverBpf => self.driver_bpf,
        }
    }
}

/// Why no test sees that a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unseen {
    /// Cannot be trapped, and passes where calls are noted.
    Passes,
    /// `--driver bpf` makes it, which needs a host's kernel with sched_ext: seen where there is one.
    DriverBpf,
    /// Builds with debug assertions make it.
    DebugBuild,
    /// The process makes it as it ends by a forbidden call, which is not so where calls are noted.
    AtTheEnd,
    /// Made at a moment that a test cannot choose.
    Chance,
}

/// With which arguments a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Any.
    Any,
    /// This value of an argument (counted from 0), of which the kernel reads the low 32 bits.
    Only(u8, u32),
    /// This argument, with all its 64 bits, is zero.
    Zero(u8),
    /// An ioctl with this request of this descriptor.
    Request(i32, u32),
    /// The first argument is this process.
    OurProcess,
    /// None of these bits of an argument (counted from 0) is set.
    Without(u8, u32),
    /// An fcntl with this command, whose flags have no other bits than these.
    Flags(u32, u32),
    /// All of these bits of the first argument are set.
    With(u32),
}

impl Call {
    const fn new(number: i64, rule: Rule, reason: &'static str) -> Self {
        Self { number, rule, why: reason, when: When::Always, unseen: None }
    }

    /// Marks the call as one that no test sees.
    pub(crate) const fn unseen(self, reason: Unseen) -> Self {
        Self { unseen: Some(reason), ..self }
    }

    /// Limits the call to processes with a schedule.
    pub(crate) const fn of_schedules(self) -> Self {
        Self { when: When::Schedule, ..self }
    }

    /// Limits the call to processes with a scheduler in the host's kernel.
    pub(crate) const fn of_driver_bpf(self) -> Self {
        Self { when: When::DriverBpf, ..self }.unseen(Unseen::DriverBpf)
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

    /// Memory that is not executable.
    pub(crate) const fn no_code(number: i64, reason: &'static str) -> Self {
        Self::new(number, Rule::Without(2, libc::PROT_EXEC as u32), reason)
    }

    /// An fcntl that sets no other flags than these.
    pub(crate) const fn flags(command: i32, bits: i32, reason: &'static str) -> Self {
        Self::new(libc::SYS_fcntl, Rule::Flags(command as u32, bits as u32), reason)
    }

    pub(crate) const fn with(number: i64, bits: u32, reason: &'static str) -> Self {
        Self::new(number, Rule::With(bits), reason)
    }

    pub(crate) const fn ours(number: i64, reason: &'static str) -> Self {
        Self::new(number, Rule::OurProcess, reason)
    }

    /// The name of the call, with its request if it is an ioctl.
    pub fn name(&self) -> String {
        let name = crate::names::NAMES.get(self.number as usize).copied().unwrap_or_default();
        match self.rule {
            Rule::Only(1, request) | Rule::Request(_, request)
                if self.number == libc::SYS_ioctl =>
            {
                let requests = crate::requests::NAMES;
                let known = requests.iter().find(|(number, _)| *number == request);
                match known {
                    Some((_, request)) => format!("{name} {request}"),
                    None => format!("{name} {request:#x}"),
                }
            }
            _ => name.into(),
        }
    }
}
