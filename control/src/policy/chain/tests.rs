//! The chain as a whole: tiers against plain evaluation.

use super::*;
use Metric::*;
use proptest::prelude::*;

fn site(isp: Option<usize>, preference: u8) -> Candidate {
    Candidate {
        isp,
        preference,
        ..Candidate::default()
    }
}

fn chain(metrics: &[Metric]) -> Chain {
    Chain {
        metrics: metrics.to_vec(),
        parameters: Parameters::default(),
    }
}

fn tiers(metrics: &[Metric], sites: &[Candidate], isp: Option<usize>) -> Vec<Vec<u8>> {
    let client = ClientClass {
        isp,
        ..ClientClass::default()
    };
    rank(
        &chain(metrics),
        sites,
        &client,
        &Facts::default(),
        Sites::default(),
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
        let client = ClientClass { isp, ..ClientClass::default() };
        let steps = evaluate(&chain(&order), &all, &client, &Facts::default(), &|i| up(&i));
        let after: Vec<u8> = steps.last().unwrap().after.iter().collect();
        prop_assert_eq!(&after, &left);
    }
}
