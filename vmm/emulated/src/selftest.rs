//! A hidden command for the tests of the emulated host: a sample of what errands do, usable on any
//! Linux, inside and outside.

// Tests read the output.
#![allow(clippy::print_stdout)]

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::fd::AsRawFd,
    process, thread,
    time::Duration,
};

use kvm_ioctls::Kvm;
use rustix::process::{Signal, getpid, kill_process};

/// Executes the words in order and exits with 0, or with the status that one of them sets.
///
/// `kvm`: KVM's API version; `cpus`: their number; `thp`, `clock`: the kernel's choice; `cat`:
/// stdin to stdout; `out TEXT`, `err TEXT`; `flood BYTES` to stdout; `eat MIB` of memory; `write
/// PATH TEXT`; `read PATH` to stdout; `env NAME`; `sleep SECONDS`; `signal NUMBER` to itself; `exit
/// STATUS`.
pub fn main(words: impl IntoIterator<Item = OsString>) -> Result<u8, String> {
    let mut words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or_else(|| format!("{word}: what?"));
        match word.as_str() {
            "exit" => return number(&next()?),
            "signal" => {
                let named = Signal::from_named_raw(number(&next()?)?);
                let signal = named.ok_or_else(|| "no such signal".to_owned())?;
                kill_process(getpid(), signal).map_err(|errno| errno.to_string())?;
            }
            "sleep" => thread::sleep(Duration::from_secs_f64(number(&next()?)?)),
            "cpus" => {
                println!("{}", thread::available_parallelism().map_or(0, |count| count.get()))
            }
            "env" => println!("{}", std::env::var(next()?).unwrap_or_default()),
            "eat" => eat(number(&next()?)?),
            "write" => fs::write(next()?, next()?).map_err(|error| error.to_string())?,
            word => stream(word, &mut next).map_err(|error| format!("{word}: {error}"))?,
        }
    }
    Ok(0)
}

fn stream(word: &str, next: &mut dyn FnMut() -> Result<String, String>) -> io::Result<()> {
    let mut next = || next().map_err(io::Error::other);
    let mut stdout = io::stdout().lock();
    match word {
        "kvm" => kvm(&mut stdout),
        "thp" => copy("/sys/kernel/mm/transparent_hugepage/enabled", &mut stdout),
        "clock" => {
            copy("/sys/devices/system/clocksource/clocksource0/current_clocksource", &mut stdout)
        }
        "cat" => io::copy(&mut io::stdin().lock(), &mut stdout).map(drop),
        "read" => copy(&next()?, &mut stdout),
        "out" => writeln!(stdout, "{}", next()?),
        "err" => writeln!(io::stderr(), "{}", next()?),
        "flood" => {
            let bytes = next()?.parse().map_err(io::Error::other)?;
            io::copy(&mut Pattern::default().take(bytes), &mut stdout).map(drop)
        }
        _ => Err(io::Error::other("no such word")),
    }
}

fn kvm(to: &mut impl Write) -> io::Result<()> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/kvm")?;
    let kvm = Kvm::new().map_err(|errno| io::Error::from_raw_os_error(errno.errno()))?;
    let npt = fs::read_to_string("/sys/module/kvm_amd/parameters/npt").unwrap_or_default();
    let opened = device.as_raw_fd() >= 0;
    writeln!(
        to,
        "api {} opened {opened} npt {} pid {}",
        kvm.get_api_version(),
        npt.trim(),
        process::id()
    )
}

fn copy(path: &str, to: &mut impl Write) -> io::Result<()> {
    io::copy(&mut File::open(path)?, to).map(drop)
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("'{word}' is not a number"))
}

fn eat(mib: usize) {
    let mut eaten = Vec::new();
    for _ in 0..mib {
        // Not zeroes, which would need no memory.
        eaten.push(std::hint::black_box(vec![1u8; 1 << 20]));
    }
    println!("ate {} MiB", eaten.len());
}

/// Endless bytes of all values, whose period does not match a buffer's length.
#[derive(Debug, Default)]
struct Pattern(u32);

impl Read for Pattern {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for byte in buffer.iter_mut() {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (self.0 >> 24) as u8;
        }
        Ok(buffer.len())
    }
}
