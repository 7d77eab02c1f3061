//! Services of `configs/demo.toml` whose members come and go.

use super::*;
use crate::config;
use std::cell::RefCell;
use std::path::Path;

const KT: &str = "198.51.100.11";
const LG: &str = "198.51.100.75";
const BUSAN: &str = "198.51.100.139";

struct Lab {
    config: Arc<Config>,
    watch: Watch,
    down: RefCell<BTreeSet<IpAddr>>,
}

/// Tiers of `vod`, by hand: clients go to the site in their ISP, then by preference (both sites in Seoul before
/// busan); of `live`: all sites are one tier.
fn tiers(service: &model::Service, isp: Option<usize>) -> Vec<Vec<usize>> {
    let is_vod = service.name.to_string() == "vod.example.com";
    match (is_vod, isp) {
        (true, Some(0)) => vec![vec![0], vec![1], vec![2]],
        (true, Some(1)) => vec![vec![1], vec![0], vec![2]],
        (true, _) => vec![vec![0, 1], vec![2]],
        _ => vec![vec![0, 1, 2]],
    }
}

impl Lab {
    fn new() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/demo.toml");
        let config = Arc::new(config::load(&path).unwrap());
        let watch = Watch::new(config.clone(), tiers, |_, _| true);
        Self {
            config,
            watch,
            down: RefCell::default(),
        }
    }

    /// What is told when a member goes or comes: kind, service, done.
    fn set(&mut self, member: &str, is_up: bool) -> Vec<(Kind, String, String)> {
        let address: IpAddr = member.parse().unwrap();
        let mut down = self.down.borrow_mut();
        if is_up {
            down.remove(&address)
        } else {
            down.insert(address)
        };
        let up = |_: &model::Service, address| !down.contains(&address);
        let events = self.watch.changed(address, up, "seen");
        assert!(events.iter().all(|e| e.seen == "seen"));
        events.into_iter().map(|e| (e.event, e.subject, e.done)).collect()
    }
}

fn vod(kind: Kind, done: &str) -> (Kind, String, String) {
    (kind, "vod.example.com".into(), done.into())
}

#[test]
fn each_group_of_clients_moves_and_comes_back() {
    let mut lab = Lab::new();
    assert_eq!(
        lab.set(KT, false),
        [vod(
            Kind::Failover,
            "A answers for clients of KT are of seoul-lg instead of seoul-kt"
        )],
        "others had both sites in Seoul and have one left"
    );
    assert_eq!(
        lab.set(LG, false),
        [
            vod(
                Kind::Failover,
                "A answers for clients of KT are of busan instead of seoul-lg"
            ),
            vod(
                Kind::Failover,
                "A answers for clients of LG are of busan instead of seoul-lg"
            ),
            vod(
                Kind::Failover,
                "A answers for all other clients are of busan instead of seoul-kt, seoul-lg"
            ),
        ]
    );
    assert_eq!(lab.set(KT, false), [], "nothing new");
    let back = lab.set(KT, true);
    assert_eq!(
        back,
        [
            vod(
                Kind::Failback,
                "A answers for clients of KT are of seoul-kt instead of busan"
            ),
            vod(
                Kind::Failover,
                "A answers for clients of LG are of seoul-kt instead of busan"
            ),
            vod(
                Kind::Failback,
                "A answers for all other clients are of seoul-kt instead of busan"
            ),
        ]
    );
}

#[test]
fn all_down_is_told_once_for_each_service() {
    let mut lab = Lab::new();
    lab.set(KT, false);
    lab.set(LG, false);
    let down = lab.set(BUSAN, false);
    let live = |kind, done: &str| (kind, "live.example.com".to_owned(), done.to_owned());
    assert_eq!(
        down,
        [
            vod(Kind::ServiceDown, "A answers are by when_all_down: closed"),
            live(Kind::ServiceDown, "A answers are by when_all_down: last-good"),
        ]
    );
    let up = lab.set(BUSAN, true);
    assert_eq!(
        up,
        [
            vod(Kind::ServiceUp, "A answers are of its members again"),
            live(Kind::ServiceUp, "A answers are of its members again"),
        ],
        "they were served by busan before"
    );
}

#[test]
fn what_is_down_at_the_start_is_known_and_not_told() {
    let lab = Lab::new();
    let kt: IpAddr = KT.parse().unwrap();
    let mut watch = Watch::new(lab.config.clone(), tiers, |_, address| address != kt);
    assert_eq!(watch.changed(kt, |_, address| address != kt, "again"), []);
    let back = watch.changed(kt, |_, _| true, "back");
    assert_eq!(back.len(), 1);
    assert_eq!(back[0].event, Kind::Failback);
    assert_eq!(back[0].details["to"], "seoul-kt");
}
