//! The overlay against hand-made cases and against a slow reference that scans everything that is said.

use super::super::files::Collected;
use super::*;
use crate::config::model::{ClientPrefix, Clients, Isp};
use crate::data::{Data, Table};
use crate::policy::tests::base;
use dataplane::tables::classes::Classes;
use proptest::option::of;
use proptest::prelude::*;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn everything() -> Attributes {
    Attributes {
        isp: true,
        country: true,
        continent: true,
        location: true,
        named: (0..8).collect(),
        measured: true,
    }
}

fn asn_table(rows: &[(IpAddr, IpAddr, u32)]) -> Arc<Table<As>> {
    let mut out = Collected::default();
    for &(first, last, number) in rows {
        let value = out.value(number, || As {
            number,
            name: "".into(),
        });
        out.range(first, last, value).unwrap();
    }
    Arc::new(out.finish(Path::new("asn.csv")).unwrap())
}

fn place_table(rows: &[(IpAddr, IpAddr, Place)]) -> Arc<Table<Place>> {
    let mut out = Collected::default();
    for (key, &(first, last, place)) in (0..).zip(rows) {
        let value = out.value(key, || place);
        out.range(first, last, value).unwrap();
    }
    Arc::new(out.finish(Path::new("country.csv")).unwrap())
}

fn country(code: &[u8; 2]) -> Place {
    Place {
        country: Some(Country(*code)),
        ..Place::default()
    }
}

/// The overlay with its table, to be asked.
struct Made {
    overlay: Overlay,
    table: Classes,
}

impl Made {
    fn new(config: &Config, needs: &Attributes, measured: &[IpNet]) -> Self {
        let overlay = overlay(config, needs, measured).unwrap();
        let count = overlay.classes.len() as u32;
        let table = Classes::build(overlay.v4.clone(), overlay.v6.clone(), count).unwrap();
        Self { overlay, table }
    }

    fn find(&self, address: IpAddr) -> (&ClientClass, u8) {
        let class = match address {
            IpAddr::V4(a) => self.table.find_v4(a.octets()),
            IpAddr::V6(a) => self.table.find_v6(a.octets()),
        };
        (&self.overlay.classes[class.id as usize], class.depth)
    }

    fn at(&self, address: &str) -> (&ClientClass, u8) {
        self.find(address.parse().unwrap())
    }
}

/// KT is AS 4766 and 10.0.0.0/8, SKB is AS 9318. A database that cuts AS 9318 into pieces within 10/8.
fn korea() -> Config {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let mut config = base(vec![]);
    config.isps = vec![
        Isp {
            name: "KT".into(),
            asns: vec![4766],
            prefixes: vec![net("10.0.0.0/8")],
        },
        Isp {
            name: "SKB".into(),
            asns: vec![9318, 9319],
            prefixes: vec![net("10.9.0.0/16")],
        },
    ];
    config.data = Data {
        asn: vec![asn_table(&[
            (ip("1.96.0.0"), ip("1.111.255.255"), 4766),
            (ip("1.112.0.0"), ip("1.112.0.255"), 9318),
            (ip("1.112.1.0"), ip("1.112.1.255"), 9319),
            (ip("10.1.0.0"), ip("10.1.0.255"), 9318),
            (ip("20.0.0.0"), ip("20.255.255.255"), 15169),
            (ip("2400:e1::"), ip("2400:e1:ffff:ffff:ffff:ffff:ffff:ffff"), 4766),
        ])],
        country: vec![place_table(&[
            (ip("1.96.0.0"), ip("1.127.255.255"), country(b"KR")),
            (ip("20.0.0.0"), ip("20.127.255.255"), country(b"US")),
        ])],
    };
    config
}

#[test]
fn what_the_configuration_says_counts_over_databases() {
    let config = korea();
    let made = Made::new(
        &config,
        &Attributes {
            isp: true,
            ..Attributes::default()
        },
        &[],
    );
    let isp = |address: &str| made.at(address).0.isp;
    assert_eq!(isp("1.100.0.1"), Some(0));
    assert_eq!(isp("2400:e1::1"), Some(0));
    // A piece of the database within a prefix of the configuration, though it is longer.
    assert_eq!(isp("10.1.0.1"), Some(0));
    // Of two prefixes of the configuration, the longest.
    assert_eq!(isp("10.9.3.1"), Some(1));
    assert_eq!((isp("20.0.0.1"), isp("192.0.2.1")), (None, None));
    // Two autonomous systems of one ISP that are neighbours: one scope. Countries split nothing, as none is looked at.
    assert_eq!(made.at("1.112.0.9"), (made.at("1.112.1.9").0, 23));
    assert_eq!(made.overlay.classes.len(), 3);
    assert_eq!(made.at("20.0.0.1").0, &ClientClass::NOTHING);
}

