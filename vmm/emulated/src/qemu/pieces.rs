//! Parts of the emulated host provided by `pvticket setup host`: QEMU, a kernel and modules.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};
use thiserror::Error;

use base::files::{self, FileError};
use kvm::sys::tsc::Rate;
use os::{
    artifacts::{ArtifactError, cache_dir},
    owners::{UntrustedUser, untrusted_user, untrusted_within},
};
use study::point::HostKernel;

/// Modules that the machine needs unless they are built into its kernel. Their dependencies are read from
/// their files.
const MODULES: [&str; 3] = ["virtio_pci", "virtio_console", "kvm-amd"];

/// Environment variable with the path of the emulator.
const VARIABLE: &str = "PVTICKET_QEMU";

/// The emulator's name on `PATH`.
pub const QEMU: &str = "qemu-system-x86_64";

/// A part is missing or unusable. Each message explains how to get it.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum PartsError {
    /// There is no cache directory.
    #[error(transparent)]
    Cache(#[from] ArtifactError),
    /// QEMU is not installed.
    #[error(
        "the emulated host needs {QEMU}, which is not on PATH: apt-get install qemu-system-x86, or set {VARIABLE} to its path"
    )]
    Qemu,
    /// Another user could have tampered with the QEMU in the cache.
    #[error(
        "the QEMU of the cache is not executed: {0}; revoke that, or set {VARIABLE} to another QEMU"
    )]
    ForeignOwner(UntrustedUser),
    /// The variable does not name a program.
    #[error("{VARIABLE}={file}: {reason}: name a {QEMU}, or unset it")]
    Named { file: PathBuf, reason: String },
    /// The kernel has not been fetched.
    #[error("no kernel {kernel} for the emulated host in {folder}: run `{}`", command(*kernel))]
    Kernel { kernel: HostKernel, folder: PathBuf },
    /// A module is missing.
    #[error(
        "the emulated host's kernel in {folder} has no module {name}: remove it and run `pvticket setup host` again"
    )]
    Module { folder: PathBuf, name: String },
    /// Modules with a circular dependency, which no real kernel has.
    #[error("the module {0} depends on itself")]
    Circle(String),
    /// A part cannot be read.
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
}

/// The parts of an emulated host.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The emulator.
    pub qemu: PathBuf,
    /// The kernel: the ELF file, which boots a second faster, or the bzImage.
    pub kernel: PathBuf,
    /// The modules in load order.
    pub modules: Vec<Module>,
    /// The kernel's release.
    pub release: String,
    /// This system's TSC rate.
    pub tsc: Rate,
}

/// A kernel module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Name, without `.ko`.
    pub name: String,
    pub path: PathBuf,
}

impl Parts {
    /// Finds the parts. Fails if a part is missing.
    pub fn find(kernel: HostKernel) -> Result<Self, PartsError> {
        let tsc = Rate::start();
        let qemu = find_qemu()?;
        let folder = cache_dir()?.join(folder_of(kernel)).join("current");
        let image = ["vmlinux", "vmlinuz"].map(|name| folder.join(name));
        let image = existing(image)?
            .ok_or_else(|| PartsError::Kernel { kernel, folder: folder.clone() })?;
        let release = fs::canonicalize(&folder)
            .ok()
            .and_then(|real| real.file_name().map(|name| name.to_string_lossy().into_owned()))
            .unwrap_or_default();
        let modules = ModuleFolder::open(&folder)?.in_order()?;
        Ok(Self { qemu, kernel: image, modules, release, tsc })
    }
}

/// Returns a kernel's folder in the cache.
fn folder_of(kernel: HostKernel) -> String {
    match kernel {
        HostKernel::Linux6_1 => "host".to_owned(),
        HostKernel::Linux7 => "host-7".to_owned(),
        HostKernel::Own(label) => format!("host-own-{label}"),
    }
}

/// Returns the command that fetches a kernel.
const fn command(kernel: HostKernel) -> &'static str {
    match kernel {
        HostKernel::Linux6_1 => "pvticket setup host",
        HostKernel::Linux7 => "pvticket setup host-7",
        HostKernel::Own(_) => "pvticket emulate --host-kernel NAME=PATH -- true",
    }
}

