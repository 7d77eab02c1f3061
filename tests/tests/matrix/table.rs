//! The table: every item, the questions that show it, and what must come for each. Expected replies are what the RFCs say; docs/dns.md
//! has the reasons. Called by the test alone.
// LONG: one table, a line or two for each row.

use super::item::{Item, item};
use super::world::Setting;
use super::{elsewhere, frames, shown};
use windrose_tests::message::{Query, flag, name, option, record, rtype, subnet};

const WWW: &str = "www.example.com.";
const GSLB: &str = "gslb.example.com.";
/// What a plain question about `www` gets.
const OK: &str = "NOERROR a 1/1/0/0; www.example.com 3600 A 192.0.2.80";
const OK_OPT: &str = "NOERROR a 1/1/0/1; www.example.com 3600 A 192.0.2.80; opt 1232";
/// What the client gets from a service: the member at its own ISP.
const NEAR: &str = "NOERROR a 1/1/0/0; gslb.example.com 30 A 198.51.100.1";
const NODATA: &str = "NOERROR a 1/0/1/0; example.com 60 SOA";
const NODATA_OPT: &str = "NOERROR a 1/0/1/1; example.com 60 SOA; opt 1232";
const NXDOMAIN: &str = "NXDOMAIN a 1/0/1/0; example.com 60 SOA";
const REFUSED: &str = "REFUSED - 1/0/0/0";
const NOTIMP: &str = "NOTIMP - 1/0/0/0";
/// FORMERR where the question cannot be echoed, and where it can.
const BARE_FORMERR: &str = "FORMERR - 0/0/0/0";
const FORMERR: &str = "FORMERR - 1/0/0/0";
const FORMERR_OPT: &str = "FORMERR - 1/0/0/1; opt 1232";
const BADVERS: &str = "BADVERS - 1/0/0/1; opt 1232";

fn www() -> Query {
    Query::new(WWW, rtype::A)
}

fn q(name: &str, rtype: u16) -> Query {
    Query::new(name, rtype)
}

/// A name of 255 bytes with its root, or of any other length: labels of 63 bytes and what is left, below example.com.
fn long_name(length: usize) -> Vec<u8> {
    let (mut wire, mut left) = (Vec::new(), length - 13);
    while left > 0 {
        let label = (left - 1).min(63);
        // No single byte may be left over.
        let label = if left - 1 - label == 1 { label - 1 } else { label };
        wire.push(u8::try_from(label).unwrap_or(u8::MAX));
        wire.extend(vec![b'x'; label]);
        left -= 1 + label;
    }
    [wire, name("example.com.")].concat()
}

/// A client subnet option of these fields: family, source, scope, address bytes.
fn ecs(family: u16, source: u8, scope: u8, address: &[u8]) -> Vec<u8> {
    let head = [&family.to_be_bytes()[..], &[source, scope]].concat();
    option(8, &[&head, address].concat())
}

/// Every item.
pub(crate) fn items() -> Vec<Item> {
    [
        header(),
        names(),
        answers(),
        edns(),
        client_subnet(),
        cookies(),
        tcp_and_limits(),
        frames::items(),
    ]
    .concat()
}