#[test]
fn only_what_is_looked_at_splits() {
    let config = korea();
    let none = overlay(&config, &Attributes::default(), &[net("1.96.0.0/24")]).unwrap();
    assert!(none.v4.is_empty() && none.v6.is_empty());
    assert_eq!(none.classes, [ClientClass::NOTHING]);
    let made = Made::new(
        &config,
        &Attributes {
            continent: true,
            ..Attributes::default()
        },
        &[],
    );
    let asia = ClientClass {
        continent: Some(Continent::Asia),
        ..ClientClass::NOTHING
    };
    // 1.96.0.0/11, whatever autonomous systems are therein.
    assert_eq!(made.at("1.100.0.1"), (&asia, 11));
}

#[test]
fn a_later_database_counts_over_an_earlier_one() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let mut config = korea();
    // Says that a part of KT's is of nobody known, and where a part of it is.
    config
        .data
        .asn
        .push(asn_table(&[(ip("1.96.0.0"), ip("1.96.255.255"), 64_500)]));
    let seoul = Location {
        latitude: 375_700,
        longitude: 1_269_800,
    };
    let place = Place {
        location: Some(seoul),
        ..country(b"KR")
    };
    config
        .data
        .country
        .push(place_table(&[(ip("1.97.0.0"), ip("1.97.255.255"), place)]));
    let made = Made::new(&config, &everything(), &[]);
    assert_eq!(made.at("1.96.0.1").0.isp, None);
    assert_eq!(made.at("1.97.0.1").0.isp, Some(0));
    assert_eq!(made.at("1.97.0.1").0.location, Some(seoul));
    // Elsewhere the country's middle.
    let middle = made.at("1.98.0.1").0.location.unwrap();
    assert!((middle.latitude - 364_000).abs() < 20_000, "{middle:?}");
}

#[test]
fn lists_say_where_and_who_and_add_up() {
    let mut config = korea();
    let list = |name: &str, of: &[(&str, Option<usize>, Place)]| Clients {
        name: name.into(),
        file: None,
        prefixes: of
            .iter()
            .map(|&(prefix, isp, place)| ClientPrefix {
                prefix: net(prefix),
                isp,
                place,
            })
            .collect(),
    };
    let busan = Location {
        latitude: 351_800,
        longitude: 1_290_800,
    };
    config.clients = vec![
        list(
            "office",
            &[
                ("1.100.0.0/16", None, Place::default()),
                ("2001:db8::/32", None, Place::default()),
            ],
        ),
        list(
            "lab",
            &[
                ("1.100.1.0/24", Some(1), country(b"HK")),
                ("1.100.0.0/16", None, Place::default()),
            ],
        ),
        list(
            "busan",
            &[(
                "1.101.0.0/16",
                None,
                Place {
                    location: Some(busan),
                    ..Place::default()
                },
            )],
        ),
        list(
            "europe",
            &[(
                "20.1.0.0/16",
                None,
                Place {
                    continent: Some(Continent::Europe),
                    ..Place::default()
                },
            )],
        ),
    ];
    let made = Made::new(
        &config,
        &everything(),
        &[net("1.100.1.128/25"), net("2001:db8::/48")],
    );
    let lab = made.at("1.100.1.1").0;
    assert_eq!(
        (lab.isp, lab.country, lab.continent),
        (Some(1), Some(Country(*b"HK")), Some(Continent::Asia))
    );
    // The narrowest first; of the wider prefix both lists, each once.
    assert_eq!(lab.named, [1, 0]);
    assert_eq!(made.at("1.100.2.1").0.named, [0, 1]);
    assert_eq!(lab.measured, None);
    let measured = made.at("1.100.1.200").0;
    assert_eq!(
        measured,
        &ClientClass {
            measured: Some(net("1.100.1.128/25")),
            ..lab.clone()
        }
    );
    assert_eq!(made.at("2001:db8::1").0.measured, Some(net("2001:db8::/48")));
    assert_eq!(made.at("2001:db8:1::1").0.named, [0]);
    // A location alone refines: country and continent stay.
    let refined = made.at("1.101.0.1").0;
    assert_eq!(
        (refined.country, refined.location),
        (Some(Country(*b"KR")), Some(busan))
    );
    // A continent alone: the database's country and location are of another.
    let moved = made.at("20.1.0.1").0;
    assert_eq!(
        (moved.country, moved.continent, moved.location),
        (None, Some(Continent::Europe), None)
    );
}

