//! Stock kernels, and our kernel as a bzImage.

use crate::{
    files::{BUILT_BZIMAGE, STOCK_KERNEL},
    prelude::*,
};

tests![
    debian_cloud_kernel_with_one_cpu: boots(STOCK_KERNEL, 1, true),
    debian_cloud_kernel_with_four_cpus: boots(STOCK_KERNEL, 4, true),
    built_bzimage: boots(BUILT_BZIMAGE, 2, false),
];

fn boots(kernel: &str, cpus: u32, stock: bool) -> anyhow::Result<()> {
    let boot = Boot::direct()
        .option("--kernel", files::cached(kernel)?)
        .with(format!("--cpus {cpus} --mem 1G"));
    let ran = boot.script("nproc; uname -r").run()?.exits(0)?;
    let text = ran.text()?;
    ensure!(text.starts_with(&format!("{cpus}\n6.")), "not {cpus} CPUs\n{}", ran.show());
    ensure!(text.contains("cloud-amd64") == stock, "another kernel ran\n{}", ran.show());
    Ok(())
}
