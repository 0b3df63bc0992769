//! Links the image at the address that the contract defines.

use hypercalls::payload::{IMAGE_GPA, STACKS_GPA};

fn main() {
    println!("cargo::rerun-if-changed=payload.ld");
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    for argument in [
        "-nostartfiles".into(),
        "-nostdlib".into(),
        "-static".into(),
        format!("-Wl,--defsym=IMAGE_BASE={IMAGE_GPA:#x}"),
        format!("-Wl,--defsym=IMAGE_LIMIT={STACKS_GPA:#x}"),
        "-Wl,--build-id=none".into(),
        format!("-Wl,-T,{folder}/payload.ld"),
    ] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