fn header() -> Vec<Item> {
    let a = record("x.example.com.", rtype::A, 1, 5, &[192, 0, 2, 1]);
    let cut = |len: usize| www().cut(len);
    let two = www().question(&name(WWW), rtype::AAAA, 1);
    vec![
        item(1, "Header of a reply")
            .row(www(), OK)
            .row(
                www().flags(flag::RD),
                "NOERROR ar 1/1/0/0; www.example.com 3600 A 192.0.2.80",
            )
            .row(www().edns(), OK_OPT)
            .row(q(GSLB, rtype::A), NEAR)
            .row(q("absent.example.com.", rtype::A), NXDOMAIN)
            .row(
                q("www.example.org.", rtype::A).flags(flag::RD),
                "REFUSED r 1/0/0/0",
            ),
        item(2, "AD and CD in a query")
            .row(www().flags(flag::AD), OK)
            .row(
                www().flags(flag::CD),
                "NOERROR ac 1/1/0/0; www.example.com 3600 A 192.0.2.80",
            )
            .row(
                www().flags(flag::AD | flag::CD).edns(),
                "NOERROR ac 1/1/0/1; www.example.com 3600 A 192.0.2.80; opt 1232",
            ),
        item(3, "Z in a query")
            .row(www().flags(flag::Z), OK)
            .row(www().flags(flag::Z).edns(), OK_OPT),
        item(4, "AA, RA and TC in a query")
            .row(www().flags(flag::AA | flag::RA | flag::TC), OK)
            .row(q(GSLB, rtype::A).flags(flag::AA | flag::RA | flag::TC), NEAR),
        item(5, "RCODE in a query")
            .peers_differ()
            .row(www().flags(5), OK)
            .row(www().flags(15).edns(), OK_OPT),
        item(6, "A response")
            .each(
                (0..16).map(|opcode| www().flags(flag::QR).opcode(opcode).flags(opcode)),
                "nothing",
            )
            .row(www().flags(flag::QR).cut(12), "nothing")
            .row(www().flags(flag::QR).cut(20), "nothing")
            .row(Query::empty().flags(flag::QR), "nothing")
            .row(
                Query::empty().flags(flag::QR).count(0, 0xffff).tail(&[0xc0; 40]),
                "nothing",
            )
            .row(www().flags(flag::QR).edns(), "nothing"),
        (0..12).fold(item(7, "Less than a header"), |item, len| {
            item.rows(&www().cut(len), "nothing", "end")
        }),
        item(8, "A question that is cut")
            .peers_differ()
            .each((12..=32).map(cut), BARE_FORMERR)
            .row(cut(33), OK),
        item(9, "Several questions")
            .peers_differ()
            .row(two.clone(), BARE_FORMERR)
            .row(two.edns(), "FORMERR - 0/0/0/1; opt 1232")
            .row(
                www().question(&[0xc0, 12], rtype::AAAA, 1).edns(),
                "FORMERR - 0/0/0/1; opt 1232",
            )
            .row(www().count(0, 2), BARE_FORMERR)
            .row(www().count(0, 0xffff), BARE_FORMERR),
        item(10, "No question")
            .peers_differ()
            .row(Query::empty(), BARE_FORMERR)
            .row(Query::empty().edns(), "FORMERR - 0/0/0/1; opt 1232")
            .row(www().count(0, 0), BARE_FORMERR)
            .row(
                Query::empty().option(&option(10, b"clientco")),
                "NOERROR - 0/0/0/1; opt 1232 cookie=24",
            )
            .row(
                Query::empty().option(&option(10, &[7; 24])),
                "BADCOOKIE - 0/0/0/1; opt 1232 cookie=24",
            )
            .row(
                Query::empty().option(&option(10, b"clientco")),
                "FORMERR - 0/0/0/1; opt 1232",
            )
            .only(Setting::Bare)
            .show(Setting::Usual, shown::a_good_cookie_alone),
        item(11, "Opcodes that there are not")
            .each(
                [1, 2, 3].into_iter().chain(7..16).map(|code| www().opcode(code)),
                NOTIMP,
            )
            .each(
                [1, 2, 3]
                    .into_iter()
                    .chain(7..16)
                    .map(|code| Query::empty().opcode(code)),
                "NOTIMP - 0/0/0/0",
            )
            .row(www().opcode(2).edns(), "NOTIMP - 1/0/0/1; opt 1232 ede=21")
            .row(
                www().opcode(15).flags(flag::RD | flag::CD | flag::AA | flag::Z),
                NOTIMP,
            )
            .row(www().opcode(3).cut(20), "NOTIMP - 0/0/0/0"),
        item(12, "NOTIFY")
            .peers_differ()
            .row(q("example.com.", rtype::SOA).opcode(4), NOTIMP)
            .row(
                q("example.com.", rtype::SOA)
                    .opcode(4)
                    .flags(flag::AA)
                    .record(1, a.clone()),
                NOTIMP,
            ),
        item(13, "UPDATE")
            .peers_differ()
            .row(q("example.com.", rtype::SOA).opcode(5), NOTIMP)
            .row(
                q("example.com.", rtype::SOA)
                    .opcode(5)
                    .record(2, record(WWW, rtype::A, 255, 0, &[])),
                NOTIMP,
            )
            .row(www(), OK),
        item(14, "DNS stateful operations")
            .peers_differ()
            .row(Query::empty().opcode(6), "NOTIMP - 0/0/0/0")
            .row(
                Query::empty()
                    .opcode(6)
                    .tail(&[0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]),
                "NOTIMP - 0/0/0/0",
            ),
        item(15, "Records in answer and authority of a query")
            .peers_differ()
            .row(www().record(1, a.clone()), OK)
            .row(www().record(2, a.clone()).edns(), OK_OPT)
            .row(
                www()
                    .record(1, a.clone())
                    .record(2, a.clone())
                    .record(3, a.clone())
                    .edns(),
                OK_OPT,
            ),
        item(16, "Counts beyond the data")
            .each((1..4).map(|section| www().count(section, 1)), FORMERR)
            .each((1..4).map(|section| www().count(section, 0xffff)), FORMERR)
            .row(www().edns().count(3, 2), FORMERR_OPT),
        item(17, "Bytes behind the last record")
            .peers_differ()
            .row(www().tail(&[0]), OK)
            .row(www().tail(&[0xff; 20]), OK)
            .row(www().edns().tail(&[0x29; 300]), OK_OPT)
            .row(
                q(GSLB, rtype::A).tail(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]),
                NEAR,
            ),
    ]
}

