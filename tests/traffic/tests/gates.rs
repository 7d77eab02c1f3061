//! What the estimators have to reach on simulated clients, with two seeds.

use dataplane::flow::estimate::Kind;
use windrose_traffic::score::{Cover, run_hidden, run_tcp, score};
use windrose_traffic::sim::{Pattern, Scenario, Trace, simulate};
use windrose_traffic::table::all;

#[test]
fn estimators_reach_their_gates() {
    let mut missed = Vec::new();
    for seed in [1, 2] {
        for (case, lines) in all(seed) {
            println!("{} (seed {seed})", case.name);
            for line in lines {
                let s = line.score;
                let text = format!(
                    "  {:<30} n {:>6}  signed {:>9.2} %  absolute {:>8.2} %  in 15 % {:>5.1} %  bursts {:>5.1} %  low {:>5.1} %  p99 {:>5.2}",
                    line.estimator, s.samples, s.signed, s.absolute, s.within, s.bursts, s.low, s.p99
                );
                println!("{text}{}", if line.passes() { "" } else { "  MISSED" });
                if !line.passes() {
                    missed.push(format!(
                        "{}, seed {seed}: {text}, gate {:?}",
                        case.name, line.gate
                    ));
                }
            }
        }
    }
    assert!(missed.is_empty(), "gates missed:\n{}", missed.join("\n"));
}

/// Of several connections behind one key no figure is right, and none may be believed.
#[test]
fn shared_tunnels_are_marked() {
    for (connections, pattern) in [
        (2, Pattern::Burst(1)),
        (4, Pattern::Burst(1)),
        (4, Pattern::Burst(4)),
    ] {
        let each = |seed| {
            simulate(
                Scenario {
                    pattern,
                    seconds: 60,
                    ..Scenario::default()
                },
                seed,
            )
        };
        let trace = Trace::merge((1..=connections).map(each));
        for cover in [Cover::Quic, Cover::WireGuard] {
            let score = score(&trace, &run_hidden(&trace, cover, Kind::Response));
            println!("{connections} x {pattern:?} in {cover:?}: {score:?}");
            assert!(
                score.low > 70.0,
                "{connections} x {pattern:?} in {cover:?}: {score:?}"
            );
        }
    }
}

/// A window of requests that slides cannot be measured, and says so.
#[test]
fn sliding_windows_are_marked() {
    for seed in [1, 2] {
        let trace = simulate(
            Scenario {
                pattern: Pattern::Window(4),
                ..Scenario::default()
            },
            seed,
        );
        let score = score(&trace, &run_tcp(&trace, Kind::Response));
        assert!(score.low > 90.0, "{score:?}");
    }
}

/// Waits for retransmission are part of the distribution.
#[test]
fn the_99th_percentile_is_true_under_loss() {
    let lossy = Scenario {
        pattern: Pattern::Burst(4),
        loss: 0.02,
        seconds: 60,
        ..Scenario::default()
    };
    for seed in [1, 2] {
        let trace = simulate(lossy, seed);
        let ratio = score(&trace, &run_tcp(&trace, Kind::Response)).p99;
        assert!((0.95..1.05).contains(&ratio), "{ratio}");
    }
}

/// The same seed gives the same packets.
#[test]
fn simulations_repeat() {
    let scenario = Scenario {
        loss: 0.01,
        answer: (1, 30),
        seconds: 2,
        ..Scenario::default()
    };
    assert_eq!(simulate(scenario, 5).packets, simulate(scenario, 5).packets);
    assert_ne!(simulate(scenario, 5).packets, simulate(scenario, 6).packets);
}
