//! The selection chain: from metrics in order to tiers of sites for one client class.
//!
//! Each metric drops what is worse by its rule; what is left answers. When that dies, the chain is run again
//! over the rest: that is the next tier. Health is not judged here: it masks members in every tier at
//! once, in the worker. Metrics before `health` narrow for good: what they drop is not a fallback.

pub mod facts;

use crate::config::model::Metric;
pub use facts::{ClientClass, Facts};

/// A site as a chain sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Index in the configuration's sites.
    pub site: usize,
    /// ISP that it stands in: index in the configuration's ISPs.
    pub isp: Option<usize>,
    /// Preference for the service in question.
    pub preference: u8,
}

/// Applies one metric: what stays of `candidates` (indices into `all`). Only health can leave nothing.
fn apply(
    metric: Metric,
    all: &[Candidate],
    candidates: &[u8],
    client: &ClientClass,
    up: &dyn Fn(u8) -> bool,
) -> Vec<u8> {
    let site = |i: u8| &all[i as usize];
    let keep = |keep: &dyn Fn(u8) -> bool| {
        candidates
            .iter()
            .copied()
            .filter(|&i| keep(i))
            .collect::<Vec<u8>>()
    };
    match metric {
        Metric::Static => candidates.to_vec(),
        Metric::Health => keep(up),
        Metric::Isp => {
            let local = keep(&|i| client.isp.is_some() && site(i).isp == client.isp);
            // No member there, or a client of no known ISP: no reason to drop anything.
            if local.is_empty() {
                candidates.to_vec()
            } else {
                local
            }
        }
        Metric::Preference => {
            let best = candidates.iter().map(|&i| site(i).preference).max();
            keep(&|i| Some(site(i).preference) == best)
        }
    }
}

/// Sites that the chain takes out whatever else holds: preference 0.
pub fn is_out(chain: &[Metric], candidate: &Candidate) -> bool {
    chain.contains(&Metric::Preference) && candidate.preference == 0
}

/// One step of an evaluation, for `explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The metric.
    pub metric: Metric,
    /// Candidates before it.
    pub before: Vec<u8>,
    /// Candidates after it.
    pub after: Vec<u8>,
}

/// Sites that the chain considers: all but those that are out.
fn considered(chain: &[Metric], all: &[Candidate]) -> Vec<u8> {
    (0..all.len() as u8)
        .filter(|&i| !is_out(chain, &all[i as usize]))
        .collect()
}

/// Runs metrics in order over `candidates`.
fn run(metrics: &[Metric], all: &[Candidate], candidates: Vec<u8>, client: &ClientClass) -> Vec<u8> {
    metrics.iter().fold(candidates, |left, &metric| {
        apply(metric, all, &left, client, &|_| true)
    })
}

/// The chain as it reads: each metric in turn drops sites, health those that are not `up`. For `explain`.
pub fn evaluate(
    chain: &[Metric],
    candidates: &[Candidate],
    client: &ClientClass,
    up: &dyn Fn(u8) -> bool,
) -> Vec<Step> {
    let mut left = considered(chain, candidates);
    chain
        .iter()
        .map(|&metric| {
            let after = apply(metric, candidates, &left, client, up);
            Step {
                metric,
                before: std::mem::replace(&mut left, after.clone()),
                after,
            }
        })
        .collect()
}

/// Ranks sites for a class: tiers of indices into `candidates`, best first.
pub fn rank(chain: &[Metric], candidates: &[Candidate], client: &ClientClass) -> Vec<Vec<u8>> {
    // What stands before health narrows once and for all; without health everything is a fallback.
    let health = chain.iter().position(|m| *m == Metric::Health);
    let (before, after) = chain.split_at(health.unwrap_or(0));
    let mut rest = run(before, candidates, considered(chain, candidates), client);
    let mut tiers = Vec::new();
    while !rest.is_empty() {
        let tier = run(after, candidates, rest.clone(), client);
        rest.retain(|i| !tier.contains(i));
        tiers.push(tier);
    }
    tiers
}

#[cfg(test)]
mod tests {
    use super::*;
    use Metric::*;
    use proptest::prelude::*;

