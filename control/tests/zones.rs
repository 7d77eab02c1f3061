//! Zone files as the configuration loads them. Wire forms are written out by hand from the RFCs that
//! define the types.

use control::config::model::Config;
use control::config::{Diagnostics, load_with_warnings};
use proptest::prelude::*;
use std::path::Path;

const HEAD: &str = "$TTL 300\n@ SOA ns1 host 1 1h 15m 1w 5m\n@ NS ns1\nns1 A 192.0.2.53\n";

fn load_in(dir: &Path, zone: &[u8]) -> Result<(Config, Diagnostics), Diagnostics> {
    let toml = "[dataplane]\ncores = [1]\n[[port]]\nname = \"p\"\ndevice = \"net_null0\"\naddresses = \
                [\"192.0.2.53\"]\n[[zone]]\nname = \"example\"\nfile = \"z\"\n";
    std::fs::write(dir.join("w.toml"), toml).expect("written");
    std::fs::write(dir.join("z"), zone).expect("written");
    load_with_warnings(&dir.join("w.toml"))
}

fn load(zone: impl AsRef<[u8]>) -> Result<(Config, Diagnostics), Diagnostics> {
    load_in(
        tempfile::tempdir().expect("a temporary folder").path(),
        zone.as_ref(),
    )
}

/// The records of `owner` and type, with their TTL.
fn rrset(zone: &str, owner: &str, rtype: u16) -> (u32, Vec<Vec<u8>>) {
    let (config, _) = load(zone).unwrap_or_else(|found| panic!("{found}"));
    let found = config.zones[0]
        .rrsets
        .iter()
        .find(|s| s.rtype == rtype && s.owner.to_string() == owner);
    let set = found.unwrap_or_else(|| panic!("no {owner} {rtype} in {:?}", config.zones[0].rrsets));
    (set.ttl, set.rdata.clone())
}

#[test]
fn rdata_is_uncompressed_wire_form() {
    // Type number, line after the head, RDATA: RFC 1035, 3596, 2782, 6672, 8659, 9460, 6698, 3597.
    let cases: &[(u16, &str, &[u8])] = &[
        (1, "x A 192.0.2.1", &[192, 0, 2, 1]),
        (
            28,
            "x AAAA 2001:db8::1",
            &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ),
        (5, "x CNAME Y", b"\x01Y\x07example\0"),
        (5, "x CNAME @", b"\x07example\0"),
        (12, "x PTR a\\.b.c.", b"\x03a.b\x01c\0"),
        (15, "x MX 10 @", b"\0\x0a\x07example\0"),
        (16, "x TXT \"a b\" c\\\"\\200", b"\x03a b\x03c\"\xc8"),
        (16, "x TXT \"\"", b"\0"),
        (33, "x SRV 1 2 443 .", b"\0\x01\0\x02\x01\xbb\0"),
        (257, "x CAA 128 issue \"ca.net\"", b"\x80\x05issueca.net"),
        (
            65,
            "x HTTPS 1 . alpn=\"h2,h3\" port=8443",
            b"\0\x01\0\0\x01\0\x06\x02h2\x02h3\0\x03\0\x02\x20\xfb",
        ),
        (65, "x HTTPS 1 . alpn=h2", b"\0\x01\0\0\x01\0\x03\x02h2"),
        (
            52,
            "x TLSA 3 1 1 ( AB CD\n ef01 ) ; two lines",
            b"\x03\x01\x01\xab\xcd\xef\x01",
        ),
        (65280, "x TYPE65280 \\# 4 0a000001", &[10, 0, 0, 1]),
        (65280, "x TYPE65280 \\# 0", &[]),
        (1, "x TYPE1 \\# 4 C0000201", &[192, 0, 2, 1]),
        (43, "x DS 1 13 2 00ff", &[0, 1, 13, 2, 0, 0xff]),
    ];
    for (rtype, line, rdata) in cases {
        assert_eq!(
            rrset(&format!("{HEAD}{line}\n"), "x.example", *rtype),
            (300, vec![rdata.to_vec()]),
            "{line}"
        );
    }
    let soa = b"\x03ns1\x07example\0\x04host\x07example\0\0\0\0\x01\0\0\x0e\x10\0\0\x03\x84\0\x09\x3a\x80\0\0\x01\x2c";
    assert_eq!(rrset(HEAD, "example", 6), (300, vec![soa.to_vec()]));
}

