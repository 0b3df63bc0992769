//! Makes the sources take their atomics from the simulator, and sets the number of CPUs.

/// Number of CPUs of the largest simulated machine.
const CPUS: usize = 1024;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cfg=simulated");
    println!("cargo:rustc-env=SIMULATED_CPUS={CPUS}");
}
