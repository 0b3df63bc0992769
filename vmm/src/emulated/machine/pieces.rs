//! The emulated host's parts, which `make host` provides: QEMU, a kernel and modules.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::guest::artifacts::{ArtifactError, cache_dir};
use kvm::sys::tsc::Rate;

/// Modules that the machine needs; their dependencies are read from them.
const WANTED: [&str; 3] = ["virtio_pci", "virtio_console", "kvm-amd"];

/// The emulator's name on `PATH`.
pub const QEMU: &str = "qemu-system-x86_64";

/// A part is missing or unusable. Each message says how to get it.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum PiecesError {
    /// There is no cache directory.
    #[error(transparent)]
    Cache(#[from] ArtifactError),
    /// QEMU is not installed.
    #[error(
        "the emulated host needs {QEMU}, which is not on PATH: apt-get install qemu-system-x86, or name it in PVTICKET_QEMU"
    )]
    Qemu,
    /// `make host` has not been run.
    #[error("no kernel for the emulated host in {0}: run `make host`")]
    Kernel(PathBuf),
    /// A module is missing.
    #[error("the emulated host's kernel in {folder} has no module {name}: run `make host` again")]
    Module { folder: PathBuf, name: String },
    /// Modules that depend on each other, which no real kernel has.
    #[error("the module {0} depends on itself")]
    Circle(String),
    /// A part cannot be read.
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
}

/// The parts of an emulated host.
#[derive(Debug, Clone)]
pub struct Pieces {
    /// The emulator.
    pub qemu: PathBuf,
    /// Its kernel: the ELF file, which starts a second sooner, or the bzImage.
    pub kernel: PathBuf,
    /// Its modules in the order of loading.
    pub modules: Vec<Module>,
    /// The kernel's release.
    pub release: String,
    /// Its clock rate: this system's.
    pub tsc: Rate,
}

/// A kernel module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name, without `.ko`.
    pub name: String,
    pub path: PathBuf,
}

impl Pieces {
    /// Finds the parts; fails if one is missing.
    pub fn find() -> Result<Self, PiecesError> {
        let tsc = Rate::start();
        let folder = cache_dir()?.join("host/current");
        let kernel = ["vmlinux", "vmlinuz"]
            .map(|name| folder.join(name))
            .into_iter()
            .find(|file| file.is_file())
            .ok_or_else(|| PiecesError::Kernel(folder.clone()))?;
        let release = fs::canonicalize(&folder)
            .ok()
            .and_then(|real| real.file_name().map(|name| name.to_string_lossy().into_owned()))
            .unwrap_or_default();
        let modules = in_order(&folder.join("modules"))?;
        Ok(Self { qemu: find_qemu()?, kernel, modules, release, tsc })
    }
}

/// The QEMU to use: the one that the user names, or the one that `make host` fetches where this
/// system's is too old, or this system's.
pub fn find_qemu() -> Result<PathBuf, PiecesError> {
    if let Some(named) = env::var_os("PVTICKET_QEMU").filter(|name| !name.is_empty()) {
        return Some(PathBuf::from(named)).filter(|file| file.is_file()).ok_or(PiecesError::Qemu);
    }
    let fetched = cache_dir()?.join("qemu/current/bin").join(QEMU);
    if fetched.is_file() {
        return Ok(fetched);
    }
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join(QEMU))
        .find(|file| file.is_file())
        .ok_or(PiecesError::Qemu)
}

/// The wanted modules of a folder with their dependencies, each after those.
fn in_order(folder: &Path) -> Result<Vec<Module>, PiecesError> {
    let mut order = Vec::new();
    for name in WANTED {
        add(folder, name, &mut Vec::new(), &mut order)?;
    }
    Ok(order)
}

fn add(
    folder: &Path,
    name: &str,
    above: &mut Vec<String>,
    order: &mut Vec<Module>,
) -> Result<(), PiecesError> {
    if order.iter().any(|module| same_module(&module.name, name)) {
        return Ok(());
    }
    if above.iter().any(|module| same_module(module, name)) {
        return Err(PiecesError::Circle(name.into()));
    }
    let path = find_module(folder, name)?;
    let bytes =
        fs::read(&path).map_err(|source| PiecesError::Read { path: path.clone(), source })?;
    above.push(name.into());
    for needed in depends(&bytes) {
        add(folder, &needed, above, order)?;
    }
    above.pop();
    order.push(Module { name: name.into(), path });
    Ok(())
}

/// The kernel treats `-` and `_` in module names alike; file names have either.
fn same_module(a: &str, b: &str) -> bool {
    a.replace('-', "_") == b.replace('-', "_")
}

fn find_module(folder: &Path, name: &str) -> Result<PathBuf, PiecesError> {
    [name.replace('-', "_"), name.replace('_', "-"), name.into()]
        .map(|name| folder.join(name + ".ko"))
        .into_iter()
        .find(|file| file.is_file())
        .ok_or_else(|| PiecesError::Module { folder: folder.into(), name: name.into() })
}

/// The dependencies in a module's `.modinfo`: `depends=a,b` and a NUL byte.
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
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn with(modules: &[(&str, &str)]) -> Self {
            let name = format!("pvticket-pieces-{}-{}", std::process::id(), modules.len());
            let folder = env::temp_dir().join(name);
            fs::create_dir_all(&folder).unwrap();
            for (file, needs) in modules {
                let text = format!("\x7fELF..\0license=GPL\0depends={needs}\0intree=Y\0");
                fs::write(folder.join(file), text).unwrap();
            }
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn modules_come_after_what_they_need() {
        let folder = Folder::with(&[
            ("virtio_pci.ko", "virtio_ring,virtio,virtio_pci_modern_dev"),
            ("virtio_console.ko", "virtio,virtio_ring"),
            ("virtio.ko", "virtio_ring"),
            ("virtio_ring.ko", ""),
            ("virtio_pci_modern_dev.ko", ""),
            ("kvm-amd.ko", "kvm"),
            ("kvm.ko", "irqbypass"),
            ("irqbypass.ko", ""),
        ]);
        let order = in_order(&folder.0).unwrap();
        let names: Vec<&str> = order.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "virtio_ring",
                "virtio",
                "virtio_pci_modern_dev",
                "virtio_pci",
                "virtio_console",
                "irqbypass",
                "kvm",
                "kvm-amd"
            ]
        );
    }

    #[test]
    fn missing_and_circular_modules_are_named() {
        let folder = Folder::with(&[("virtio_pci.ko", "virtio-ring")]);
        let error = in_order(&folder.0).unwrap_err().to_string();
        assert!(error.contains("virtio-ring") && error.contains("make host"), "{error}");
        let folder = Folder::with(&[("virtio_pci.ko", "virtio"), ("virtio.ko", "virtio_pci")]);
        assert!(matches!(in_order(&folder.0), Err(PiecesError::Circle(_))));
    }
}