/// Finds QEMU: the program named by the user, or the QEMU that `pvticket setup host` fetches if this
/// system's is too old, or this system's.
pub fn find_qemu() -> Result<PathBuf, PartsError> {
    if let Some(named) = env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
        return program(named.into());
    }
    let folder = cache_dir()?.join("qemu/current");
    if let Some(fetched) = existing([folder.join("bin").join(QEMU)])? {
        let foreign = untrusted_user(&fetched).or_else(|| untrusted_within(&folder));
        return foreign.map_or(Ok(fetched), |foreign| Err(PartsError::ForeignOwner(foreign)));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|folder| folder.join(QEMU));
    existing(on_path)?.ok_or(PartsError::Qemu)
}

/// Returns the first of these files that exists.
fn existing(paths: impl IntoIterator<Item = PathBuf>) -> Result<Option<PathBuf>, PartsError> {
    files::first_existing(paths).map_err(|(path, source)| PartsError::Read { path, source })
}

/// Returns `file` if it is a program that may be executed.
fn program(file: PathBuf) -> Result<PathBuf, PartsError> {
    let reason = match files::open_regular(&file) {
        // A program that may be executed need not be readable.
        Err(FileError::Io(error)) if error.kind() != io::ErrorKind::PermissionDenied => {
            error.to_string()
        }
        Err(problem @ (FileError::Directory | FileError::NotRegular)) => problem.to_string(),
        _ => match access(&file, Access::EXEC_OK) {
            Ok(()) => return Ok(file),
            Err(_) => "it may not be executed".into(),
        },
    };
    Err(PartsError::Named { file, reason })
}

/// The modules of a kernel.
struct ModuleFolder {
    /// Directory of their files.
    modules: PathBuf,
    /// Names of the modules built into the kernel.
    built_in: Vec<String>,
}

impl ModuleFolder {
    /// Opens a kernel's folder. If made by hand, it may lack the list of built-in modules.
    fn open(folder: &Path) -> Result<Self, PartsError> {
        let path = folder.join("modules.builtin");
        let built_in = match fs::read_to_string(&path) {
            Ok(list) => names(&list),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(PartsError::Read { path, source }),
        };
        Ok(Self { modules: folder.join("modules"), built_in })
    }

    /// Returns the wanted modules that are not built in, with their dependencies, in load order.
    fn in_order(&self) -> Result<Vec<Module>, PartsError> {
        let mut order = Vec::new();
        for name in MODULES {
            self.add(name, &mut Vec::new(), &mut order)?;
        }
        Ok(order)
    }

    fn add(
        &self,
        name: &str,
        ancestors: &mut Vec<String>,
        order: &mut Vec<Module>,
    ) -> Result<(), PartsError> {
        let is_loaded = order.iter().any(|module| same_module(&module.name, name));
        if is_loaded || self.built_in.iter().any(|module| same_module(module, name)) {
            return Ok(());
        }
        if ancestors.iter().any(|module| same_module(module, name)) {
            return Err(PartsError::Circle(name.into()));
        }
        let path = find_module(&self.modules, name)?;
        let bytes =
            fs::read(&path).map_err(|source| PartsError::Read { path: path.clone(), source })?;
        ancestors.push(name.into());
        for needed in depends(&bytes) {
            self.add(&needed, ancestors, order)?;
        }
        ancestors.pop();
        order.push(Module { name: name.into(), path });
        Ok(())
    }
}

/// Parses the modules in a `modules.builtin`, one path per line (Documentation/kbuild/kbuild.rst).
fn names(list: &str) -> Vec<String> {
    let name =
        |line: &str| Some(Path::new(line).file_name()?.to_str()?.strip_suffix(".ko")?.into());
    list.lines().filter_map(name).collect()
}

/// The kernel treats `-` and `_` in module names alike. File names have either.
fn same_module(a: &str, b: &str) -> bool {
    a.replace('-', "_") == b.replace('-', "_")
}

fn find_module(folder: &Path, name: &str) -> Result<PathBuf, PartsError> {
    let files = [name.replace('-', "_"), name.replace('_', "-"), name.into()]
        .map(|name| folder.join(name + ".ko"));
    existing(files)?.ok_or_else(|| PartsError::Module { folder: folder.into(), name: name.into() })
}