/// Every type of IANA's registry that has a presentation format, as other programs encode it.
#[test]
fn every_type_is_encoded_as_by_others() {
    let hex = |octets: &[u8]| octets.iter().map(|o| format!("{o:02x}")).collect::<String>();
    let lines: Vec<Vec<&str>> = include_str!("data/rdata.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(" | ").collect())
        .collect();
    assert!(lines.len() > 75);
    for line in lines {
        let [number, text, octets] = line[..] else {
            panic!("{line:?}")
        };
        let rtype: u16 = number.parse().expect("a number");
        let (_, rdata) = rrset(&format!("{HEAD}x {text}\n"), "x.example", rtype);
        assert_eq!(hex(&rdata[0]), octets, "{text}");
        // The same as unknown data (RFC 3597 section 5).
        let generic = format!("{HEAD}x TYPE{number} \\# {} {octets}\n", octets.len() / 2);
        assert_eq!(
            hex(&rrset(&generic, "x.example", rtype).1[0]),
            octets,
            "{text}, generic"
        );
    }
}

#[test]
fn generate_makes_what_bind_makes() {
    let zone = "$GENERATE 0-4/2 h${10,3,d} 60 IN A 192.0.2.${1}\n$GENERATE 1-2 m$ MX \"${9} mail${-1}\"\n$GENERATE \
                10-11 x${0,4,x}-${0,0,X}-${0,0,o} TXT a\n$GENERATE 171-171 ${0,5,n}.rev TXT \"number $ of \\$ \
                $$\"\n$GENERATE 1-1 q.example. TXT \"\\\"a $\\\" b\"\n$GENERATE 1-1 p$ SRV 1 2 $ t$\n";
    let (config, _) = load(format!("{HEAD}{zone}")).unwrap_or_else(|found| panic!("{found}"));
    let made: Vec<String> = config.zones[0].rrsets[3..]
        .iter()
        .map(|set| format!("{} {} {} {:?}", set.owner, set.ttl, set.rtype, set.rdata))
        .collect();
    // By named-compilezone of BIND 9.18; the last, without quotes, is an addition.
    let want = [
        "h010.example 60 1 [[192, 0, 2, 1]]".to_owned(),
        "h012.example 60 1 [[192, 0, 2, 3]]".to_owned(),
        "h014.example 60 1 [[192, 0, 2, 5]]".to_owned(),
        format!("m1.example 300 15 [{:?}]", b"\0\x0a\x05mail0\x07example\0"),
        format!("m2.example 300 15 [{:?}]", b"\0\x0b\x05mail1\x07example\0"),
        format!("x000a-A-12.example 300 16 [{:?}]", b"\x01a"),
        format!("x000b-B-13.example 300 16 [{:?}]", b"\x01a"),
        format!(
            "b.a.0.rev.example 300 16 [{:?}]",
            b"\x06number\x03171\x02of\x01$\x01$"
        ),
        format!("q.example 300 16 [{:?}]", b"\x03a 1\x01b"),
        format!(
            "p1.example 300 33 [{:?}]",
            b"\0\x01\0\x02\0\x01\x02t1\x07example\0"
        ),
    ];
    assert_eq!(made, want);
}

#[test]
fn owners_ttls_classes_and_directives() {
    let zone = format!(
        "{HEAD}a 60 IN A 192.0.2.1\n\tIN 1m TXT t ; the same owner\n$ORIGIN sub\nb A 192.0.2.2\n$TTL 1d\n@ A \
         192.0.2.3\nc.example. A 192.0.2.4\r\n\"q\" in a 192.0.2.5"
    );
    assert_eq!(rrset(&zone, "a.example", 1).0, 60);
    assert_eq!(rrset(&zone, "a.example", 16), (60, vec![b"\x01t".to_vec()]));
    assert_eq!(rrset(&zone, "b.sub.example", 1).0, 300);
    assert_eq!(rrset(&zone, "sub.example", 1), (86_400, vec![vec![192, 0, 2, 3]]));
    assert_eq!(rrset(&zone, "c.example", 1).1, [[192, 0, 2, 4]]);
    assert_eq!(rrset(&zone, "q.sub.example", 1).1, [[192, 0, 2, 5]]);
}

#[test]
fn include_leaves_origin_and_owner_as_they_were() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(dir.path().join("more"), "x A 192.0.2.1\n$ORIGIN far.example.\n").expect("written");
    let zone =
        format!("{HEAD}o A 192.0.2.9\n$INCLUDE more sub\n TXT still-o\n$INCLUDE \"more\"\ny A 192.0.2.2\n");
    let (config, _) = load_in(dir.path(), zone.as_bytes()).unwrap_or_else(|found| panic!("{found}"));
    let owners: Vec<String> = config.zones[0]
        .rrsets
        .iter()
        .map(|set| set.owner.to_string())
        .collect();
    assert_eq!(
        owners[3..],
        [
            "o.example",
            "x.sub.example",
            "o.example",
            "x.example",
            "y.example"
        ]
    );

    let zone = format!("{HEAD}$INCLUDE z\n");
    let found = load_in(dir.path(), zone.as_bytes()).expect_err("a circle");
    assert!(found.to_string().contains("circle"), "{found}");
    std::fs::write(dir.path().join("more"), "x A 192.0.2.1\nx A 192.0.2\n").expect("written");
    let found = load_in(dir.path(), format!("{HEAD}$INCLUDE more\n").as_bytes()).expect_err("wrong inside");
    let first = found.iter().next().expect("one");
    assert!(
        first.file.ends_with("more") && (first.line, first.column) == (2, 5),
        "{found}"
    );
}