fn names() -> Vec<Item> {
    let label = |len: u8| [&[len][..], &vec![b'x'; usize::from(len)], &name("example.com.")].concat();
    let wire = |bytes: &[u8]| Query::of(&[bytes, &name("example.com.")].concat(), rtype::A);
    let many = "a.".repeat(127);
    let below = "a.".repeat(121) + "example.com.";
    let nodata_types = [0, 41, 249, 250, 253, 254];
    vec![
        item(18, "Labels that are none")
            .each(
                [64, 65, 0x7f, 0x80, 0xbf].map(|len| Query::of(&label(len), rtype::A)),
                BARE_FORMERR,
            )
            .row(Query::of(&label(63), rtype::A), NXDOMAIN),
        item(19, "Names that are too long")
            .row(Query::of(&long_name(254), rtype::A), NXDOMAIN)
            .row(Query::of(&long_name(255), rtype::A), NXDOMAIN)
            .each(
                [256, 257, 300, 400].map(|len| Query::of(&long_name(len), rtype::A)),
                BARE_FORMERR,
            ),
        item(20, "Compression in the question")
            .peers_differ()
            .each(
                [12, 0, 4, 14, 20, 0x3fff].map(|to: u16| Query::of(&(0xc000 | to).to_be_bytes(), rtype::A)),
                BARE_FORMERR,
            )
            .row(
                Query::of(&[3, b'w', b'w', b'w', 0xc0, 12], rtype::A),
                BARE_FORMERR,
            )
            .row(
                Query::of(&[0xc0, 12], rtype::A).edns(),
                "FORMERR - 0/0/0/1; opt 1232",
            )
            // A chain of pointers, each to the one before.
            .row(
                Query::of(
                    &(0..100u16)
                        .flat_map(|n| (0xc00c + 2 * n).to_be_bytes())
                        .collect::<Vec<u8>>(),
                    rtype::A,
                ),
                BARE_FORMERR,
            ),
        item(21, "Case of letters")
            .row(
                q("wWw.ExAmPlE.cOm.", rtype::A),
                "NOERROR a 1/1/0/0; wWw.ExAmPlE.cOm 3600 A 192.0.2.80",
            )
            .row(
                q("GSLB.example.COM.", rtype::A),
                "NOERROR a 1/1/0/0; GSLB.example.COM 30 A 198.51.100.1",
            )
            .row(
                q("\\000\\255.BIN.example.com.", rtype::A),
                "NOERROR a 1/1/0/0; \\000\\255.BIN.example.com 3600 A 192.0.2.90",
            )
            // 0xff and 0xdf, `[` and `{` differ in the bit that tells cases apart.
            .row(q("\\000\\223.bin.example.com.", rtype::A), NXDOMAIN)
            .row(
                q("[.example.com.", rtype::A),
                "NOERROR a 1/1/0/0; \\091.example.com 3600 A 192.0.2.93",
            )
            .row(q("{.example.com.", rtype::A), NXDOMAIN),
        item(22, "Any bytes in names")
            .row(
                q("\\000\\255.bin.example.com.", rtype::A),
                "NOERROR a 1/1/0/0; \\000\\255.bin.example.com 3600 A 192.0.2.90",
            )
            .row(
                q("a\\.b.example.com.", rtype::A),
                "NOERROR a 1/1/0/0; a\\046b.example.com 3600 A 192.0.2.91",
            )
            .row(
                q("a.b.example.com.", rtype::A),
                "NOERROR a 1/1/0/0; a.b.example.com 3600 A 192.0.2.92",
            )
            .row(q("www\\.example.com.", rtype::A), REFUSED)
            .row(q(&many, rtype::A), REFUSED)
            .row(q(&below, rtype::A), NXDOMAIN)
            .row(wire(&[1, 0]), NXDOMAIN)
            .row(wire(&[2, 0, 0]), NXDOMAIN),
        item(23, "The root")
            .row(q(".", rtype::NS), REFUSED)
            .row(q(".", rtype::SOA), REFUSED)
            .row(q(".", rtype::A).edns(), "REFUSED - 1/0/0/1; opt 1232 ede=20"),
        item(24, "One TTL a record set").row(
            q("ttls.example.com.", rtype::A),
            "NOERROR a 1/2/0/0; ttls.example.com 50 A 192.0.2.1; ttls.example.com 50 A 192.0.2.2",
        ),
        item(25, "Types that there are not")
            .each([1000, 65280, 65534, 65535].map(|t| q(WWW, t)), NODATA)
            .each([1000, 65280].map(|t| q(GSLB, t)), NODATA)
            .row(q("absent.example.com.", 1000), NXDOMAIN),
        item(26, "Types that the zone does not know").row(
            q("opaque.example.com.", 65280),
            "NOERROR a 1/1/0/0; opaque.example.com 3600 TYPE65280 c00c03777777",
        ),
        item(27, "Types that no record has")
            .peers_differ()
            .each(nodata_types.map(|t| q(WWW, t)), NODATA)
            .each(nodata_types.map(|t| q(GSLB, t)), NODATA),
        item(28, "Classes")
            .peers_differ()
            .each(
                [3, 4, 255, 254, 0, 2, 65280].map(|class| www().class(class)),
                REFUSED,
            )
            .row(www().class(3).edns(), "REFUSED - 1/0/0/1; opt 1232 ede=21")
            .row(q("version.bind.", rtype::TXT).class(4), REFUSED),
        item(29, "Zone transfers")
            .peers_differ()
            .row(q("example.com.", 252), REFUSED)
            .row(
                q("example.com.", 252).edns(),
                "REFUSED - 1/0/0/1; opt 1232 ede=21",
            )
            .row(
                q("example.com.", 251).record(2, record("example.com.", rtype::SOA, 1, 0, &[0; 22])),
                REFUSED,
            )
            .row(q(WWW, 252), REFUSED)
            .row(q("absent.example.com.", 252), REFUSED),
    ]
}

