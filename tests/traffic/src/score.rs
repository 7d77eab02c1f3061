//! Runs estimators over traces, and compares what they say with the truth.

use crate::sim::{Burst, Packet, Trace};
use dataplane::flow::estimate::reference::Estimator;
use dataplane::flow::estimate::{Confidence, Datagram, Hidden, Kind, Rules, Sample, Segment, Tcp};
use dataplane::flow::{Moment, Span};

/// What an estimator said: when the burst that it means started (in the middle, nanoseconds), and how long it took.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// Start.
    pub start: u64,
    /// Time.
    pub took: u64,
    /// Whether it may be believed.
    pub confidence: Confidence,
}

/// How a run compares.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    /// Samples that belong to a burst.
    pub samples: usize,
    /// Median of (truth - estimate) / truth, per cent.
    pub signed: f64,
    /// Median of its absolute value.
    pub absolute: f64,
    /// Samples within 15 %, per cent.
    pub within: f64,
    /// Bursts with exactly one sample, within 15 %, per cent.
    pub bursts: f64,
    /// Samples of low confidence, per cent.
    pub low: f64,
    /// 99th percentile of estimates over that of truths.
    pub p99: f64,
}

fn moment(at: u64) -> Moment {
    Moment::from_nanos(at)
}

/// The estimator for readable TCP; samples of that kind.
pub fn run_tcp(trace: &Trace, kind: Kind) -> Vec<Said> {
    let (mut tcp, rules) = (Tcp::default(), Rules::default());
    collect(trace, kind, |packet, give| {
        let (syn, ack) = (0x02, 0x10);
        let segment = Segment {
            sequence: packet.sequence,
            acknowledgment: packet.acknowledgment,
            payload: packet.payload,
            flags: if packet.syn { syn } else { ack },
        };
        tcp.segment(moment(packet.at), segment, &rules, give);
    })
}

/// How a hidden transport shows a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// QUIC: 30 bytes around the payload; acknowledgments of 34 to 46.
    Quic,
    /// TCP in WireGuard: padded to 16 bytes; acknowledgments of 96.
    WireGuard,
}

/// The estimator for hidden headers, over the same packets; the SYN is not seen.
pub fn run_hidden(trace: &Trace, cover: Cover, kind: Kind) -> Vec<Said> {
    let (mut hidden, rules) = (Hidden::new(), Rules::default());
    let mut number = u32::MAX - 500;
    collect(trace, kind, |packet, give| {
        let payload = packet.payload;
        let datagram = match cover {
            Cover::Quic => Datagram {
                len: if payload == 0 {
                    34 + (packet.acknowledgment % 13) as u16
                } else {
                    payload + 30
                },
                ack_max: Datagram::ACK_MAX_QUIC,
                sequence: None,
            },
            Cover::WireGuard => {
                number = number.wrapping_add(1);
                let inner = payload + 52;
                Datagram {
                    len: inner.next_multiple_of(16) + 32,
                    ack_max: Datagram::ACK_MAX_TUNNEL,
                    sequence: Some(number),
                }
            }
        };
        if !packet.syn {
            hidden.packet(moment(packet.at), datagram, &rules, give);
        }
    })
}

/// An algorithm that takes times alone.
pub fn run_reference(trace: &Trace, estimator: &mut impl Estimator) -> Vec<Said> {
    let said = |packet: &Packet| {
        let took = estimator.packet(moment(packet.at), packet.payload == 0)?.nanos();
        Some(Said {
            start: packet.at.saturating_sub(took),
            took,
            confidence: Confidence::High,
        })
    };
    // The handshake is no data.
    trace.packets.iter().skip(2).filter_map(said).collect()
}

