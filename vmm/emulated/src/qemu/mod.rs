//! The QEMU process of a session and its sockets.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    os::unix::{net::UnixStream as StdStream, process::CommandExt},
    process::{Command as StdCommand, Stdio},
};

use thiserror::Error;
use tokio::{
    net::UnixStream,
    process::{Child, ChildStderr, Command},
};

use super::wire::PORTS;
use image::Initramfs;
use pieces::Parts;

pub(super) mod confinement;
pub(super) mod image;
pub(super) mod pieces;

use base::{io_errors, units::ByteSize};
use kvm::sys::spawn::keep_and_die_with_us;

/// CPU model emulated by QEMU: AMD-V with nested paging. It is a quarter faster than `max` (measured with
/// QEMU 7.2), which emulates more features than the guest uses.
const CPU: &str = "EPYC,+svm";

/// The kernel's command line, tuned by measured boot times (QEMU 7.2).
///
/// `nohz=off highres=off`: QEMU's TCG sometimes loses an interrupt request while a CPU is in the inner guest with
/// interrupts off, and only a periodic tick raises it again. `maxcpus=1 noreplace-smp`: while other CPUs are online,
/// each code patch has to synchronize all of them, so the agent brings the CPUs online after the modules are loaded,
/// and the kernel does not patch its lock prefixes then. `no_timer_check`: on a starved system the kernel would
/// consider the timer broken and panic. No self-tests, no watchdogs; RCU grace periods are expedited. Huge pages only
/// on request (`madvise`), which pvticket issues for guest memory; with huge pages for all memory, the run times of
/// other VMMs vary widely. The last word makes this binary the agent.
const COMMAND_LINE: &str = "console=ttyS0 quiet nohz=off highres=off \
    maxcpus=1 noreplace-smp cpu_init_udelay=0 no_timer_check nowatchdog \
    cryptomgr.notests=1 rcupdate.rcu_expedited=1 mitigations=off apparmor=0 audit=0 \
    random.trust_cpu=on transparent_hugepage=madvise panic=-1 PVTICKET_AGENT=1";

/// Timer ticks per second of Debian's kernels (CONFIG_HZ).
const HZ: u64 = 250;

/// Presets the clock frequencies, because the kernel's own calibration takes long and goes wrong on a busy
/// system. TCG exposes this system's TSC to its guest, so the frequency is the same.
fn clock_line(tsc_khz: u64) -> String {
    format!("tsc=reliable tsc_early_khz={tsc_khz} lpj={}", tsc_khz * 1000 / HZ)
}

/// Returns the word by which KVM requests pause-loop exits, though QEMU's CPU has no pause filter. Linux has `setcpuid`
/// since 6.15.
fn pause_filter(release: &str) -> &'static str {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|it| it.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 15) { "" } else { " setcpuid=pausefilter,pfthreshold" }
}