#[test]
fn what_is_wrong_is_said_where_it_is() {
    let long = "a".repeat(64);
    let long_name = format!("{}x A 192.0.2.1", "abcdefg.".repeat(31));
    let cases: &[(&str, (usize, usize), &str)] = &[
        ("x A 192.0.2.256", (5, 5), "A record"),
        ("x A", (5, 4), "A record: the record ends too early"),
        ("x A 192.0.2.1 192.0.2.2", (5, 15), "too many fields"),
        ("x MX ten mail", (5, 6), "expected decimal number"),
        ("x AAA ::1", (5, 3), "`AAA` is no record type"),
        ("x 4000000000 A 192.0.2.1", (5, 3), "at most 2147483647"),
        ("x 1x A 192.0.2.1", (5, 3), "is not a TTL"),
        ("x CH A 192.0.2.1", (5, 3), "only class IN"),
        ("x ANY foo", (5, 3), "no type that a zone can hold"),
        ("x TXT \"open", (5, 7), "not closed on its line"),
        ("x TXT ( a", (5, 7), "never closed"),
        ("x TXT a )", (5, 9), "without a `(`"),
        ("x TXT \\9a", (5, 7), "decimal escape"),
        ("x..y A 192.0.2.1", (5, 1), "empty label"),
        (&long, (5, 1), "longer than 63"),
        (&long_name, (5, 1), "longer than 255"),
        ("\u{e9} A 192.0.2.1", (5, 1), "not ASCII"),
        ("x.org. A 192.0.2.1", (5, 1), "outside the zone"),
        ("notexample. A 192.0.2.1", (5, 1), "outside the zone"),
        ("$FOO 1-2 a A 1.2.3.4", (5, 1), "unknown directive"),
        ("$GENERATE 3-2 a$ A 1.2.3.$", (5, 11), "not a range"),
        (
            "$GENERATE 1-2000000 a$ A 1.2.3.4",
            (5, 11),
            "more than 1048576 records",
        ),
        ("$GENERATE 1-2 a$ A", (5, 19), "needs a range"),
        ("$GENERATE 1-2 a${0 A 1.2.3.4", (5, 16), "without a `}`"),
        ("$GENERATE 1-2 a${0,1,y} A 1.2.3.4", (5, 16), "not a form"),
        ("$GENERATE 1-2 a${-2} A 1.2.3.4", (5, 16), "is no number"),
        (
            "$GENERATE 255-256 a$ A 192.0.2.$",
            (5, 1),
            "in `a256 A 192.0.2.256`",
        ),
        ("$INCLUDE nothere", (5, 10), "cannot read"),
        ("x TYPE1 \\# 3 c00002", (5, 14), "not RDATA of this type"),
        ("x TYPE65280 \\# 3 c000", (5, 18), ""),
        ("x TYPE65535 \\# 0", (5, 3), "no type that a zone can hold"),
        ("x SVCB 0 y alpn=h2", (5, 12), "AliasMode"),
        ("x SVCB 1 . alpn=h2 alpn=h3", (5, 20), "there twice"),
        (
            "x HTTPS 1 . mandatory=alpn port=1",
            (5, 28),
            "`mandatory` names a parameter that is not there",
        ),
        ("x HTTPS 1 . alpn=h2 mandatory=mandatory", (5, 21), "names itself"),
        ("x HTTPS 1 . mandatory=alpn,alpn alpn=h2", (5, 33), "twice"),
        ("x HTTPS 1 . no-default-alpn", (5, 13), "without `alpn`"),
        ("x HTTPS 1 . alpn=", (5, 13), "empty item"),
        ("x HTTPS 1 . alpn=a,,b port=1", (5, 13), "empty item"),
        ("x HTTPS 1 . port=65536", (5, 13), "up to 65535"),
        ("x HTTPS 1 . port", (5, 13), "up to 65535"),
        ("x HTTPS 1 . ipv4hint=192.0.2", (5, 13), "not an IPv4 address"),
        ("x HTTPS 1 . ech=!", (5, 13), "not base 64"),
        ("x HTTPS 1 . foo=bar", (5, 13), "not the name of a parameter"),
        ("x HTTPS 1 . key07=bar", (5, 13), "not the name of a parameter"),
        ("x HTTPS 1 . key65535=", (5, 13), "is no parameter"),
        ("x HTTPS 1 . dohpath=query", (5, 13), "URI template"),
        ("x HTTPS 1", (5, 10), "ends too early"),
        (
            "x TYPE65 \\# 11 000100 0003 0000 0001 0000",
            (5, 38),
            "ascending order",
        ),
        ("x URI 1 2", (5, 10), "ends too early"),
        ("x URI 1 2 \"\"", (5, 12), "empty target"),
        ("x LOC 91 N 0 E 0m", (5, 7), "not degrees"),
        ("x LOC 1 60 N 0 E 0m", (5, 9), "not degrees"),
        ("x CERT FOO 1 1 AQID", (5, 8), "certificate type"),
        ("x EUI48 00-00-5e-00-53", (5, 9), "octets with dashes"),
        ("x APL 1:192.0.2.0/33", (5, 7), "not a prefix"),
        ("x TYPE37 \\# 2 0001", (5, 15), "not RDATA of this type"),
        ("x DOA 1 2 3", (5, 7), "is written `\\# LENGTH HEX`"),
        ("x SOA a b 1 2 3 4 5", (5, 1), "which is not the apex"),
        ("*.x DNAME other.", (5, 1), "not defined"),
        ("x DNAME other.\nx NS ns1", (5, 1), "is delegated in line 6"),
        ("x DNAME a.\nx DNAME b.", (5, 1), "has 2 DNAME records"),
        ("*.x NS ns1", (5, 1), "a wildcard cannot be delegated"),
        ("@ SOA a b 1 2 3 4 5", (2, 1), "has 2 SOA records"),
        (
            "x CNAME y\nx A 192.0.2.1",
            (5, 1),
            "CNAME record and other data: A in line 6",
        ),
        ("x CNAME y\nX CNAME z", (5, 1), "has 2 CNAME records"),
    ];
    for (line, place, fragment) in cases {
        let found = load(format!("{HEAD}{line}\n"))
            .err()
            .unwrap_or_else(|| panic!("taken: {line}"));
        let hit = found
            .iter()
            .any(|d| (d.line, d.column) == *place && d.message.contains(fragment));
        assert!(hit, "no `{fragment}` at {place:?}:\n{found}");
    }
    for (zone, fragment) in [
        ("", "has no SOA"),
        ("$TTL 1\n@ SOA a b 1 2 3 4 5\n", "has no NS"),
        (" A 192.0.2.1\n", "takes the owner before it"),
        ("x A 192.0.2.1\n", "has no TTL"),
    ] {
        let found = load(zone).expect_err(zone);
        assert!(found.to_string().contains(fragment), "{found}");
    }
}

