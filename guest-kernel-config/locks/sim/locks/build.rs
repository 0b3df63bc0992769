//! Makes the sources take their atomics from the simulator, and sets the number of CPUs.

/// Like the product: with a larger table a kick would search more words than in a guest.
const CPUS: usize = 128;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cfg=simulated");
    println!("cargo:rustc-env=SIMULATED_CPUS={CPUS}");
}
