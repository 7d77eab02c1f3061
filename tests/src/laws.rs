//! The packet laws as a person sees them: in the totals that `windrose run` prints when it stops.
//!
//! Called at the end of every test that ran an appliance.

use crate::process::Finished;
use crate::world::World;
use anyhow::{Context, Result, ensure};
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

/// The totals, a line each worker:
/// `worker 0: received 9 = replied 5 + ... + dropped 3 (arp 1, icmp 2); transmitted 7, injected 2`.
fn totals(stdout: &str) -> Result<Vec<Totals>> {
    let lines = stdout
        .lines()
        .filter_map(|line| line.strip_prefix("worker ")?.split_once(": "));
    lines
        .filter(|(_, line)| line.starts_with("received "))
        .map(|(_, line)| worker(line))
        .collect()
}

fn worker(line: &str) -> Result<Totals> {
    let mut totals = Totals::new();
    let mut add = |prefix: &str, text: &str| -> Result<()> {
        let (name, count) = text
            .trim()
            .split_once(' ')
            .with_context(|| format!("`{text}` in: {line}"))?;
        let count = count.parse().with_context(|| format!("`{text}` in: {line}"))?;
        totals.insert(format!("{prefix}{name}"), count);
        Ok(())
    };
    let (verdicts, reasons) = match line.split_once(" (") {
        Some((before, rest)) => {
            let (reasons, after) = rest.split_once(')').context("no closing bracket")?;
            (format!("{before}{after}"), reasons)
        }
        None => (line.to_owned(), ""),
    };
    for part in verdicts.split(['=', '+', ';', ',']) {
        add("", part)?;
    }
    for reason in reasons.split(", ").filter(|reason| !reason.is_empty()) {
        add("drop_", reason)?;
    }
    Ok(totals)
}

/// received = replied + forwarded + punted + consumed + dropped (the sum over the reasons);
/// transmitted = replied + forwarded + injected.
fn check(worker: &Totals) -> Result<()> {
    let get = |name: &str| {
        worker
            .get(name)
            .copied()
            .with_context(|| format!("no counter {name}"))
    };
    let reasons: u64 = worker
        .iter()
        .filter(|(name, _)| name.starts_with("drop_"))
        .map(|(_, n)| n)
        .sum();
    ensure!(
        get("dropped")? == reasons,
        "dropped is not the sum of its reasons: {worker:?}"
    );
    let verdicts = get("replied")? + get("forwarded")? + get("punted")? + get("consumed")? + get("dropped")?;
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

    const STOPPED: &str = "other output\n\
        worker 0: received 9 = replied 5 + forwarded 0 + punted 1 + consumed 0 + dropped 3 (arp 1, icmp 2); \
        transmitted 7, injected 2\n\
        worker 1: received 0 = replied 0 + forwarded 0 + punted 0 + consumed 0 + dropped 0; \
        transmitted 0, injected 0\n";

    #[test]
    fn totals_are_read_and_a_broken_law_is_found() {
        let finished = |stdout: String, code| Finished {
            command: String::new(),
            code,
            stdout,
            stderr: String::new(),
        };
        let sum = hold(&finished(STOPPED.to_owned(), 0)).unwrap();
        assert_eq!(
            (
                sum["received"],
                sum["drop_arp"],
                sum["drop_icmp"],
                sum["injected"]
            ),
            (9, 1, 2, 2)
        );
        for (from, to) in [
            ("received 9", "received 8"),
            ("transmitted 7", "transmitted 6"),
            ("arp 1", "arp 2"),
            ("punted", "?"),
        ] {
            assert!(hold(&finished(STOPPED.replace(from, to), 0)).is_err(), "{from}");
        }
        assert!(hold(&finished(STOPPED.to_owned(), 1)).is_err());
        assert!(hold(&finished(String::new(), 0)).is_err());
    }
}
