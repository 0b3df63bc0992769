//! A host with 40 CPUs: the steps of `make run` and `compare` with their defaults, without `--cpus`.

use super::first_cpu::BUSYBOX;
use crate::{files::repository, prelude::*};

tests![forty_cpus_take_the_steps_of_make_run => Long("half an hour: guests of 32 and 64 vCPUs on two real CPUs")];

/// The script of `make run`, with a `make` that does nothing.
const STEPS: &str = "mkdir -p /bin; export PATH=/bin MAKE=true PVTICKET=/init RUN_DIR=/tmp/first; \
                     sh /pvticket/vmm/first-run.sh && /init compare && ls /tmp/first";

fn forty_cpus_take_the_steps_of_make_run() -> anyhow::Result<()> {
    let mut words = vec!["emulate".to_owned(), "--cpus=40".into(), "--mem=4G".into()];
    for name in ["vmm/first-run.sh", "guest-kernel-config/apt.sh"] {
        words.push(format!("--in={}:/pvticket/{name}", repository(name)?.display()));
    }
    let steps = format!("{BUSYBOX} mkdir -p /bin; {BUSYBOX} --install -s /bin; {STEPS}");
    let run = pvticket(words).args(["--", BUSYBOX, "sh", "-c", &steps]).limit(7200);
    let ran = run.run()?.exits(0)?;
    let choice = "CPUs 0-15 of 40: cores of socket 0; --cpus to choose";
    let times = ran.errors().matches(choice).count();
    ensure!(times == 4, "{times} of 4 comparisons name their CPUs\n{}", ran.show());
    ran.stdout_has(&[
        "== 5/5 The answer",
        ", on 16 of CPUs 0-15, jobs ",
        "\n  ticket at 1x ",
        "\n  pv-ticket at 4x ",
        "report.html",
    ])
}
