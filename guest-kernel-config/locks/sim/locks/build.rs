//! Tells the sources that they are to take their atomics from the simulator, and for how many CPUs.

/// As the product: with a larger table a kick would look through more words than a guest's does.
const CPUS: usize = 128;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cfg=simulated");
    println!("cargo:rustc-env=SIMULATED_CPUS={CPUS}");
}
