//! The site's numbers: sessions, bandwidth, new connections per second. Owned by the agent's reading task; one file a
//! kind of source.
//!
//! A source that fails gives nothing: what it would have given is missing data in the report. That is logged when it
//! begins and when it ends.

mod command;
mod kernel;
mod prometheus;

use super::config::{From, Quantity, Reading};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What the sources gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Numbers {
    pub(super) sessions: Option<u64>,
    /// Bits per second.
    pub(super) bandwidth: Option<u64>,
    pub(super) connections: Option<u64>,
    pub(super) members: HashMap<IpAddr, MemberNumbers>,
}

/// What they gave of one member.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MemberNumbers {
    pub(super) up: Option<bool>,
    pub(super) error_rate: Option<f64>,
    pub(super) latency_us: Option<u64>,
    pub(super) sessions: Option<u64>,
}

impl Numbers {
    fn set(&mut self, quantity: Quantity, value: Option<u64>) {
        *match quantity {
            Quantity::Sessions => &mut self.sessions,
            Quantity::Bandwidth => &mut self.bandwidth,
            Quantity::Connections => &mut self.connections,
        } = value;
    }

    /// Fills in what is not known yet: of two sources the first in the file counts.
    fn fill(&mut self, other: Self) {
        self.sessions = self.sessions.or(other.sessions);
        self.bandwidth = self.bandwidth.or(other.bandwidth);
        self.connections = self.connections.or(other.connections);
        for (address, more) in other.members {
            let member = self.members.entry(address).or_default();
            member.up = member.up.or(more.up);
            member.error_rate = member.error_rate.or(more.error_rate);
            member.latency_us = member.latency_us.or(more.latency_us);
            member.sessions = member.sessions.or(more.sessions);
        }
    }
}

/// What a counter grows by in a second.
#[derive(Debug, Default)]
struct Growth {
    last: Option<(Instant, f64)>,
}

impl Growth {
    /// Takes the counter's value; `None` at first, and when it was reset.
    fn take(&mut self, now: Instant, value: f64) -> Option<f64> {
        let (at, before) = self.last.replace((now, value))?;
        let passed = now.saturating_duration_since(at);
        (value >= before && passed > Duration::ZERO).then(|| (value - before) / passed.as_secs_f64())
    }
}

/// A number for a report; what is below 0, or no number, is none.
fn whole(value: f64) -> Option<u64> {
    (value >= 0.0 && value <= u64::MAX as f64).then_some(value.round() as u64)
}

/// One source and what it remembers.
struct Source {
    reading: Reading,
    growth: HashMap<Quantity, Growth>,
    failed: bool,
}

impl Source {
    async fn read(&mut self, members: &[IpAddr]) -> Result<Numbers, String> {
        let timeout = self.reading.timeout;
        let read = async {
            match &self.reading.from {
                From::Command(argv) => command::read(argv).await,
                From::Prometheus {
                    host,
                    port,
                    path,
                    metric,
                    labels,
                    gives,
                    rate,
                    scale,
                } => {
                    let text = prometheus::fetch(host, *port, path).await?;
                    let sum = prometheus::sum(&text, metric, labels)?;
                    let value = match rate {
                        true => self.growth.entry(*gives).or_default().take(Instant::now(), sum),
                        false => Some(sum),
                    };
                    let mut numbers = Numbers::default();
                    numbers.set(*gives, value.and_then(|value| whole(value * scale)));
                    Ok(numbers)
                }
                kernel => kernel::read(kernel, members, &mut self.growth),
            }
        };
        match tokio::time::timeout(timeout, read).await {
            Ok(read) => read,
            Err(_) => Err(format!("nothing within {timeout:?}")),
        }
    }

    /// As [`Source::read`]; a failure goes to the log when it begins and when it is over.
    async fn read_and_tell(&mut self, members: &[IpAddr]) -> Numbers {
        let source = self.reading.from.name();
        match self.read(members).await {
            Ok(numbers) => {
                if std::mem::take(&mut self.failed) {
                    tracing::info!(source, "reading works again");
                }
                numbers
            }
            Err(why) => {
                if !std::mem::replace(&mut self.failed, true) {
                    tracing::warn!(source, why, "reading fails: its numbers are missing in reports");
                }
                Numbers::default()
            }
        }
    }
}

/// All sources of an agent.
pub(super) struct Sources {
    list: Vec<Source>,
    members: Vec<IpAddr>,
}

impl Sources {
    pub(super) fn new(readings: &[Reading], members: Vec<IpAddr>) -> Self {
        let list = readings.iter().cloned().map(|reading| Source {
            reading,
            growth: HashMap::new(),
            failed: false,
        });
        Self {
            list: list.collect(),
            members,
        }
    }

    /// Reads all of them, side by side.
    pub(super) async fn read(&mut self) -> Numbers {
        let mut tasks = JoinSet::new();
        for (index, mut source) in std::mem::take(&mut self.list).into_iter().enumerate() {
            let members = self.members.clone();
            tasks.spawn(async move {
                let numbers = source.read_and_tell(&members).await;
                (index, source, numbers)
            });
        }
        let mut done: Vec<(usize, Source, Numbers)> = Vec::new();
        while let Some(task) = tasks.join_next().await {
            match task {
                Ok(read) => done.push(read),
                Err(error) => tracing::error!(%error, "a reading ended badly, and is gone"),
            }
        }
        done.sort_by_key(|(index, ..)| *index);
        let mut all = Numbers::default();
        for (_, source, numbers) in done {
            all.fill(numbers);
            self.list.push(source);
        }
        all
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