/// Reason why QEMU cannot be started.
#[derive(Debug, Error)]
pub enum QemuError {
    /// A socket pair cannot be made.
    #[error("cannot make a socket for the emulated host")]
    Socket(#[source] io::Error),
    /// QEMU's access to files cannot be restricted.
    #[error("cannot confine the emulated host")]
    Confine(#[source] confine::RulesetError),
    /// The filter of QEMU's system calls cannot be built.
    #[error("cannot filter the emulator's system calls")]
    Calls(#[source] confine::BackendError),
    /// The QEMU process cannot be started.
    #[error("cannot start {qemu}")]
    Spawn { qemu: String, source: io::Error },
    /// QEMU has no stderr, although it was spawned with one.
    #[error("{0} was started without its stderr")]
    NoStderr(String),
}

/// The size of the machine and its clock rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineSize {
    /// Emulated CPUs, including the CPU that is kept free of commands.
    pub cpus: u32,
    pub memory: ByteSize,
    /// Frequency of this system's time stamp counter.
    pub tsc_khz: u64,
}

/// A running QEMU. Dropping it kills QEMU.
#[derive(Debug)]
pub struct Qemu {
    pub child: Child,
    /// QEMU's own messages.
    pub stderr: ChildStderr,
    /// The agent's ports, in the order of [`PORTS`].
    pub ports: [UnixStream; PORTS.len()],
    /// The kernel's console.
    pub console: UnixStream,
    /// QEMU's monitor, in QMP.
    pub monitor: UnixStream,
    /// QEMU's command line, for the evidence of a failure.
    pub command_line: String,
}

impl Qemu {
    /// Starts QEMU. The calling thread must live as long as the machine.
    pub fn start(pieces: &Parts, image: &Initramfs, size: MachineSize) -> Result<Self, QemuError> {
        let mut sockets = Sockets::default();
        let [control, stdin, stdout, stderr] = sockets.pairs()?;
        let [console, monitor] = sockets.pairs()?;
        let mut command = StdCommand::new(&pieces.qemu);
        base(&mut command, pieces, size);
        // QEMU reopens the image through this name, so the descriptor need not be rewound.
        command.arg("-initrd").arg(format!("/proc/self/fd/{}", image.file().as_raw_fd()));
        serial_ports(&mut command, &sockets.qemu_ends[..PORTS.len()]);
        extras(&mut command, sockets.fd(PORTS.len()), sockets.fd(PORTS.len() + 1));
        // In a separate process group: Ctrl-C reaches only this process, which then ends QEMU.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut keep: Vec<RawFd> = sockets.qemu_ends.iter().map(AsRawFd::as_raw_fd).collect();
        keep.push(image.file().as_raw_fd());
        keep_and_die_with_us(&mut command, keep);
        confinement::confine(&mut command, pieces, size)?;
        let command_line = format!("{command:?}");
        let spawned = Command::from(command).kill_on_drop(true).spawn();
        let qemu = || pieces.qemu.display().to_string();
        let mut child = spawned.map_err(|error| QemuError::Spawn {
            qemu: qemu(),
            source: io_errors::start_error(error),
        })?;
        let log = child.stderr.take().ok_or_else(|| QemuError::NoStderr(qemu()))?;
        let ports = [control, stdin, stdout, stderr];
        Ok(Self { child, stderr: log, ports, console, monitor, command_line })
    }
}

/// Returns the memory in MiB, rounded up. QEMU rounds up sizes that are not a multiple of 8 KiB, and a
/// process confined to the exact size would lack the difference.
const fn whole_mib(memory: ByteSize) -> u64 {
    memory.0.div_ceil(1 << 20)
}

fn base(command: &mut StdCommand, pieces: &Parts, size: MachineSize) {
    command
        .args(["-sandbox", confinement::SANDBOX])
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args(["-machine", "pc,usb=off,vmport=off,smm=off", "-accel", "tcg,thread=multi"])
        .args(["-cpu", CPU, "-smp", &size.cpus.to_string()])
        .args(["-m", &format!("{}M", whole_mib(size.memory))])
        .arg("-kernel")
        .arg(&pieces.kernel)
        .arg("-append")
        .arg(format!(
            "{COMMAND_LINE} {}{}",
            clock_line(size.tsc_khz),
            pause_filter(&pieces.release)
        ));
}

fn serial_ports(command: &mut StdCommand, sockets: &[StdStream]) {
    command.args(["-device", "virtio-serial-pci,disable-legacy=on,vectors=3"]);
    for (index, (name, socket)) in PORTS.iter().zip(sockets).enumerate() {
        let chardev = format!("socket,id=port{index},fd={}", socket.as_raw_fd());
        // The virtio specification (5.3) reserves port 0 for a console.
        let device = format!("virtserialport,chardev=port{index},name={name},nr={}", index + 1);
        command.args(["-chardev", &chardev, "-device", &device]);
    }
}

fn extras(command: &mut StdCommand, console: RawFd, monitor: RawFd) {
    command
        .args(["-chardev", &format!("socket,id=console,fd={console}")])
        .args(["-serial", "chardev:console"])
        .args(["-chardev", &format!("socket,id=monitor,fd={monitor}")])
        .args(["-mon", "chardev=monitor,mode=control"]);
}

/// Socket pairs. QEMU inherits one end of each.
#[derive(Debug, Default)]
struct Sockets {
    qemu_ends: Vec<StdStream>,
}

impl Sockets {
    fn pairs<const N: usize>(&mut self) -> Result<[UnixStream; N], QemuError> {
        let mut our_ends = Vec::with_capacity(N);
        for _ in 0..N {
            our_ends.push(self.pair().map_err(QemuError::Socket)?);
        }
        our_ends.try_into().map_err(|_| QemuError::Socket(io::ErrorKind::Other.into()))
    }

    fn pair(&mut self) -> io::Result<UnixStream> {
        let (our_end, qemu_end) = StdStream::pair()?;
        self.qemu_ends.push(qemu_end);
        our_end.set_nonblocking(true)?;
        UnixStream::from_std(our_end)
    }

    fn fd(&self, index: usize) -> RawFd {
        self.qemu_ends[index].as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_with_setcpuid_has_a_pause_filter() {
        let words = ["6.1.0-57-cloud-amd64", "6.18.1", "7.3.2-cloud-amd64"].map(pause_filter);
        assert_eq!(words.map(|word| word.contains("pausefilter")), [false, true, true]);
    }

    #[test]
    fn memory_is_in_whole_mebibytes() {
        let sizes =
            [1 << 20, (128 << 20) + 4096, 100_003_840].map(|size| whole_mib(ByteSize(size)));
        assert_eq!(sizes, [1, 129, 96]);
    }
}