#[test]
fn too_many_locations_are_made_coarser_and_too_many_classes_refused() {
    let mut config = base(vec![]);
    // 70,000 places, a hundredth of a degree apart: a tenth makes them fit.
    let rows: Vec<_> = (0..70_000u32)
        .map(|i| {
            let at = Location {
                latitude: (i / 300) as i32 * 100,
                longitude: (i % 300) as i32 * 100,
            };
            let place = Place {
                location: Some(at),
                ..Place::default()
            };
            (
                IpAddr::V4((i << 8).into()),
                IpAddr::V4((i << 8 | 255).into()),
                place,
            )
        })
        .collect();
    config.data.country = vec![place_table(&rows)];
    let needs = Attributes {
        location: true,
        ..Attributes::default()
    };
    let made = overlay(&config, &needs, &[]).unwrap();
    assert_eq!(made.location_grid, Some(0.1));
    // 234 rows and 300 columns of hundredths are 24 by 30 of tenths; and class 0.
    assert_eq!(made.classes.len(), 24 * 30 + 1);
    let measured: Vec<IpNet> = (0..65_534u32)
        .map(|i| net(&format!("{}/32", std::net::Ipv4Addr::from(i * 2))))
        .collect();
    let needs = Attributes {
        measured: true,
        ..Attributes::default()
    };
    assert_eq!(
        overlay(&config, &needs, &measured[1..]).unwrap().classes.len(),
        CLASSES_MAX
    );
    let error = overlay(&config, &needs, &measured).unwrap_err().to_string();
    assert!(error.starts_with("more than 65534 client classes"), "{error}");
}

/// What is said of one address, by scanning all; `bits` of the prefix do not matter to databases.
fn slow(config: &Config, needs: &Attributes, measured: &[IpNet], address: IpAddr) -> ClientClass {
    /// Keeps what has the higher rank and length; of equal ones the later.
    fn take<T>(best: &mut Option<((usize, u8), T)>, rank: (usize, u8), what: T) {
        if best.as_ref().is_none_or(|(have, _)| rank >= *have) {
            *best = Some((rank, what));
        }
    }
    let (mut isp, mut region, mut location) = (None, None, None);
    let mut place = |rank: (usize, u8), place: Place| {
        let known = place.resolved();
        if place.country.is_some() || place.continent.is_some() {
            take(&mut region, rank, (known.country, known.continent));
        }
        if !place.is_empty() {
            take(&mut location, rank, known.location);
        }
    };
    for (rank, table) in config.data.asn.iter().enumerate() {
        if let Some(a) = table.find(address) {
            let of = config.isps.iter().position(|isp| isp.asns.contains(&a.number));
            take(&mut isp, (rank, 0), of);
        }
    }
    for (rank, table) in config.data.country.iter().enumerate() {
        if let Some(p) = table.find(address) {
            place((rank, 0), *p);
        }
    }
    for (i, of) in config.isps.iter().enumerate() {
        for prefix in of.prefixes.iter().filter(|p| p.contains(&address)) {
            take(&mut isp, (usize::MAX, prefix.prefix_len()), Some(i));
        }
    }
    let mut named: Vec<(u8, u32)> = vec![];
    for (i, list) in (0..).zip(&config.clients) {
        for of in list.prefixes.iter().filter(|of| of.prefix.contains(&address)) {
            let rank = (usize::MAX, of.prefix.prefix_len());
            if of.isp.is_some() {
                take(&mut isp, rank, of.isp);
            }
            place(rank, of.place);
            if needs.named.contains(&i) {
                named.push((of.prefix.prefix_len(), i));
            }
        }
    }
    let longest = measured
        .iter()
        .filter(|net| net.contains(&address))
        .max_by_key(|net| net.prefix_len());
    // The narrowest first, of equals in the order of the configuration, each once.
    named.sort_by_key(|&(len, i)| (std::cmp::Reverse(len), i));
    let mut seen = BTreeSet::new();
    let named = named
        .into_iter()
        .map(|n| n.1)
        .filter(|i| seen.insert(*i))
        .collect();
    let (country, continent) = region.map(|r| r.1).unwrap_or_default();
    ClientClass {
        isp: isp.and_then(|i| i.1).filter(|_| needs.isp),
        country: country.filter(|_| needs.country),
        continent: continent.filter(|_| needs.continent),
        location: location.and_then(|l| l.1).filter(|_| needs.location),
        named,
        measured: longest.copied().filter(|_| needs.measured),
    }
}

/// An address of few distinct bytes, so that things nest and touch.
fn address() -> impl Strategy<Value = IpAddr> {
    let byte = || prop_oneof![Just(0u8), Just(1), Just(127), Just(128), Just(255)];
    prop_oneof![
        proptest::array::uniform4(byte()).prop_map(IpAddr::from),
        proptest::array::uniform4(byte())
            .prop_map(|[a, b, c, d]| { IpAddr::from([a, b, 0, 0, 0, 0, c, 0, 0, 0, 0, 0, 0, 0, 0, d]) }),
    ]
}