#[test]
fn errors_are_collected_and_limited() {
    let found = load(format!("{HEAD}x A 1\ny A 192.0.2.1\nz A 2\n")).expect_err("two wrong lines");
    assert_eq!(found.iter().map(|d| d.line).collect::<Vec<_>>(), [5, 7]);
    let found = load(format!("{HEAD}{}", "x A 1\n".repeat(1000))).expect_err("a thousand wrong lines");
    assert_eq!(found.counts().0, 21, "20, and one that says so");
}

#[test]
fn what_is_likely_not_meant_is_warned_of() {
    let cases = [
        ("x A 192.0.2.1\nX A 192.0.2.1", 6, "the same A record"),
        ("x 60 A 192.0.2.1\nx 30 A 192.0.2.2", 6, "all get the lowest, 30"),
        ("d NS ns.d\nns.d A 192.0.2.1\nx.d TXT a", 7, "never answered"),
        ("d NS ns.else.\nd TXT a", 6, "never answered"),
        ("d NS ns.d", 5, "no glue"),
        ("d DNAME e.\nx.d A 192.0.2.1", 6, "renamed by a DNAME"),
        ("d DNAME e.\ny.d NS ns1", 6, "renamed by a DNAME"),
        ("@ MX 1 mail", 5, "mail.example. has no address"),
        ("@ MX 1 m\nm CNAME ns1", 5, "is an alias"),
    ];
    for (lines, line, fragment) in cases {
        let (_, found) = load(format!("{HEAD}{lines}\n")).unwrap_or_else(|found| panic!("{found}"));
        let all: Vec<_> = found.iter().map(|d| (d.line, d.message.clone())).collect();
        assert!(
            all.len() == 1 && all[0].0 == line && all[0].1.contains(fragment),
            "{lines}: {all:?}"
        );
    }
    let fine = "d NS ns.d\nns.d A 192.0.2.1\nd DS 1 13 2 00\n@ MX 1 a.w\n*.w A 192.0.2.1\nc CNAME gone\nr DNAME \
                else.\n";
    let (config, found) = load(format!("{HEAD}{fine}")).unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(found.iter().count(), 0, "{found}");
    assert_eq!(config.zones[0].rrsets.len(), 10);
    let zone = format!("{HEAD}x 60 A 192.0.2.1\nx 30 A 192.0.2.2\nx A 192.0.2.1\n");
    assert_eq!(
        rrset(&zone, "x.example", 1),
        (30, vec![vec![192, 0, 2, 1], vec![192, 0, 2, 2]])
    );
}