fn answers() -> Vec<Item> {
    let text = |owner: &str| format!("NOERROR a 1/1/0/0; {owner}.example.com 3600 TXT \"wild\"");
    let glue = "ns.cut.example.com 3600 A 192.0.2.97; ns.cut.example.com 3600 AAAA 2001:db8:1::97";
    let referral = format!("NOERROR - 1/0/1/2; cut.example.com 3600 NS ns.cut.example.com; {glue}");
    let any = |owner: &str| format!("NOERROR a 1/1/0/0; {owner} 3600 HINFO \"RFC8482\" \"\"");
    let https = "NOERROR a 1/1/0/0; https.example.com 3600 HTTPS 000100000100030268320003000220fb";
    let alias = "NOERROR a 1/1/0/0; alias.example.com 3600 HTTPS 000003777777076578616d706c6503636f6d00";
    let ds = "30390d02000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    vec![
        item(30, "No such type: NODATA")
            .each([rtype::MX, rtype::TXT, rtype::NS, rtype::SOA, rtype::CNAME].map(|t| q(WWW, t)), NODATA)
            .row(q(WWW, rtype::MX).edns(), NODATA_OPT),
        item(31, "No such name: NXDOMAIN")
            .each([rtype::A, rtype::AAAA, rtype::ANY, rtype::SOA].map(|t| q("absent.example.com.", t)), NXDOMAIN)
            .row(q("under.www.example.com.", rtype::A), NXDOMAIN)
            .row(q("a.b.c.d.e.f.g.example.com.", rtype::A), NXDOMAIN)
            .row(q("absent.example.net.", rtype::A), "NXDOMAIN a 1/0/1/0; example.net 30 SOA"),
        item(32, "Empty non-terminals")
            .each([rtype::A, rtype::TXT, rtype::ANY].map(|t| q("ent.example.com.", t)), NODATA)
            .row(q("bin.example.com.", rtype::A), NODATA),
        item(33, "Other types at a name that has A alone")
            .each(
                [rtype::AAAA, rtype::HTTPS, rtype::TXT, rtype::MX, rtype::NS, rtype::CAA, rtype::DS, rtype::CNAME]
                    .map(|t| q(GSLB, t)),
                NODATA,
            )
            .each([rtype::AAAA, rtype::HTTPS].map(|t| q("mail.example.com.", t)), NODATA)
            .row(q("gslb.test.", rtype::A), "NOERROR a 1/1/0/0; gslb.test 30 A 198.51.100.1")
            .each([rtype::AAAA, rtype::HTTPS].map(|t| q("gslb.test.", t)), "NOERROR a 1/0/1/0; gslb.test 30 SOA"),
        item(34, "Wildcards")
            .row(q("a.wild.example.com.", rtype::TXT), text("a.wild"))
            .row(q("a.b.c.wild.example.com.", rtype::TXT), text("a.b.c.wild"))
            .row(q("*.wild.example.com.", rtype::TXT), text("*.wild"))
            .row(q("a.wild.example.com.", rtype::A), NODATA)
            .row(q("wild.example.com.", rtype::TXT), NODATA)
            .row(q("there.wild.example.com.", rtype::TXT), NODATA)
            .row(q("ent.wild.example.com.", rtype::TXT), NODATA)
            .row(q("a.there.wild.example.com.", rtype::TXT), NXDOMAIN)
            .row(q("a.ent.wild.example.com.", rtype::TXT), NXDOMAIN)
            .row(q("a.*.wild.example.com.", rtype::TXT), NXDOMAIN)
            .row(q("a.any.example.com.", rtype::A), "NOERROR a 1/1/0/0; a.any.example.com 30 A 198.51.100.1")
            .row(q("a.b.any.example.com.", rtype::AAAA), NODATA),
        item(35, "CNAME chains")
            .row(
                q("web.example.com.", rtype::A),
                "NOERROR a 1/2/0/0; web.example.com 3600 CNAME www.example.com; www.example.com 3600 A 192.0.2.80",
            )
            .row(
                q("far.example.com.", rtype::A),
                "NOERROR a 1/2/0/0; far.example.com 3600 CNAME www.example.net; www.example.net 600 A 198.51.100.80",
            )
            .row(
                q("web.example.com.", rtype::MX),
                "NOERROR a 1/1/1/0; web.example.com 3600 CNAME www.example.com; example.com 60 SOA",
            )
            .row(
                q("lost.example.com.", rtype::A),
                "NXDOMAIN a 1/1/1/0; lost.example.com 3600 CNAME absent.example.net; example.net 30 SOA",
            )
            .row(
                q("togslb.example.com.", rtype::A),
                "NOERROR a 1/2/0/0; gslb.example.com 30 A 198.51.100.1; togslb.example.com 3600 CNAME gslb.example.com",
            )
            .row(
                q("togslb.example.com.", rtype::TXT),
                "NOERROR a 1/1/1/0; togslb.example.com 3600 CNAME gslb.example.com; example.com 60 SOA",
            )
            .row(
                q("dn.example.com.", rtype::A),
                NODATA,
            )
            .row(
                q("www.dn.example.com.", rtype::A),
                "NOERROR a 1/3/0/0; dn.example.com 3600 DNAME example.net; \
                 www.dn.example.com 3600 CNAME www.example.net; www.example.net 600 A 198.51.100.80",
            )
            .row(q("named.example.com.", rtype::A), "NOERROR a 1/1/0/0; named.example.com 30 CNAME www.example.net")
            .row(q("out.example.com.", rtype::A), "NOERROR a 1/1/0/0; out.example.com 3600 CNAME www.example.org")
            .each([rtype::CNAME, rtype::ANY].map(|t| q("web.example.com.", t)),
                "NOERROR a 1/1/0/0; web.example.com 3600 CNAME www.example.com")
            .row(
                q("loop1.example.com.", rtype::A),
                "NOERROR a 1/2/0/0; loop1.example.com 3600 CNAME loop2.example.com; loop2.example.com 3600 CNAME loop1.example.com",
            )
            .row(q("chain0.example.com.", rtype::A), "NOERROR a 1/8/0/0; chain0.example.com 3600 CNAME chain1.example.com; ..")
            .row(
                q("tocut.example.com.", rtype::A),
                format!("NOERROR a 1/1/1/2; tocut.example.com 3600 CNAME below.cut.example.com; cut.example.com 3600 NS ns.cut.example.com; {glue}"),
            ),
        item(36, "Delegations")
            .row(q("below.cut.example.com.", rtype::A), &*referral)
            .each([rtype::NS, rtype::A, rtype::ANY, rtype::SOA].map(|t| q("cut.example.com.", t)), &referral)
            .row(q("ns.cut.example.com.", rtype::A), &*referral)
            .row(q("cut.example.com.", rtype::DS), format!("NOERROR a 1/1/0/0; cut.example.com 3600 DS {ds}"))
            .row(q("a.away.example.com.", rtype::A), "NOERROR - 1/0/1/0; away.example.com 3600 NS ns.example.org")
            .row(q("away.example.com.", rtype::DS), NODATA)
            .rows(
                &q("a.wide.example.com.", rtype::A).edns(),
                "NOERROR t 1/0/0/1; opt 1232",
                "NOERROR - 1/0/100/101; wide.example.com 3600 NS n0.wide.example.com; ..",
            ),
        item(37, "The apex")
            .row(q("example.com.", rtype::NS), "NOERROR a 1/1/0/0; example.com 3600 NS ns1.example.com")
            .row(q("example.com.", rtype::SOA), "NOERROR a 1/1/0/0; example.com 300 SOA")
            .row(q("example.com.", rtype::A), NODATA)
            .row(q("gslb.test.", rtype::SOA), "NOERROR a 1/1/0/0; gslb.test 600 SOA"),
        item(38, "Names that are not served")
            .row(q("www.example.org.", rtype::A), REFUSED)
            .row(q("com.", rtype::NS), REFUSED)
            .row(q("xexample.com.", rtype::A), REFUSED)
            .row(q("www.example.org.", rtype::A).edns(), "REFUSED - 1/0/0/1; opt 1232 ede=20"),
        item(39, "ANY")
            .peers_differ()
            .row(q(WWW, rtype::ANY), any("www.example.com"))
            .row(q("example.com.", rtype::ANY), any("example.com"))
            .row(q(GSLB, rtype::ANY), any("gslb.example.com"))
            .row(q("a.wild.example.com.", rtype::ANY), any("a.wild.example.com")),
        item(40, "SVCB and HTTPS")
            .row(q("https.example.com.", rtype::HTTPS), https)
            .row(q("alias.example.com.", rtype::HTTPS), alias)
            .show(Setting::Usual, shown::bad_service_parameters_are_refused),
        item(41, "Members that are chosen")
            .show(Setting::Usual, shown::members_take_turns)
            .row(q("closed.example.com.", rtype::A), NODATA)
            .row(q("closed.example.com.", rtype::A).edns(), "NOERROR a 1/0/1/1; example.com 60 SOA; opt 1232 ede=23")
            .row(q("fixed.example.com.", rtype::A), "NOERROR a 1/1/0/0; fixed.example.com 30 A 192.0.2.9")
            .row(q("fixed.example.com.", rtype::A).edns(), "NOERROR a 1/1/0/1; fixed.example.com 30 A 192.0.2.9; opt 1232 ede=0"),
    ]
}

