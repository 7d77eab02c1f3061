//! The packet laws as a person sees them: in the totals that `windrose run` prints when it stops.
//!
//! Called at the end of every test that ran an appliance.

use crate::process::Finished;
use crate::world::World;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

/// The counters of one worker by name, or the sum over all.
pub type Totals = BTreeMap<String, u64>;

/// Stops the world's appliance by SIGINT, checks that it ended well and that the laws hold for each
/// worker; the sum over its workers.
///
/// # Errors
/// Another exit code than 0, no totals, or a law that does not hold; with the log.
pub fn hold_after_stop(world: &mut World) -> Result<Totals> {
    let finished = world.take_appliance()?.stop()?;
    hold(&finished).with_context(|| format!("{}{}", finished.stdout, finished.stderr))
}

/// Checks the end of an appliance: its code, and the laws in its totals; the sum over its workers.
///
/// # Errors
/// As [`hold_after_stop`].
pub fn hold(finished: &Finished) -> Result<Totals> {
    ensure!(finished.code == 0, "windrose ended with code {}", finished.code);
    let workers = totals(&finished.stdout)?;
    ensure!(!workers.is_empty(), "no totals of any worker");
    let mut sum = Totals::new();
    for worker in &workers {
        check(worker)?;
        for (name, value) in worker {
            *sum.entry(name.clone()).or_default() += value;
        }
    }
    Ok(sum)
}

/// The totals: the last line of standard output is `{"workers": [{"received": 1, ...}, ...]}`.
fn totals(stdout: &str) -> Result<Vec<Totals>> {
    let line = stdout.lines().last().context("windrose printed no totals")?;
    let value: Value = serde_json::from_str(line).with_context(|| format!("totals: {line}"))?;
    let workers = value
        .get("workers")
        .and_then(Value::as_array)
        .context("no workers in the totals")?;
    workers
        .iter()
        .map(|worker| Ok(serde_json::from_value(worker.clone())?))
        .collect()
}

/// received = replied + forwarded + punted + consumed + dropped;
/// transmitted = replied + forwarded + injected.
fn check(worker: &Totals) -> Result<()> {
    let get = |name: &str| {
        worker
            .get(name)
            .copied()
            .with_context(|| format!("no counter {name}"))
    };
    let dropped: u64 = worker
        .iter()
        .filter(|(name, _)| name.starts_with("drop_"))
        .map(|(_, n)| n)
        .sum();
    let verdicts = get("replied")? + get("forwarded")? + get("punted")? + get("consumed")? + dropped;
    ensure!(
        get("received")? == verdicts,
        "received is not the sum of the verdicts: {worker:?}"
    );
    let sent = get("replied")? + get("forwarded")? + get("injected")?;
    ensure!(
        get("transmitted")? == sent,
        "transmitted is not the sum of what was sent: {worker:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(received: u64, dropped: u64) -> Totals {
        let counters = [
            ("received", received),
            ("replied", 5),
            ("forwarded", 0),
            ("punted", 1),
            ("consumed", 0),
            ("injected", 2),
            ("transmitted", 7),
            ("drop_arp", dropped),
        ];
        counters.map(|(name, value)| (name.to_owned(), value)).into()
    }

    #[test]
    fn a_broken_law_is_found() {
        check(&worker(9, 3)).unwrap();
        assert!(check(&worker(9, 2)).is_err());
        let mut lost = worker(9, 3);
        lost.insert("transmitted".into(), 6);
        assert!(check(&lost).is_err());
        assert!(check(&Totals::new()).is_err());
    }
}