    fn site(isp: Option<usize>, preference: u8) -> Candidate {
        Candidate {
            site: 0,
            isp,
            preference,
        }
    }

    fn tiers(chain: &[Metric], sites: &[Candidate], isp: Option<usize>) -> Vec<Vec<u8>> {
        rank(
            chain,
            sites,
            &ClientClass {
                isp,
                ..ClientClass::default()
            },
        )
    }

    #[test]
    fn failover_order_is_preference_order() {
        let sites = [site(None, 10), site(None, 200), site(None, 128)];
        assert_eq!(
            tiers(&[Health, Preference, Static], &sites, None),
            [[1], [2], [0]]
        );
    }

    #[test]
    fn equals_share_a_tier() {
        let sites = [site(None, 128), site(None, 128), site(None, 1)];
        assert_eq!(
            tiers(&[Health, Preference, Static], &sites, None),
            [vec![0, 1], vec![2]]
        );
        assert_eq!(tiers(&[Health, Static], &sites, None), [vec![0, 1, 2]]);
    }

    #[test]
    fn own_isp_first_then_by_the_next_metric() {
        let sites = [site(Some(0), 5), site(Some(1), 9), site(None, 7)];
        let chain = [Health, Isp, Preference, Static];
        assert_eq!(tiers(&chain, &sites, Some(0)), [[0], [1], [2]]);
        assert_eq!(tiers(&chain, &sites, Some(1)), [[1], [2], [0]]);
        // A client of an ISP without a site, and one of no ISP: ISP drops nothing.
        assert_eq!(tiers(&chain, &sites, Some(7)), [[1], [2], [0]]);
        assert_eq!(tiers(&chain, &sites, None), [[1], [2], [0]]);
    }

    #[test]
    fn preference_zero_is_out() {
        let sites = [site(None, 0), site(None, 1)];
        assert_eq!(tiers(&[Health, Preference, Static], &sites, None), [[1]]);
        assert_eq!(tiers(&[Health, Static], &sites, None), [vec![0, 1]]);
    }

    #[test]
    fn metrics_before_health_are_no_fallback() {
        let sites = [site(None, 10), site(None, 200)];
        assert_eq!(tiers(&[Preference, Health, Static], &sites, None), [[1]]);
    }

    proptest! {
        /// The tiers under any health equal a plain evaluation of the chain over the live sites.
        #[test]
        fn tiers_equal_evaluation_on_live_sites(
            sites in proptest::collection::vec((proptest::option::of(0usize..3), 0u8..4), 1..12),
            isp in proptest::option::of(0usize..4),
            order in Just([Health, Isp, Preference]).prop_shuffle(),
            up in any::<u16>(),
        ) {
            let all: Vec<Candidate> = sites.iter().map(|&(isp, p)| site(isp, p)).collect();
            let up = |i: &u8| up >> i & 1 == 1;
            let ranked = tiers(&order, &all, isp);
            let first_live: Vec<u8> = ranked
                .iter()
                .map(|t| t.iter().copied().filter(up).collect::<Vec<_>>())
                .find(|t| !t.is_empty())
                .unwrap_or_default();
            // The reference: elimination in order, health included.
            let mut left: Vec<u8> = (0..all.len() as u8).filter(|&i| all[i as usize].preference > 0).collect();
            for metric in order {
                left = match metric {
                    Health => left.into_iter().filter(up).collect(),
                    Isp => {
                        let local: Vec<u8> =
                            left.iter().copied().filter(|&i| isp.is_some() && all[i as usize].isp == isp).collect();
                        if local.is_empty() { left } else { local }
                    }
                    _ => {
                        let best = left.iter().map(|&i| all[i as usize].preference).max();
                        left.into_iter().filter(|&i| Some(all[i as usize].preference) == best).collect()
                    }
                };
            }
            prop_assert_eq!(&first_live, &left);
            let steps = evaluate(&order, &all, &ClientClass { isp, ..ClientClass::default() }, &|i| up(&i));
            prop_assert_eq!(&steps.last().unwrap().after, &left);
        }
    }
}
