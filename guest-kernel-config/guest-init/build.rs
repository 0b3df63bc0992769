//! Links `/init` without the C runtime: it brings its own entry point.
//!
//! No libc means no start-up work before the first instruction of ours (glibc's static start
//! alone executes dozens of CPUID, and each is a VM exit), and an image of some 30 KiB.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in ["-nostartfiles", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-z,norelro"] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
}
