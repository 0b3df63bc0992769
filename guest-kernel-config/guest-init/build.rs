//! Links `/init` without the C runtime: it has its own entry point.
//!
//! Without libc no start-up code runs before ours (glibc's static start alone executes dozens of
//! CPUID instructions, each of which is a VM exit), and the image is about 30 KiB.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in ["-nostartfiles", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-z,norelro"] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
}
