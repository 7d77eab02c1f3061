//! Cookies, rate limits, extended errors and class CH, through a whole worker on a clock of the test's. Here is what
//! the tests ask with, and how they read replies.

mod cookies;
mod identity;
mod limits;

use crate::frames::{self, Kind};
use crate::lab::{Lab, changes, example};
use allocation_counter::measure;
use control::config::model::{AllDown, Config, CookieMode, RateLimit};
use dataplane::counters::Counter::{self, *};
use dataplane::wire::cookie::{Address, Secret, Secrets};
use std::ops::Range;

pub(super) const SECOND: u64 = 1_000_000_000;
/// The secret, the client's address and cookie, and the time of RFC 9018 appendix A.1.
pub(super) const SECRET: u128 = 0xe5e9_73e5_a6b2_a43f_48e7_dc84_9e37_bfcf;
pub(super) const CLIENT: u8 = 100;
pub(super) const CLIENT_COOKIE: [u8; 8] = 0x2464_c4ab_cf10_c957u64.to_be_bytes();
pub(super) const NOW: u64 = 1_559_731_985;

pub(super) const A: u16 = 1;
pub(super) const TXT: u16 = 16;
pub(super) const IN: u16 = 1;
pub(super) const CH: u16 = 3;
pub(super) const NSID: u16 = 3;
pub(super) const ECS: u16 = 8;
pub(super) const COOKIE: u16 = 10;
pub(super) const EXTENDED_ERROR: u16 = 15;

pub(super) fn secret(number: u128) -> Secret {
    Secret::new(number.to_be_bytes())
}

/// The 24 bytes of client and server cookie.
pub(super) fn cookie(server: u128) -> Vec<u8> {
    [&CLIENT_COOKIE[..], &server.to_be_bytes()].concat()
}

/// The example with the secret of RFC 9018.
pub(super) fn config() -> Config {
    let mut config = example(192);
    config.dns.cookies.secrets = Some(Secrets {
        current: secret(SECRET),
        other: None,
    });
    config
}

pub(super) fn lab(config: Config) -> Lab {
    let mut lab = Lab::new(config);
    lab.set_clock(NOW);
    lab
}

/// A query by hand (RFC 1035 section 4.1): options make an OPT record with 1232 bytes.
pub(super) fn message(name: &str, class: u16, rtype: u16, options: Option<&[(u16, Vec<u8>)]>) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(options.is_some())];
    for label in name.split_terminator('.') {
        message.push(label.len() as u8);
        message.extend(label.bytes());
    }
    message.push(0);
    message.extend([rtype.to_be_bytes(), class.to_be_bytes()].concat());
    message.extend(opt(options));
    message
}

pub(super) fn opt(options: Option<&[(u16, Vec<u8>)]>) -> Vec<u8> {
    let Some(options) = options else { return vec![] };
    let data: Vec<u8> = options
        .iter()
        .flat_map(|(code, data)| {
            [
                &code.to_be_bytes()[..],
                &(data.len() as u16).to_be_bytes(),
                data.as_slice(),
            ]
            .concat()
        })
        .collect();
    let mut out = vec![0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0];
    out.extend((data.len() as u16).to_be_bytes());
    out.extend(data);
    out
}

/// A reply, taken apart.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) rcode: u16,
    pub(super) aa: bool,
    pub(super) tc: bool,
    /// Questions, answers, authority, additional.
    pub(super) counts: [u16; 4],
    pub(super) options: Vec<(u16, Vec<u8>)>,
    pub(super) bytes: Vec<u8>,
}

impl Reply {
    pub(super) fn option(&self, code: u16) -> Option<&[u8]> {
        self.options
            .iter()
            .find(|(c, _)| *c == code)
            .map(|(_, data)| data.as_slice())
    }
}

pub(super) fn reply(frame: &[u8]) -> Reply {
    let Kind::Udp(bytes) = frames::dissect(frame) else {
        panic!("no UDP")
    };
    let message = domain::base::Message::from_octets(&bytes).unwrap();
    let header = message.header();
    assert!(header.qr());
    let sections = message.header_counts();
    let (mut rcode, mut options) = (u16::from(header.rcode().to_int()), Vec::new());
    if let Some(opt) = message.opt() {
        rcode = opt.rcode(header).to_int();
        for option in opt.opt().iter::<domain::base::opt::UnknownOptData<_>>() {
            let option = option.unwrap();
            options.push((option.code().to_int(), option.as_slice().to_vec()));
        }
    }
    Reply {
        rcode,
        aa: header.aa(),
        tc: header.tc(),
        counts: [
            sections.qdcount(),
            sections.ancount(),
            sections.nscount(),
            sections.arcount(),
        ],
        options,
        bytes: bytes.clone(),
    }
}

/// Asks from the client of the RFC.
pub(super) fn ask(lab: &mut Lab, message: &[u8]) -> Reply {
    let sent = lab.exchange(&[frames::udp(false, 0, CLIENT, (40_000, 53), message)]);
    assert_eq!(sent.len(), 1, "{:?}", lab.counters());
    reply(&sent[0])
}

pub(super) fn ask_with_cookie(lab: &mut Lab, name: &str, cookie: &[u8]) -> Reply {
    ask(lab, &message(name, IN, A, Some(&[(COOKIE, cookie.to_vec())])))
}

/// Names for every way to an answer: static, service, through CNAME, wildcard, referral, missing, not served.
pub(super) const NAMES: [(&str, u16); 8] = [
    ("www.example.com", 0),
    ("vod.example.com", 0),
    ("tovod.example.com", 0),
    ("alias.example.com", 0),
    ("a.wild.example.com", 0),
    ("x.child.example.com", 0),
    ("none.example.com", 3),
    ("example.net", 5),
];