/// Every type that has a parser of its own, and some that have none.
const TYPES: &[&str] = &[
    "A",
    "AAAA",
    "SOA",
    "NS",
    "MX",
    "TXT",
    "CAA",
    "HTTPS",
    "SVCB",
    "SRV",
    "NAPTR",
    "DS",
    "DNSKEY",
    "RRSIG",
    "NSEC",
    "NSEC3",
    "NSEC3PARAM",
    "TLSA",
    "SSHFP",
    "RP",
    "HINFO",
    "MINFO",
    "IPSECKEY",
    "OPENPGPKEY",
    "ZONEMD",
    "CDS",
    "CDNSKEY",
    "DNAME",
    "CNAME",
    "TYPE1",
    "TYPE64",
    "TYPE99999",
    "LOC",
    "$ORIGIN",
    "$TTL",
    "$INCLUDE",
    "HTTPS 1 .",
    "SVCB 1 x",
    "NSEC3 1 0 0 -",
    "NAPTR 1 1 a b c",
    "NSEC x",
    "SOA a b 1 1 1 1",
    "IPSECKEY 1 1 1 1.2.3.4",
    "RRSIG A 13 1 1 20300101000000 20200101000000 1 x.",
    "CAA 0 issue",
    "TYPE65280 \\#",
    "DS 1 13 2",
    "ZONEMD 1 1 1",
];

