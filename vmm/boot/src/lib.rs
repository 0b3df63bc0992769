//! The initial contents of a guest's memory and registers, as plain bytes.
//!
//! Nothing here calls KVM. The functions write into guest memory, or convert values returned by
//! KVM into values to pass to it. The order for callers is memory ([`memory::regions`]), guest
//! ([`load_linux`] or [`load_payload`]), then for each vCPU CPUID before MSRs, registers, local
//! APIC.

#![forbid(unsafe_code)]

mod acpi;
mod bzimage;
pub mod cpio;
pub mod cpuid;
mod elf;
mod error;
mod image;
mod initrd;
pub mod kind;
pub mod lapic;
pub mod layout;
mod linux;
pub mod memory;
pub mod msrs;
mod newc;
mod paging;
mod payload;
mod segments;
#[cfg(any(test, feature = "testing"))]
pub mod test_fixtures;
mod topology;
mod zero_page;

pub use error::{BootError, ImageError};
pub use initrd::InitrdPart;
pub use linux::{KernelFormat, LinuxEntry, linux_registers, load_linux};
pub use payload::{load_payload, payload_registers};
pub use segments::Ring;
