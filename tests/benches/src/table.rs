//! The table that the bench prints: one row a gate.

use std::fmt;

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Gate {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Shown for comparison.
    None,
}

impl Gate {
    fn passes(self, measured: f64) -> bool {
        match self {
            Self::AtMost(limit) => measured <= limit,
            Self::AtLeast(limit) => measured >= limit,
            Self::None => true,
        }
    }
}

/// One measured figure.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) name: String,
    /// The figure.
    pub(crate) measured: f64,
    /// Its unit.
    pub(crate) unit: &'static str,
    /// What it must be.
    pub(crate) gate: Gate,
    /// Spread, parts, how.
    pub(crate) note: String,
}

/// Rows as they come; each is printed at once, since a bench takes minutes.
#[derive(Debug, Default)]
pub(crate) struct Table {
    failed: usize,
    gates: usize,
}

/// A figure with three significant digits or as a whole number.
struct Figure(f64);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.abs() >= 100.0 {
            write!(f, "{:.0}", self.0)
        } else {
            write!(f, "{:.2}", self.0)
        }
    }
}

impl Table {
    /// Begins a section: what its rows share.
    pub(crate) fn section(&mut self, title: &str) {
        println!("\n{title}");
        println!("  {:<44} {:>20} {:>10}        ", "", "measured", "gate");
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: Row) {
        let passes = row.gate.passes(row.measured);
        self.gates += usize::from(row.gate != Gate::None);
        self.failed += usize::from(!passes);
        let (gate, verdict) = match row.gate {
            Gate::AtMost(limit) => (
                format!("<= {}", Figure(limit)),
                if passes { "pass" } else { "FAIL" },
            ),
            Gate::AtLeast(limit) => (
                format!(">= {}", Figure(limit)),
                if passes { "pass" } else { "FAIL" },
            ),
            Gate::None => (String::new(), ""),
        };
        let measured = format!("{} {}", Figure(row.measured), row.unit);
        println!(
            "  {:<44} {measured:>20} {gate:>10}  {verdict:<4}  {}",
            row.name, row.note
        );
    }

    /// Says that a group of gates could not be measured for an error: that counts as a gate missed.
    pub(crate) fn broken(&mut self, name: &str, error: &anyhow::Error) {
        self.gates += 1;
        self.failed += 1;
        println!("  {name:<44} {:>20} {:>10}  FAIL  {error:#}", "not measured", "");
    }

    /// Says that a row is left out, and why: no gate, but nothing goes in silence.
    pub(crate) fn left_out(&mut self, name: &str, why: &str) {
        println!("  {name:<44} {:>20} {:>10}        {why}", "left out", "");
    }

    /// Prints the outcome; true when no gate failed.
    pub(crate) fn finish(self) -> bool {
        println!("\n{} of {} gates pass", self.gates - self.failed, self.gates);
        self.failed == 0
    }
}

/// Median and spread of ratios or times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// The smallest.
    pub(crate) min: f64,
    /// The middle one, or the mean of the two in the middle.
    pub(crate) median: f64,
    /// The largest.
    pub(crate) max: f64,
    /// How many.
    pub(crate) count: usize,
}

impl Spread {
    /// Of at least one value.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
        Self {
            min: sorted[0],
            median,
            max: sorted[count - 1],
            count,
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "median of {}, {} to {}",
            self.count,
            Figure(self.min),
            Figure(self.max)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_spread_of_known_values() {
        let odd = Spread::of(&[3.0, 1.0, 2.0]);
        assert_eq!((odd.min, odd.median, odd.max, odd.count), (1.0, 2.0, 3.0, 3));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }

    #[test]
    fn a_gate_that_is_missed_fails_the_table() {
        for (gate, measured, passes) in [
            (Gate::AtMost(530.0), 530.0, true),
            (Gate::AtMost(530.0), 531.0, false),
            (Gate::AtLeast(40.0), 40.0, true),
            (Gate::AtLeast(40.0), 39.0, false),
            (Gate::None, 9.0, true),
        ] {
            let mut table = Table::default();
            table.push(Row {
                name: "row".into(),
                measured,
                unit: "",
                gate,
                note: String::new(),
            });
            assert_eq!(table.finish(), passes, "{gate:?} {measured}");
        }
    }
}