fn collect(trace: &Trace, kind: Kind, mut step: impl FnMut(&Packet, &mut dyn FnMut(Sample))) -> Vec<Said> {
    let (mut said, mut burst) = (Vec::new(), 0);
    for packet in &trace.packets {
        let mut response = None;
        step(packet, &mut |sample: Sample| {
            let (took, confidence) = (sample.value.nanos(), sample.doubts.confidence());
            if sample.kind == Kind::Response {
                // The second figure of the same burst comes right behind.
                burst = packet.at.saturating_sub(took);
                response = Some(());
            }
            if sample.kind == kind {
                // Without a response it is of the last burst before this packet.
                let before = trace.bursts.partition_point(|b| b.at < packet.at).checked_sub(1);
                let ended = before.and_then(|at| trace.bursts.get(at)).map_or(0, |b| b.at);
                let start = if response.is_some() { burst } else { ended };
                said.push(Said {
                    start,
                    took,
                    confidence,
                });
            }
        });
    }
    said
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn p99(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * 99 / 100).copied().unwrap_or(f64::NAN)
}

/// Per cent of `part` in `whole`.
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

/// Compares sample by sample: each belongs to the burst in whose time it starts.
pub fn score(trace: &Trace, said: &[Said]) -> Score {
    score_above(trace, said, 0)
}

/// The same, with errors and samples of those bursts alone that took `floor` nanoseconds at least. What share of bursts was told right
/// is of all.
pub fn score_above(trace: &Trace, said: &[Said], floor: u64) -> Score {
    let bursts: &[Burst] = &trace.bursts;
    let mut of_burst = vec![Vec::new(); bursts.len()];
    let mut errors = Vec::new();
    let mut estimates = Vec::new();
    for sample in said {
        // Half a microsecond for the coarser clock of flows.
        let at = bursts.partition_point(|b| b.at <= sample.start + 500);
        let Some(burst) = at.checked_sub(1).and_then(|at| bursts.get(at)) else {
            continue;
        };
        if at == bursts.len() {
            continue;
        }
        let error = (burst.latency as f64 - sample.took as f64) * 100.0 / burst.latency as f64;
        if burst.latency >= floor {
            errors.push(error);
            estimates.push(sample.took as f64);
        }
        if let Some(list) = of_burst.get_mut(at - 1) {
            list.push(error);
        }
    }
    let right = of_burst
        .iter()
        .filter(|list| matches!(list[..], [error] if error.abs() <= 15.0))
        .count();
    let within = errors.iter().filter(|e| e.abs() <= 15.0).count();
    let mut absolute: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
    let counted = bursts.iter().filter(|b| b.latency >= floor);
    let mut truths: Vec<f64> = counted.map(|b| b.latency as f64).collect();
    Score {
        samples: errors.len(),
        within: share(within, errors.len()),
        bursts: share(right, bursts.len().saturating_sub(1)),
        low: share(
            said.iter().filter(|s| s.confidence == Confidence::Low).count(),
            said.len(),
        ),
        signed: median(&mut errors),
        absolute: median(&mut absolute),
        p99: p99(&mut estimates) / p99(&mut truths),
    }
}

/// Compares means of epochs with the means of the bursts that started in them.
pub fn score_epochs(trace: &Trace, said: &[Said], epoch: Span) -> Score {
    let mut errors = Vec::new();
    for sample in said {
        // It is said at the end of the epoch; `start` lies one mean before that.
        let end = sample.start + sample.took;
        let start = end.saturating_sub(epoch.nanos());
        let here: Vec<f64> = trace
            .bursts
            .iter()
            .filter(|b| (start..end).contains(&b.at))
            .map(|b| b.latency as f64)
            .collect();
        if !here.is_empty() {
            let truth = here.iter().sum::<f64>() / here.len() as f64;
            errors.push((truth - sample.took as f64) * 100.0 / truth);
        }
    }
    let within = errors.iter().filter(|e| e.abs() <= 15.0).count();
    let mut absolute: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
    Score {
        samples: errors.len(),
        within: share(within, errors.len()),
        signed: median(&mut errors),
        absolute: median(&mut absolute),
        ..Score::default()
    }
}
