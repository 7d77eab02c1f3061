//! Every estimator over every case, side by side.

use crate::cases::{Case, Gate, cases};
use crate::score::{Cover, Score, run_hidden, run_reference, run_tcp, score, score_epochs};
use crate::sim::{Trace, simulate};
use dataplane::flow::Span;
use dataplane::flow::estimate::Kind;
use dataplane::flow::estimate::reference::SynAck;
use dataplane::flow::estimate::reference::ensemble::Ensemble;
use dataplane::flow::estimate::reference::literal::Literal;
use dataplane::flow::estimate::reference::valley::Valley;

/// One estimator over one case.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The estimator.
    pub estimator: &'static str,
    /// How it compares.
    pub score: Score,
    /// What it has to reach.
    pub gate: Option<Gate>,
}

impl Line {
    /// False when there is a gate and it is missed.
    pub fn passes(&self) -> bool {
        self.gate.is_none_or(|gate| {
            let s = self.score;
            s.absolute <= gate.median && s.within >= gate.within && s.bursts >= gate.bursts
        })
    }
}

/// Epochs of the literal rule.
const EPOCH: Span = Span::millis(1000);

/// All estimators over a case.
pub fn lines(case: &Case, seed: u64) -> Vec<Line> {
    let trace = simulate(case.scenario, seed);
    let line = |estimator, score, gate| Line {
        estimator,
        score,
        gate,
    };
    let hidden = |cover, kind| score(&trace, &run_hidden(&trace, cover, kind));
    [
        line(
            "TCP, by acknowledgments",
            score(&trace, &run_tcp(&trace, Kind::Response)),
            case.tcp,
        ),
        line(
            "  to the last acknowledgment",
            score(&trace, &run_tcp(&trace, Kind::Answer)),
            None,
        ),
        line(
            "hidden as in QUIC",
            hidden(Cover::Quic, Kind::Response),
            case.hidden,
        ),
        line(
            "  to the last acknowledgment",
            hidden(Cover::Quic, Kind::Answer),
            None,
        ),
        line(
            "hidden as in WireGuard",
            hidden(Cover::WireGuard, Kind::Response),
            case.hidden,
        ),
    ]
    .into_iter()
    .chain(references(&trace))
    .collect()
}

/// The published algorithms over a trace.
pub fn references(trace: &Trace) -> Vec<Line> {
    let line = |estimator, score| Line {
        estimator,
        score,
        gate: None,
    };
    vec![
        line(
            "valley split, 64 bytes",
            score(trace, &run_reference(trace, &mut Valley::default())),
        ),
        line("PIRATE as published (epochs)", literal(trace)),
        line(
            "HotNets ensemble",
            score(trace, &run_reference(trace, &mut Ensemble::default())),
        ),
        line("SYN-ACK", syn_ack(trace)),
    ]
}

/// The same with headings, for every case.
pub fn all(seed: u64) -> Vec<(Case, Vec<Line>)> {
    cases()
        .into_iter()
        .map(|case| (case, lines(&case, seed)))
        .collect()
}

fn literal(trace: &Trace) -> Score {
    let mut literal = Literal::new(Span::micros(50), EPOCH, Span::millis(150));
    score_epochs(trace, &run_reference(trace, &mut literal), EPOCH)
}

/// One sample against the mean of all bursts.
fn syn_ack(trace: &Trace) -> Score {
    let mut estimator = SynAck::default();
    let said: Vec<_> = trace
        .packets
        .iter()
        .filter_map(|p| {
            dataplane::flow::estimate::reference::Estimator::packet(
                &mut estimator,
                dataplane::flow::Moment::from_nanos(p.at),
                p.payload == 0,
            )
        })
        .collect();
    let mean = trace.bursts.iter().map(|b| b.latency as f64).sum::<f64>() / trace.bursts.len() as f64;
    let Some(first) = said.first() else {
        return Score::default();
    };
    let error = (mean - first.nanos() as f64) * 100.0 / mean;
    Score {
        samples: 1,
        signed: error,
        absolute: error.abs(),
        within: if error.abs() <= 15.0 { 100.0 } else { 0.0 },
        ..Score::default()
    }
}
