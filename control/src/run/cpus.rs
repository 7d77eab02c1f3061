//! Which CPUs do what: workers are pinned to theirs, control keeps off them where it can.

use crate::config::model::Dataplane;
use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use tokio::runtime::Runtime;

/// Control's threads: enough that a slow reload does not hold the admin API.
const CONTROL_THREADS: usize = 2;

/// Keeps this process's threads off the workers' CPUs, and starts control's runtime there. Workers
/// pin themselves afterwards.
///
/// # Errors
/// When no CPU is left for control and `share_cores` is off.
pub(super) fn runtime(dataplane: &Dataplane) -> Result<Runtime> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).context("cannot read the CPU affinity")?;
    let mut rest = CpuSet::new();
    let mut count = 0;
    for cpu in (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false)) {
        if !dataplane.cores.contains(&cpu) {
            rest.set(cpu).context("CPU out of range")?;
            count += 1;
        }
    }
    if count > 0 {
        sched_setaffinity(this, &rest).context("cannot set the CPU affinity")?;
    } else if dataplane.share_cores {
        tracing::warn!("no CPU is left for control: it shares those of the workers (share_cores)");
    } else {
        bail!(
            "too few cores: {} workers take every CPU that this process may use and control needs one: \
             name fewer in [dataplane] cores, or set share_cores = true in a lab",
            dataplane.cores.len()
        );
    }
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("windrose-ctl")
        .enable_all()
        .build()
        .context("cannot start control's threads")
}