fn prefix() -> impl Strategy<Value = IpNet> {
    (address(), 0u8..=128).prop_map(|(a, len)| {
        let len = if a.is_ipv4() { len % 33 } else { len };
        IpNet::new(a, len).unwrap().trunc()
    })
}

fn place() -> impl Strategy<Value = Place> {
    let code = prop_oneof![Just(*b"KR"), Just(*b"JP"), Just(*b"US"), Just(*b"XX")];
    let continent = prop_oneof![Just(Continent::Asia), Just(Continent::Europe)];
    let at = (0i32..2, 0i32..2).prop_map(|(a, b)| Location {
        latitude: a,
        longitude: b,
    });
    (of(code), of(continent), of(at)).prop_map(|(country, continent, location)| Place {
        country: country.map(Country),
        continent,
        location,
    })
}

/// Disjoint ranges, from points in order.
fn rows<T: std::fmt::Debug + Clone>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<(IpAddr, IpAddr, T)>> {
    proptest::collection::vec((address(), value), 2..14).prop_map(|mut points| {
        points.sort_by_key(|p| p.0);
        points.dedup_by_key(|p| p.0);
        let pairs = points
            .chunks_exact(2)
            .filter(|p| p[0].0.is_ipv4() == p[1].0.is_ipv4());
        pairs.map(|p| (p[0].0, p[1].0, p[0].1.clone())).collect()
    })
}

fn config() -> impl Strategy<Value = Config> {
    let list = || proptest::collection::vec((prefix(), of(0usize..3), place()), 0..5);
    (
        proptest::collection::vec(rows(1u32..7), 0..3),
        proptest::collection::vec(rows(place()), 0..3),
        proptest::array::uniform3(proptest::collection::vec(prefix(), 0..4)),
        proptest::collection::vec(list(), 0..4),
    )
        .prop_map(|(asn, places, isps, clients)| {
            let mut config = base(vec![]);
            // AS 1 and 2 are the first ISP's, 3 the second's; the others are nobody's.
            let asns = [vec![1, 2], vec![3], vec![]];
            // A prefix belongs to one ISP, as `config` checks.
            let mut seen = BTreeSet::new();
            config.isps = isps
                .into_iter()
                .zip(asns)
                .map(|(prefixes, asns)| Isp {
                    name: String::new(),
                    asns,
                    prefixes: prefixes.into_iter().filter(|p| seen.insert(*p)).collect(),
                })
                .collect();
            config.data.asn = asn
                .iter()
                .filter(|r| !r.is_empty())
                .map(|r| asn_table(r))
                .collect();
            config.data.country = places
                .iter()
                .filter(|r| !r.is_empty())
                .map(|r| place_table(r))
                .collect();
            let list = |of: Vec<(IpNet, Option<usize>, Place)>| Clients {
                name: String::new(),
                file: None,
                prefixes: of
                    .into_iter()
                    .map(|(prefix, isp, place)| ClientPrefix { prefix, isp, place })
                    .collect(),
            };
            config.clients = clients.into_iter().map(list).collect();
            config
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Every address has the class that the slow reference gives it, and so has every other within the scope.
    #[test]
    fn as_the_slow_reference(
        config in config(),
        flags: [bool; 5],
        named in proptest::collection::btree_set(0u32..4, 0..4),
        measured in proptest::collection::vec(prefix(), 0..4),
        asked in proptest::collection::vec((address(), any::<u128>(), 0u32..128), 60),
    ) {
        let [isp, country, continent, location, measure] = flags;
        let needs = Attributes { isp, country, continent, location, named, measured: measure };
        let made = Made::new(&config, &needs, &measured);
        prop_assert_eq!(made.overlay.location_grid, None);
        for (address, noise, flip) in asked {
            let near = match address {
                IpAddr::V4(a) => IpAddr::V4((u32::from(a) ^ 1 << (flip % 32)).into()),
                IpAddr::V6(a) => IpAddr::V6((u128::from(a) ^ 1 << flip).into()),
            };
            for address in [address, near] {
                let (class, depth) = made.find(address);
                prop_assert_eq!(class, &slow(&config, &needs, &measured, address), "{}", address);
                let beside = match address {
                    IpAddr::V4(a) => IpAddr::V4((u32::from(a) ^ (noise as u32).checked_shr(depth.into()).unwrap_or(0)).into()),
                    IpAddr::V6(a) => IpAddr::V6((u128::from(a) ^ noise.checked_shr(depth.into()).unwrap_or(0)).into()),
                };
                prop_assert_eq!(class, &slow(&config, &needs, &measured, beside), "{} within /{} of {}", beside, depth, address);
            }
        }
        // A prefix that says nothing new is not there.
        let prefixes = made.overlay.v4.iter().map(|p| (p.address, p.len)).collect::<BTreeSet<_>>();
        prop_assert_eq!(prefixes.len(), made.overlay.v4.len());
    }
}
