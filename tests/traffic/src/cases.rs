//! The scenarios, with the gates that some have.

use crate::sim::{Pattern, Scenario};

/// What an estimator has to reach, by each burst's own sample.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Median absolute error, per cent.
    pub median: f64,
    /// Share of samples within 15 %, per cent.
    pub within: f64,
    /// Share of bursts with exactly one sample, within 15 %, per cent.
    pub bursts: f64,
}

/// A scenario under a name.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is.
    pub name: &'static str,
    /// What is simulated.
    pub scenario: Scenario,
    /// Gate of the ACK rule; none: reported alone.
    pub tcp: Option<Gate>,
    /// Gate of the estimator for hidden headers.
    pub hidden: Option<Gate>,
}

const fn gate(median: f64, within: f64, bursts: f64) -> Option<Gate> {
    Some(Gate {
        median,
        within,
        bursts,
    })
}

/// All cases, in the order of the table.
pub fn cases() -> Vec<Case> {
    let plain = Scenario::default();
    let burst = Scenario {
        pattern: Pattern::Burst(4),
        ..plain
    };
    let long = Scenario {
        answer: (1, 30),
        ..burst
    };
    let case = |name, scenario, tcp, hidden| Case {
        name,
        scenario,
        tcp,
        hidden,
    };
    let clean = gate(1.0, 98.0, 98.0);
    vec![
        case("single in flight", plain, clean, clean),
        case("burst of 4", burst, clean, clean),
        case(
            "burst of 16",
            Scenario {
                pattern: Pattern::Burst(16),
                ..plain
            },
            clean,
            clean,
        ),
        case(
            "single, answers of 1-30 packets",
            Scenario {
                answer: (1, 30),
                ..plain
            },
            clean,
            clean,
        ),
        case("burst of 4, answers of 1-30 packets", long, clean, clean),
        case(
            "burst of 4, RTT 20 ms",
            Scenario {
                rtt: 20_000.0,
                seconds: 60,
                ..burst
            },
            clean,
            clean,
        ),
        case(
            "single, 1 % loss",
            Scenario { loss: 0.01, ..plain },
            gate(1.0, 93.0, 93.0),
            gate(2.0, 90.0, 90.0),
        ),
        case(
            "burst of 4, 1 % loss",
            Scenario { loss: 0.01, ..burst },
            gate(1.0, 93.0, 93.0),
            gate(2.0, 70.0, 80.0),
        ),
        case(
            "single, 25 % reordered by 100 us",
            Scenario {
                reorder: (0.25, 100.0),
                ..plain
            },
            gate(2.0, 93.0, 93.0),
            gate(3.0, 90.0, 90.0),
        ),
        case(
            "burst of 4, 25 % reordered by 100 us",
            Scenario {
                reorder: (0.25, 100.0),
                ..burst
            },
            gate(2.0, 93.0, 93.0),
            gate(3.0, 75.0, 83.0),
        ),
        case(
            "burst of 4, 25 % reordered by 2 ms",
            Scenario {
                reorder: (0.25, 2000.0),
                ..burst
            },
            None,
            None,
        ),
        case(
            "burst of 4, paced at 300 us",
            Scenario {
                spacing: 300.0,
                ..burst
            },
            None,
            None,
        ),
        case(
            "upload of 100 KB",
            Scenario {
                request: (90_000, 110_000),
                spacing: 10.0,
                ..plain
            },
            gate(1.0, 95.0, 95.0),
            None,
        ),
        case(
            "70 % cache hits, single",
            Scenario { hits: 0.7, ..plain },
            gate(3.5, 95.0, 95.0),
            gate(3.5, 95.0, 95.0),
        ),
        case(
            "70 % cache hits, burst of 4",
            Scenario { hits: 0.7, ..burst },
            gate(1.0, 95.0, 95.0),
            gate(1.5, 88.0, 90.0),
        ),
        case(
            "service of 100 us, RTT 30 us",
            Scenario {
                rtt: 30.0,
                service: 100.0,
                think: 5.0,
                ..plain
            },
            None,
            None,
        ),
        case(
            "burst of 4, think 300 us",
            Scenario {
                think: 300.0,
                ..burst
            },
            None,
            None,
        ),
        case(
            "burst of 4, 1-30 packets, think 20 ms",
            Scenario {
                think: 20_000.0,
                ..long
            },
            None,
            None,
        ),
        case(
            "video: 100-400 packets every 2 s or more",
            Scenario {
                answer: (100, 400),
                think_least: 2e6,
                think: 1e6,
                rtt: 10_000.0,
                seconds: 600,
                ..plain
            },
            None,
            None,
        ),
        case(
            "pages, 4 in flight",
            Scenario {
                pattern: Pattern::Pages(4),
                answer: (1, 12),
                seconds: 60,
                ..plain
            },
            None,
            None,
        ),
        case(
            "window of 4",
            Scenario {
                pattern: Pattern::Window(4),
                ..plain
            },
            None,
            None,
        ),
        case(
            "window updates each 32 KB",
            Scenario {
                answer: (100, 400),
                window: Some(65_536),
                ..plain
            },
            None,
            None,
        ),
    ]
}