/// Returns the dependencies in a module's `.modinfo`: `depends=a,b` and a NUL byte.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = module.windows(KEY.len()).position(|part| part == KEY) else {
        return Vec::new();
    };
    let value = &module[start + KEY.len()..];
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(0);
    let names = String::from_utf8_lossy(&value[..end]);
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Creates a kernel's folder with these modules, their dependencies, and the list of built-in ones.
    fn kernel(modules: &[(&str, &str)], built_in: &str) -> TempDir {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("modules")).unwrap();
        for (file, needs) in modules {
            let text = format!("\x7fELF..\0license=GPL\0depends={needs}\0intree=Y\0");
            fs::write(folder.path().join("modules").join(file), text).unwrap();
        }
        if !built_in.is_empty() {
            fs::write(folder.path().join("modules.builtin"), built_in).unwrap();
        }
        folder
    }

    fn order(folder: &TempDir) -> Result<Vec<String>, PartsError> {
        let modules = ModuleFolder::open(folder.path())?.in_order()?;
        Ok(modules.into_iter().map(|module| module.name).collect())
    }

    const KVM: [(&str, &str); 3] =
        [("kvm-amd.ko", "kvm"), ("kvm.ko", "irqbypass"), ("irqbypass.ko", "")];

    #[test]
    fn modules_follow_their_dependencies() {
        let virtio = [
            ("virtio_pci.ko", "virtio_ring,virtio,virtio_pci_modern_dev"),
            ("virtio_console.ko", "virtio,virtio_ring"),
            ("virtio.ko", "virtio_ring"),
            ("virtio_ring.ko", ""),
            ("virtio_pci_modern_dev.ko", ""),
        ];
        let folder = kernel(&[&virtio[..], &KVM].concat(), "");
        let expected = "virtio_ring virtio virtio_pci_modern_dev virtio_pci virtio_console irqbypass kvm kvm-amd";
        assert_eq!(order(&folder).unwrap().join(" "), expected);
    }

    #[test]
    fn built_in_modules_are_not_loaded() {
        let built_in = "kernel/drivers/virtio/virtio.ko\nkernel/drivers/virtio/virtio-pci.ko\n\
                        kernel/drivers/char/virtio_console.ko\n";
        assert_eq!(order(&kernel(&KVM, built_in)).unwrap(), ["irqbypass", "kvm", "kvm-amd"]);
        let similar =
            kernel(&KVM, "kernel/drivers/char/virtio_console.ko.xz\nkernel/my_virtio_pci.ko\n");
        assert!(order(&similar).unwrap_err().to_string().contains("virtio_pci"));
    }

    #[test]
    fn missing_and_circular_modules_are_named() {
        let missing = kernel(&[("virtio_pci.ko", "virtio-ring")], "");
        let error = order(&missing).unwrap_err().to_string();
        assert!(error.contains("virtio-ring") && error.contains("pvticket setup host"), "{error}");
        let circle = kernel(&[("virtio_pci.ko", "virtio"), ("virtio.ko", "virtio_pci")], "");
        assert!(matches!(order(&circle), Err(PartsError::Circle(_))));
    }

    #[test]
    fn unusable_programs_are_reported() {
        let folder = TempDir::new().unwrap();
        let refusal = |file: &Path| program(file.into()).unwrap_err().to_string();
        let missing = refusal(Path::new("/nonexistent"));
        assert!(missing.starts_with("PVTICKET_QEMU=/nonexistent: No such file"), "{missing}");
        assert!(refusal(folder.path()).contains("it is a directory"));
        let file = folder.path().join("qemu");
        fs::write(&file, "").unwrap();
        assert!(refusal(&file).contains("may not be executed"));
        assert!(program("/proc/self/exe".into()).is_ok());
    }

    #[test]
    fn a_missing_kernel_is_named_with_its_command() {
        for (kernel, command) in [
            (HostKernel::Linux6_1, "`pvticket setup host`"),
            (HostKernel::Linux7, "`pvticket setup host-7`"),
        ] {
            let error = PartsError::Kernel { kernel, folder: "host".into() }.to_string();
            assert!(error.ends_with(command), "{error}");
        }
    }
}