fn edns() -> Vec<Item> {
    let sized = |total: usize| q(&format!("t{total}.example.com."), rtype::TXT);
    let whole =
        |total: usize, edns: u8| format!("NOERROR a 1/1/0/{edns}; t{total}.example.com 3600 TXT \"xxx..");
    let tc = "NOERROR at 1/0/0/0";
    let tc_opt = "NOERROR at 1/0/0/1; opt 1232";
    let a = record("x.example.com.", rtype::A, 1, 5, &[192, 0, 2, 1]);
    let opt = |owner: &str| record(owner, rtype::OPT, 1232, 0, &[]);
    // A signature by a key that nobody knows (RFC 8945 section 4.2).
    let tsig = record(
        "key.",
        250,
        255,
        0,
        &[
            &name("hmac-sha256.")[..],
            &[0, 0, 1, 2, 3, 4, 1, 44, 0, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat(),
    );
    let v1 = |query: Query| query.opt(1232, 0x0001_0000, &[]);
    let bad = |rdata: &[u8]| www().opt(1232, 0, rdata);
    vec![
        item(42, "OPT where there was one, and only there")
            .row(www(), OK)
            .row(www().edns(), OK_OPT)
            .row(q(WWW, rtype::MX).edns(), NODATA_OPT)
            .row(
                q("absent.example.com.", rtype::A).edns(),
                "NXDOMAIN a 1/0/1/1; example.com 60 SOA; opt 1232",
            )
            .row(
                q("a.away.example.com.", rtype::A).edns(),
                "NOERROR - 1/0/1/1; away.example.com 3600 NS ns.example.org; opt 1232",
            )
            .row(
                q(GSLB, rtype::A).edns(),
                "NOERROR a 1/1/0/1; gslb.example.com 30 A 198.51.100.1; opt 1232",
            )
            .row(
                q("www.example.org.", rtype::A).edns(),
                "REFUSED - 1/0/0/1; opt 1232 ede=20",
            )
            .row(www().opcode(4).edns(), "NOTIMP - 1/0/0/1; opt 1232 ede=21"),
        item(43, "EDNS versions")
            .row(v1(www()), BADVERS)
            .row(v1(q("absent.example.com.", rtype::A)), BADVERS)
            .row(v1(q("www.example.org.", rtype::A)), BADVERS)
            .row(www().opt(1232, 0x00ff_0000, &[]), BADVERS)
            .row(
                www().opt(1232, 0x0001_8000, &[]),
                "BADVERS - 1/0/0/1; opt 1232 do",
            )
            .row(www().opt(1232, 0x0001_4000, &[]), BADVERS)
            .each(
                [
                    option(100, b"abc"),
                    option(3, b""),
                    option(10, b"clientco"),
                    option(9, b""),
                    subnet("203.0.113.0/24"),
                ]
                .map(|o| www().opt(1232, 0x0001_0000, &o)),
                BADVERS,
            ),
        item(44, "Options that there are not")
            .row(www().option(&option(100, b"abc")), OK_OPT)
            .row(www().option(&option(65001, b"")), OK_OPT)
            .row(www().option(&option(0, &[0; 100])), OK_OPT)
            .row(
                www().option(&option(100, b"abc")).option(&option(3, b"")),
                format!("{OK_OPT} nsid=matrix"),
            )
            .row(www().opt(1232, 0x4000, &option(100, b"abc")), OK_OPT),
        item(45, "EDNS flags")
            .each([0x4000, 0x0001, 0x7fff].map(|z| www().opt(1232, z, &[])), OK_OPT)
            .row(www().opt(1232, 0x8000, &[]), format!("{OK_OPT} do"))
            .row(www().opt(1232, 0xffff, &[]), format!("{OK_OPT} do"))
            // The upper bits of an RCODE mean nothing in a query.
            .row(www().opt(1232, 0xff00_0000, &[]), OK_OPT),
        item(46, "Two OPT records")
            .row(www().edns().edns(), FORMERR_OPT)
            .row(www().edns().record(3, a.clone()).record(3, opt(".")), FORMERR_OPT),
        item(47, "OPT at another name than the root")
            .peers_differ()
            .row(www().record(3, opt("x.")), FORMERR),
        item(48, "OPT in another section")
            .peers_differ()
            .each((1..3).map(|section| www().record(section, opt("."))), FORMERR)
            .each(
                (1..3).map(|section| www().record(section, opt(".")).edns()),
                FORMERR,
            ),
        item(49, "OPT among other records")
            .peers_differ()
            .row(www().edns().record(3, a.clone()), OK_OPT)
            .row(www().record(3, a.clone()).edns(), OK_OPT)
            .row(www().record(3, a.clone()).edns().record(3, a.clone()), OK_OPT)
            .row(www().edns().record(3, tsig), OK_OPT)
            // The owner of the record before it is compressed.
            .row(
                www().record(3, [&[0xc0, 12][..], &a[15..]].concat()).edns(),
                OK_OPT,
            ),
        item(50, "Malformed OPT records")
            .peers_differ()
            .row(www().option(&option(100, b"abcd")).cut(33 + 11 + 6), FORMERR)
            .each((34..44).map(|len| www().edns().cut(len)), FORMERR)
            .row(bad(&[0, 100, 0, 9, 1]), FORMERR_OPT)
            .row(bad(&[0, 3, 0xff, 0xff]), FORMERR_OPT)
            .each([&[0][..], &[0, 3], &[0, 3, 0]].map(bad), FORMERR_OPT)
            .each(
                [&[0][..], &[0, 3], &[0, 3, 0]].map(|stray| www().option(&option(100, b"")).option(stray)),
                FORMERR_OPT,
            ),
        item(51, "UDP sizes")
            .each(
                [0, 1, 511, 512].map(|size| sized(501).opt(size, 0, &[])),
                &whole(501, 1),
            )
            .rows(&sized(502).opt(0, 0, &[]), tc_opt, whole(502, 1))
            .rows(&sized(502).opt(512, 0, &[]), tc_opt, whole(502, 1))
            .row(sized(1221).opt(65535, 0, &[]), whole(1221, 1))
            .rows(&sized(1222).opt(65535, 0, &[]), tc_opt, whole(1222, 1)),
        item(52, "Answers that are too long")
            .row(sized(512), whole(512, 0))
            .rows(&sized(513), tc, whole(513, 0))
            .row(sized(589).opt(600, 0, &[]), whole(589, 1))
            .rows(&sized(590).opt(600, 0, &[]), tc_opt, whole(590, 1))
            .row(sized(1221).edns(), whole(1221, 1))
            .rows(&sized(9000).opt(4096, 0, &[]), tc_opt, whole(9000, 1))
            .rows(&sized(9000), tc, whole(9000, 0)),
        item(53, "NSID")
            .peers_differ()
            .row(www().option(&option(3, b"")), format!("{OK_OPT} nsid=matrix"))
            .row(www().option(&option(3, b"who")), format!("{OK_OPT} nsid=matrix"))
            .row(
                q("www.example.org.", rtype::A).option(&option(3, b"")),
                "REFUSED - 1/0/0/1; opt 1232 nsid=matrix ede=20",
            )
            // Not a byte is left beside the answer, and one too few for it.
            .row(sized(1221).option(&option(3, b"")), whole(1221, 1))
            .rows(
                &sized(1222).option(&option(3, b"")),
                format!("{tc_opt} nsid=matrix"),
                whole(1222, 1),
            )
            .row(www().option(&option(3, b"")), OK_OPT)
            .only(Setting::Bare),
        item(54, "Padding")
            .row(www().option(&option(12, &[0; 100])), OK_OPT)
            .row(www().option(&option(12, b"")), OK_OPT),
        item(55, "The idle timeout of TCP")
            .rows(
                &www().option(&option(11, b"")),
                OK_OPT,
                format!("{OK_OPT} keepalive=100"),
            )
            .rows(&www().option(&option(11, &[0, 100])), OK_OPT, FORMERR_OPT),
        item(56, "EXPIRE").row(
            q("example.com.", rtype::SOA).option(&option(9, b"")),
            "NOERROR a 1/1/0/1; example.com 300 SOA; opt 1232",
        ),
        item(57, "Extended errors")
            .row(
                q("www.example.org.", rtype::A).edns(),
                "REFUSED - 1/0/0/1; opt 1232 ede=20",
            )
            .row(q("www.example.org.", rtype::A), REFUSED)
            .row(www().opcode(2).edns(), "NOTIMP - 1/0/0/1; opt 1232 ede=21")
            .row(
                q("closed.example.com.", rtype::A).edns(),
                "NOERROR a 1/0/1/1; example.com 60 SOA; opt 1232 ede=23",
            ),
        item(58, "Error reporting").row(www().option(&option(18, b"")), OK_OPT),
    ]
}

fn client_subnet() -> Vec<Item> {
    let gslb = |o: &[u8]| q(GSLB, rtype::A).option(o);
    let lg = "NOERROR a 1/1/0/1; gslb.example.com 30 A 198.51.100.2; opt 1232";
    let kt = "NOERROR a 1/1/0/1; gslb.example.com 30 A 198.51.100.1; opt 1232";
    let from_lg = subnet("203.0.113.0/24");
    let ok_ecs = format!("{lg} ecs=203.0.113.0/24/24");
    vec![
        item(59, "A client subnet")
            .row(gslb(&from_lg), &*ok_ecs)
            .row(
                gslb(&subnet("2001:db8:2::/48")),
                format!("{lg} ecs=2001:db8:2::/48/48"),
            )
            .row(
                gslb(&subnet("2001:db8:2:300::/56")),
                format!("{lg} ecs=2001:db8:2:300::/56/48"),
            )
            // The service has addresses of one family alone: nothing is chosen.
            .row(
                q(GSLB, rtype::TXT).option(&from_lg),
                format!("{NODATA_OPT} ecs=203.0.113.0/24/0"),
            )
            .row(www().option(&from_lg), format!("{OK_OPT} ecs=203.0.113.0/24/0"))
            .row(
                q("absent.example.com.", rtype::A).option(&from_lg),
                "NXDOMAIN a 1/0/1/1; example.com 60 SOA; opt 1232 ecs=203.0.113.0/24/0",
            ),
        item(60, "No client subnet").row(q(GSLB, rtype::A).edns(), kt),
        item(61, "A client subnet of no bits")
            .row(gslb(&subnet("0.0.0.0/0")), format!("{kt} ecs=0.0.0.0/0/0"))
            .row(gslb(&subnet("::/0")), format!("{kt} ecs=::/0/0")),
        item(62, "Client subnets that are none")
            .peers_differ()
            .each(
                [
                    option(8, b""),
                    option(8, &[0, 1, 0]),
                    ecs(1, 33, 0, &[203, 0, 113, 0, 128]),
                    ecs(
                        2,
                        129,
                        0,
                        &[0x20, 1, 0xd, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128],
                    ),
                    ecs(1, 24, 0, &[203, 0]),
                    ecs(1, 24, 0, &[203, 0, 113, 0]),
                    ecs(1, 23, 0, &[203, 0, 113]),
                    ecs(1, 24, 24, &[203, 0, 113]),
                    ecs(2, 48, 1, &[0x20, 1, 0xd, 0xb8, 0, 2]),
                    ecs(3, 8, 0, &[1]),
                    ecs(0, 8, 0, &[1]),
                    ecs(257, 8, 0, &[1]),
                    ecs(0, 0, 0, &[0]),
                ]
                .map(|o| gslb(&o)),
                FORMERR_OPT,
            )
            // "No subnet" as some resolvers write it.
            .row(gslb(&ecs(0, 0, 0, &[])), format!("{kt} 8=00000000")),
        item(63, "Client subnets of every length")
            .show(Setting::Usual, shown::every_subnet_length_finds_its_class),
        item(64, "Two client subnets")
            .peers_differ()
            .row(gslb(&from_lg).option(&subnet("192.0.2.0/24")), &*ok_ecs)
            .row(gslb(&from_lg).option(&ecs(1, 24, 0, &[1])), FORMERR_OPT),
        item(65, "Client subnets and limits").show(Setting::Guarded, shown::a_client_subnet_is_no_excuse),
        item(66, "The query after one with a client subnet")
            .show(Setting::Usual, shown::a_client_subnet_is_forgotten),
        item(67, "Client subnets switched off")
            .row(gslb(&from_lg), kt)
            .only(Setting::Bare),
        item(68, "Client subnets in errors")
            .row(
                q("www.example.org.", rtype::A).option(&from_lg),
                "REFUSED - 1/0/0/1; opt 1232 ecs=203.0.113.0/24/0 ede=20",
            )
            .row(
                www().opcode(2).option(&from_lg),
                "NOTIMP - 1/0/0/1; opt 1232 ecs=203.0.113.0/24/0 ede=21",
            )
            .row(www().edns().option(&from_lg).option(&[0]), FORMERR_OPT),
    ]
}

fn cookies() -> Vec<Item> {
    let with = |len: usize| www().option(&option(10, &vec![7; len]));
    vec![
        item(69, "A client cookie")
            .row(with(8), format!("{OK_OPT} cookie=24"))
            .row(
                q("absent.example.com.", rtype::A).option(&option(10, &[7; 8])),
                "NXDOMAIN a 1/0/1/1; example.com 60 SOA; opt 1232 cookie=24",
            )
            .row(
                q("www.example.org.", rtype::A).option(&option(10, &[7; 8])),
                "REFUSED - 1/0/0/1; opt 1232 cookie=24 ede=20",
            )
            .row(with(8), OK_OPT)
            .only(Setting::Bare)
            .show(Setting::Usual, shown::a_server_cookie_is_that_of_the_rfc),
        item(70, "Lengths of a cookie")
            .each((0..8).chain(9..16).chain([41, 48]).map(with), FORMERR_OPT)
            .each((16..=40).map(with), &format!("{OK_OPT} cookie=24")),
        item(71, "Server cookies")
            .peers_differ()
            .row(with(24), format!("{OK_OPT} cookie=24"))
            .show(Setting::Usual, shown::cookies_age)
            .show(Setting::Require, shown::bad_cookies_where_they_are_required),
        item(72, "Two secrets")
            .show(Setting::Usual, shown::the_other_secret_is_good)
            .elsewhere(
                "tests/tests/abuse.rs",
                &["dig_finds_its_cookie_good_over_udp_and_tcp_and_through_a_rollover"],
            ),
        item(73, "The vectors of RFC 9018").elsewhere(
            "dataplane/src/wire/cookie/tests.rs",
            &[
                "a_1_a_new_server_cookie",
                "a_2_the_same_client_renews_after_40_minutes",
                "a_3_another_client_with_reserved_bits_set",
                "a_4_ipv6_and_a_secret_rolled_over",
            ],
        ),
        item(74, "Good cookies and limits").show(Setting::Guarded, shown::a_good_cookie_is_an_excuse),
    ]
}

fn tcp_and_limits() -> Vec<Item> {
    let ch = |name: &str| q(name, rtype::TXT).class(3);
    let text = |name: &str, text: &str| format!("NOERROR - 1/1/0/0; {name} CH 0 TXT \"{text}\"");
    let texts = [
        ("version.bind", "windrose"),
        ("version.server", "windrose"),
        ("hostname.bind", "lab"),
        ("id.server", "matrix"),
    ];
    let identity = texts.iter().fold(
        item(80, "Questions about the server").peers_differ(),
        |item, (name, value)| {
            item.row(ch(name), text(name, value))
                .row(ch(name), REFUSED)
                .only(Setting::Bare)
        },
    );
    vec![
        item(75, "Messages over TCP")
            .show(Setting::Usual, shown::messages_over_tcp_may_be_split_and_joined)
            .elsewhere(
                "tests/tests/tcp.rs",
                &["messages_may_be_split_joined_and_pipelined"],
            ),
        item(76, "Limits of TCP").elsewhere("tests/tests/tcp.rs", elsewhere::TCP_LIMITS),
        item(77, "Half close").show(Setting::Usual, shown::a_half_closed_connection_gets_its_reply),
        item(78, "Transfers over TCP")
            .row(q("example.com.", 252), REFUSED)
            .row(q("example.com.", 251), REFUSED),
        item(79, "Odd segments")
            .show(Setting::Usual, shown::odd_segments)
            .elsewhere("tests/tests/tcp.rs", &["a_client_that_does_not_read_is_cut_off"]),
        identity
            .row(ch("VERSION.bind"), text("VERSION.bind", "windrose"))
            .row(
                ch("version.bind").edns(),
                "NOERROR - 1/1/0/1; version.bind CH 0 TXT \"windrose\"; opt 1232",
            )
            .row(ch("authors.bind"), REFUSED)
            .row(ch("www.example.com"), REFUSED)
            .row(q("version.bind.", rtype::TXT), REFUSED),
        item(81, "Response rate limiting").show(Setting::Guarded, shown::replies_are_limited),
        item(82, "Amplification")
            .show(Setting::Usual, shown::replies_are_no_longer_than_they_may)
            .elsewhere(
                "dataplane/src/stages/classify/tests.rs",
                &[
                    "sources_that_cannot_be_answered_are_dropped",
                    "source_port_zero_is_dropped",
                ],
            ),
    ]
}
