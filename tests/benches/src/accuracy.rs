//! How near the estimators of response latency come on simulated clients, then on real servers, beside the published algorithms;
//! and how fast captures are read.

use crate::offline;
use crate::table::{Gate, Row, Table};
use anyhow::Result;
use windrose_traffic::cases;
use windrose_traffic::table::{Line, lines};

/// Seeds that the gates hold for.
const SEEDS: [u64; 2] = [1, 2];

/// What the papers say of themselves, for the eye.
const PAPERS: &str = "Papers: PIRATE on CloudLab, HTTP/1.1 pages: median relative error 0.63 %, about 90 % within 15 %, one mean \
a connection and epoch (arXiv 2505.14358); 154 bytes and 329 to 346 ns a packet. Here: a sample a burst. Bursts: exactly one \
sample, within 15 % of the time to the last byte. Signed: (truth - estimate) / truth.";

/// Runs all cases with each seed.
///
/// # Errors
/// Those of the real cases, and of the offline one.
pub(crate) fn bench(table: &mut Table, quick: bool) -> Result<()> {
    println!("\n{PAPERS}");
    let seeds = if quick { &SEEDS[..1] } else { &SEEDS[..] };
    for case in cases::cases() {
        let seconds = case.scenario.seconds;
        table.section(&format!(
            "Median absolute error: {} ({seconds} s simulated)",
            case.name
        ));
        for &seed in seeds {
            for line in lines(&case, seed) {
                if seed == SEEDS[0] || line.gate.is_some() {
                    rows(table, &line, seed);
                }
            }
        }
    }
    crate::real::bench(table, quick)?;
    offline::bench(table, quick)
}

fn rows(table: &mut Table, line: &Line, seed: u64) {
    let s = line.score;
    let note = if s.samples == 0 {
        "no samples".to_owned()
    } else {
        format!(
            "signed {:.2} %, in 15 % {:.1} %, bursts {:.1} %, low confidence {:.1} %, p99 x{:.2}, {} samples",
            s.signed, s.within, s.bursts, s.low, s.p99, s.samples
        )
    };
    let seed = if seed == SEEDS[0] {
        String::new()
    } else {
        format!(", seed {seed}")
    };
    let row = |name: String, measured, gate, note| Row {
        name,
        measured,
        unit: "%",
        gate,
        note,
    };
    let gate = |value: Option<f64>, at_least: bool| match value {
        Some(value) if at_least => Gate::AtLeast(value),
        Some(value) => Gate::AtMost(value),
        None => Gate::None,
    };
    table.push(row(
        format!("{}{seed}", line.estimator),
        if s.samples == 0 { f64::INFINITY } else { s.absolute },
        gate(line.gate.map(|g| g.median), false),
        note,
    ));
    if let Some(limits) = line.gate {
        table.push(row(
            "  samples within 15 %".into(),
            s.within,
            gate(Some(limits.within), true),
            String::new(),
        ));
        table.push(row(
            "  bursts told right".into(),
            s.bursts,
            gate(Some(limits.bursts), true),
            String::new(),
        ));
    }
}