/// Pieces of RDATA, right and wrong ones.
fn word() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "\\#",
        "0",
        "1",
        "2",
        "255",
        "256",
        "65536",
        "00",
        "ff",
        "AQID",
        "=",
        "alpn=",
        "alpn=h2",
        "alpn=\"h2,\\,\"",
        "\"a,b\"",
        "A",
        "NS",
        "key65535=\"\\000\"",
        "ipv4hint=1.2.3.4",
        "ipv6hint=::1",
        "mandatory=alpn",
        "port=70000",
        "ech=AQID",
        "\"\"",
        "dohpath=/x{?dns}",
        "no-default-alpn",
        "@",
        ".",
        "..",
        "*",
        "a.b",
        "\\",
        "\\255",
        "\\.",
        "\"",
        "(",
        ")",
        ";",
        "\n",
        " ",
        "\t",
        "\r\n",
        "IN",
        "1h",
        "20260101000000",
        "19700101",
        "::1",
        "1.2.3.4",
        "-",
        "CPNMU===",
        "\u{e9}",
    ];
    prop_oneof![3 => proptest::sample::select(WORDS).prop_map(str::to_owned), 1 => "[a-z0-9+/=.-]{0,70}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_bytes_panic_as_a_zone(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = load(bytes);
    }

    /// Lines made of what zone files are made of reach every type's parser.
    #[test]
    fn no_words_panic_as_a_zone(lines in proptest::collection::vec(
        (proptest::sample::select(TYPES), proptest::collection::vec(word(), 0..10), proptest::bool::weighted(0.6)),
        1..15,
    )) {
        let mut zone = HEAD.to_owned();
        for (rtype, words, space) in lines {
            zone += &format!("x {rtype} {}\n", words.join(if space { " " } else { "" }));
        }
        let _ = load(zone);
    }

    #[test]
    fn no_bytes_panic_as_a_configuration(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(dir.path().join("w.toml"), bytes).expect("written");
        let _ = load_with_warnings(&dir.path().join("w.toml"));
    }

    /// A right configuration with a piece replaced reaches the sections.
    #[test]
    fn no_damage_panics_as_a_configuration(at in 0usize..4000, cut in 0usize..40, put in prop_oneof![
        "[ -~\n]{0,12}", Just("é".to_owned()), Just("\"\"\"".to_owned()), Just("token =".to_owned()),
        Just("-9223372036854775809".to_owned()), Just("0xffffffffffffffffffff".to_owned()), Just("1e999".to_owned()),
    ]) {
        let mut text = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/example.toml")).expect("shipped");
        let at = at.min(text.len());
        let end = (at + cut).min(text.len());
        text.splice(at..end, put.into_bytes());
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(dir.path().join("w.toml"), text).expect("written");
        let _ = load_with_warnings(&dir.path().join("w.toml")).map_err(|found| found.to_string());
    }
}
