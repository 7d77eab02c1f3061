//! What one question and its reply cannot show. Called by the table, by name.

use super::world::{CLIENT, ISPS, KNOWN, LIMITED, SECRETS, SERVICE, World};
use anyhow::{Context, Result, ensure};
use siphasher::sip::SipHasher24;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use windrose_tests::appliance::windrose;
use windrose_tests::datagram::{Asker, Came, DnsSocket};
use windrose_tests::message::{Query, Reply, flag, option, rtype, subnet};
use windrose_tests::raw::RawSocket;
use windrose_tests::stream::{ByHand, DnsStream, framed};

const LONG: Duration = Duration::from_secs(10);
const GSLB: &str = "gslb.example.com.";
const WWW: &str = "www.example.com.";

fn ask(asker: &mut Asker, query: &Query) -> Result<Reply> {
    match asker.ask(&query.message(1))? {
        Came::Reply(bytes) => Reply::read(&bytes),
        other => anyhow::bail!("{other:?} instead of a reply"),
    }
}

/// Over UDP from the client's address of this family.
fn udp(world: &World, family: usize) -> Result<Asker> {
    Asker::udp(
        &world.client,
        CLIENT[family].parse()?,
        SERVICE[family].parse()?,
        KNOWN,
    )
}

fn server(family: usize) -> Result<IpAddr> {
    Ok(SERVICE[family].parse()?)
}

/// Unix time, seconds.
fn now() -> Result<u32> {
    Ok(u32::try_from(
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    )?)
}

/// A cookie as RFC 9018 section 4 makes it.
fn cookie(client: [u8; 8], secret: &str, time: u32, address: IpAddr) -> Result<Vec<u8>> {
    let half = |at: usize| -> Result<u64> { Ok(u64::from_str_radix(&secret[at..at + 16], 16)?.swap_bytes()) };
    let mut hasher = SipHasher24::new_with_keys(half(0)?, half(16)?);
    let head = [&client[..], &[1, 0, 0, 0], &time.to_be_bytes()].concat();
    hasher.write(&head);
    match address {
        IpAddr::V4(a) => hasher.write(&a.octets()),
        IpAddr::V6(a) => hasher.write(&a.octets()),
    }
    Ok([head, hasher.finish().to_le_bytes().to_vec()].concat())
}

const CLIENT_COOKIE: [u8; 8] = *b"a client";

/// What comes back for a cookie, and the RCODE.
fn given(asker: &mut Asker, query: Query, cookie: &[u8]) -> Result<(u16, Vec<u8>)> {
    let reply = ask(asker, &query.option(&option(10, cookie)))?;
    let given = reply.option(10)?.context("no cookie in the reply")?;
    Ok((reply.rcode(), given))
}

/// That `given` is a cookie of the secret in use, made within the last minute.
fn is_fresh(given: &[u8], address: IpAddr) -> Result<()> {
    let time = u32::from_be_bytes(given.get(12..16).context("too short")?.try_into()?);
    let wanted = cookie(CLIENT_COOKIE, SECRETS[0], time, address)?;
    ensure!(given == wanted, "{given:02x?} is not {wanted:02x?}");
    ensure!(now()?.abs_diff(time) < 60, "time {time}");
    Ok(())
}

/// Item 69.
pub(crate) fn a_server_cookie_is_that_of_the_rfc(world: &mut World) -> Result<()> {
    for (family, client) in CLIENT.iter().enumerate() {
        let address = client.parse()?;
        let (rcode, fresh) = given(
            &mut udp(world, family)?,
            Query::new(WWW, rtype::A),
            &CLIENT_COOKIE,
        )?;
        ensure!(rcode == 0, "RCODE {rcode}");
        is_fresh(&fresh, address)?;
        let mut tcp = Asker::tcp(&world.client, server(family)?, KNOWN);
        is_fresh(
            &given(&mut tcp, Query::new(WWW, rtype::A), &CLIENT_COOKIE)?.1,
            address,
        )?;
    }
    Ok(())
}

/// Item 71: good for an hour, renewed after half of it, up to five minutes early; whatever else gets a fresh one.
pub(crate) fn cookies_age(world: &mut World) -> Result<()> {
    for (family, client) in CLIENT.iter().enumerate() {
        let (address, mut asker, now) = (client.parse()?, udp(world, family)?, now()?);
        for (age, kept) in [
            (0, true),
            (1700, true),
            (1900, false),
            (3500, false),
            (3700, false),
            (-200, true),
            (-400, false),
        ] {
            let sent = cookie(CLIENT_COOKIE, SECRETS[0], now.wrapping_add_signed(-age), address)?;
            let (rcode, got) = given(&mut asker, Query::new(WWW, rtype::A), &sent)?;
            ensure!(
                rcode == 0 && (got == sent) == kept,
                "a cookie of {age} s: {got:02x?}"
            );
            if !kept {
                is_fresh(&got, address)?;
            }
        }
        // Of another client, and with one bit changed.
        let other = cookie(CLIENT_COOKIE, SECRETS[0], now, LIMITED.parse()?)?;
        let mut wrong = cookie(CLIENT_COOKIE, SECRETS[0], now, address)?;
        wrong[23] ^= 1;
        for sent in [other, wrong] {
            let (rcode, got) = given(&mut asker, Query::new(GSLB, rtype::A), &sent)?;
            ensure!(rcode == 0);
            is_fresh(&got, address)?;
        }
    }
    Ok(())
}

/// Item 71: BADCOOKIE over UDP, an answer over TCP and to those who send none.
pub(crate) fn bad_cookies_where_they_are_required(world: &mut World) -> Result<()> {
    for (family, client) in CLIENT.iter().enumerate() {
        let (address, mut asker) = (client.parse()?, udp(world, family)?);
        for query in [
            Query::new(WWW, rtype::A),
            Query::new(GSLB, rtype::A),
            Query::new("absent.example.com.", rtype::A),
        ] {
            let bare = query.clone().option(&option(10, &CLIENT_COOKIE));
            let line = ask(&mut asker, &bare)?.line()?;
            ensure!(line == "BADCOOKIE - 1/0/0/1; opt 1232 cookie=24", "{line}");
            let (_, fresh) = given(&mut asker, query.clone(), &CLIENT_COOKIE)?;
            is_fresh(&fresh, address)?;
            let (rcode, same) = given(&mut asker, query.clone(), &fresh)?;
            ensure!(rcode != 23 && same == fresh, "a good cookie got RCODE {rcode}");
            ensure!(ask(&mut asker, &query.clone().edns())?.rcode() == rcode);
            let mut tcp = Asker::tcp(&world.client, server(family)?, KNOWN);
            ensure!(given(&mut tcp, query, &CLIENT_COOKIE)?.0 == rcode);
        }
    }
    Ok(())
}

/// Item 72: a cookie by the second secret is good, and renewed with the first.
pub(crate) fn the_other_secret_is_good(world: &mut World) -> Result<()> {
    let address = CLIENT[0].parse()?;
    let sent = cookie(CLIENT_COOKIE, SECRETS[1], now()?, address)?;
    let (rcode, got) = given(&mut udp(world, 0)?, Query::empty(), &sent)?;
    ensure!(rcode == 0, "RCODE {rcode}: taken for bad");
    is_fresh(&got, address)
}

/// Item 10: a query for a cookie alone, with a good one (RFC 7873 section 5.4).
pub(crate) fn a_good_cookie_alone(world: &mut World) -> Result<()> {
    let sent = cookie(CLIENT_COOKIE, SECRETS[0], now()?, CLIENT[0].parse()?)?;
    let (rcode, got) = given(&mut udp(world, 0)?, Query::empty(), &sent)?;
    ensure!(rcode == 0 && got == sent, "RCODE {rcode}, {got:02x?}");
    Ok(())
}

/// Item 40: what RFC 9460 section 2.2 and 8 forbid does not load.
pub(crate) fn bad_service_parameters_are_refused(world: &mut World) -> Result<()> {
    let zone = |line: &str| {
        format!(
            "$ORIGIN bad.test.\n$TTL 60\n@ IN SOA ns hostmaster 1 2 3 4 5\n  IN NS ns\nns IN A 192.0.2.1\nx IN HTTPS {line}\n"
        )
    };
    let config = world.lab.write(
        "bad.toml",
        "[dataplane]\ncores = [0]\nmemory = \"64MB\"\n[[port]]\nname = \"p\"\ndevice = \"net_null0\"\naddresses = [\"192.0.2.53\"]\n\
         [[zone]]\nname = \"bad.test\"\nfile = \"bad.zone\"\n",
    )?;
    let config = config.to_string_lossy().into_owned();
    for (line, good) in [
        ("1 . alpn=h2 port=8443", true),
        ("0 www", true),
        ("1 . alpn=h2 alpn=h3", false),
        ("1 . port=1 mandatory=alpn", false),
        ("1 . mandatory=mandatory", false),
        ("1 . alpn=h2 mandatory=alpn,alpn", false),
        ("1 . no-default-alpn", false),
        ("0 www alpn=h2", false),
        ("1 . ipv4hint=192.0.2.256", false),
    ] {
        world.lab.write("bad.zone", &zone(line))?;
        let finished = windrose(None, &["check", &config])?;
        ensure!(
            (finished.code == 0) == good,
            "HTTPS {line}: code {}\n{}{}",
            finished.code,
            finished.stdout,
            finished.stderr
        );
        ensure!(
            good || format!("{}{}", finished.stdout, finished.stderr).contains("bad.zone:6"),
            "HTTPS {line}: {}",
            finished.stderr
        );
    }
    Ok(())
}

/// Item 41: two of three members a reply, never one twice, each as often as the others.
pub(crate) fn members_take_turns(world: &mut World) -> Result<()> {
    let mut given: BTreeMap<String, u32> = BTreeMap::new();
    let mut asker = udp(world, 0)?;
    for _ in 0..30 {
        let reply = ask(&mut asker, &Query::new("turn.example.com.", rtype::A))?;
        let [answer, ..] = &reply.sections;
        ensure!(
            answer.len() == 2 && answer[0].text != answer[1].text,
            "{}",
            reply.line()?
        );
        for record in answer {
            ensure!(record.ttl == 30, "TTL {}", record.ttl);
            *given.entry(record.text.clone()).or_default() += 1;
        }
    }
    let all: Vec<_> = given.iter().map(|(address, n)| (address.as_str(), *n)).collect();
    ensure!(
        all == [("198.51.100.1", 20), ("198.51.100.2", 20), ("198.51.100.3", 20)],
        "{all:?}"
    );
    Ok(())
}

/// The site that an address belongs to, and the shortest prefix around it whose addresses all do: by comparing with every
/// configured prefix.
fn class(address: u128, family: usize) -> (u8, u8) {
    let bits: u8 = if family == 0 { 32 } else { 128 };
    let prefixes: Vec<(u128, u8)> = ISPS
        .iter()
        .map(|(_, prefixes)| {
            let (address, length) = prefixes[family].split_once('/').unwrap();
            (number(address.parse().unwrap()), length.parse().unwrap())
        })
        .collect();
    let same = |a: u128, b: u128, length: u8| length == 0 || (a ^ b) >> (bits - length) == 0;
    let site = prefixes
        .iter()
        .position(|(prefix, length)| same(*prefix, address, *length));
    // A prefix inside of addr/n, or addr/n inside of a prefix: in the one case it is not uniform, in the other it is.
    let uniform = |n: u8| {
        prefixes
            .iter()
            .all(|(prefix, length)| *length <= n || !same(*prefix, address, n))
    };
    let depth = (0..=bits).find(|n| uniform(*n)).unwrap();
    (site.map_or(3, |site| u8::try_from(site + 1).unwrap()), depth)
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u32::from(a).into(),
        IpAddr::V6(a) => a.into(),
    }
}

/// Item 63: at each SOURCE length the member of the subnet's ISP, and as SCOPE the widest prefix with the same answer.
pub(crate) fn every_subnet_length_finds_its_class(world: &mut World) -> Result<()> {
    let mut askers = [udp(world, 0)?, Asker::tcp(&world.client, server(1)?, KNOWN)];
    let places: [&[&str]; 2] = [
        &[
            "203.0.113.255",
            "192.0.2.129",
            "203.0.112.1",
            "10.255.255.255",
            "255.255.255.255",
        ],
        &[
            "2001:db8:2:ffff:ffff:ffff:ffff:ffff",
            "2001:db8:1::1",
            "2001:db8:3::1",
            "fd00::1",
        ],
    ];
    for (family, addresses) in places.iter().enumerate() {
        let bits: u8 = if family == 0 { 32 } else { 128 };
        for address in *addresses {
            let whole = number(address.parse()?);
            for source in 1..=bits {
                let masked = whole >> (bits - source) << (bits - source);
                let text: IpAddr = match family {
                    0 => Ipv4Addr::from(u32::try_from(masked)?).into(),
                    _ => Ipv6Addr::from(masked).into(),
                };
                let (site, depth) = class(masked, family);
                let query = Query::new(GSLB, rtype::A).option(&subnet(&format!("{text}/{source}")));
                let want = format!(
                    "NOERROR a 1/1/0/1; gslb.example.com 30 A 198.51.100.{site}; opt 1232 ecs={text}/{source}/{depth}"
                );
                for asker in &mut askers {
                    let line = ask(asker, &query)?.line()?;
                    ensure!(line == want, "{text}/{source}: {line}\nwanted {want}");
                }
            }
        }
    }
    Ok(())
}

/// Item 66: from the client's own ISP after a query for another's, over one socket.
pub(crate) fn a_client_subnet_is_forgotten(world: &mut World) -> Result<()> {
    let wanted = ["198.51.100.2", "198.51.100.1"];
    for family in 0..2 {
        let mut asker = udp(world, family)?;
        for turn in 0..20 {
            let with = Query::new(GSLB, rtype::A).option(&subnet("203.0.113.0/24"));
            let without = Query::new(GSLB, rtype::A);
            let without = if turn % 2 == 0 { without.edns() } else { without };
            for (query, wanted) in [with, without].iter().zip(wanted) {
                let reply = ask(&mut asker, query)?;
                ensure!(reply.sections[0][0].text == wanted, "{}", reply.line()?);
            }
        }
    }
    Ok(())
}

/// What becomes of as many equal queries from the address that is limited, each sent as the other is answered or not.
#[derive(Debug, Default)]
struct Flood {
    whole: usize,
    slipped: usize,
    bad_cookie: usize,
    silent: usize,
}

/// Sends `count` queries from `local` in one go, then reads what comes until a question to another name is answered.
fn flood(world: &World, local: &str, count: u16, query: &Query) -> Result<Flood> {
    let socket = DnsSocket::open(&world.client, local.parse()?, server(0)?)?;
    for id in 0..count {
        socket.send(&query.message(id))?;
    }
    let mut seen = Flood::default();
    let mut total = 0;
    // A name of its own is within its own limit.
    let last = Query::new(&format!("last{count}.any.example.com."), rtype::HINFO).message(0xfffe);
    socket.send(&last)?;
    loop {
        let reply = Reply::read(&socket.receive()?)?;
        if reply.id == 0xfffe {
            break;
        }
        total += 1;
        match reply.rcode() {
            23 => seen.bad_cookie += 1,
            _ if reply.flags & flag::TC != 0 => {
                ensure!(
                    reply.counts[..3] == [1, 0, 0] && reply.rcode() == 0,
                    "{}",
                    reply.line()?
                );
                seen.slipped += 1;
            }
            _ => seen.whole += 1,
        }
    }
    seen.silent = usize::from(count) - total;
    Ok(seen)
}

/// The burst of ten, and what came back by time; of the rest every second.
fn is_limited(seen: &Flood, count: usize, slipped: usize) -> Result<()> {
    ensure!((10..20).contains(&seen.whole), "{seen:?}");
    ensure!(
        slipped.abs_diff(seen.silent) <= 1 && slipped + seen.silent + seen.whole == count,
        "{seen:?}"
    );
    Ok(())
}

/// Item 81: answers by name, NXDOMAIN by zone, errors together; the client on the allow list and TCP are not limited.
pub(crate) fn replies_are_limited(world: &mut World) -> Result<()> {
    let seen = flood(world, LIMITED, 60, &Query::new(WWW, rtype::A))?;
    is_limited(&seen, 60, seen.slipped)?;
    let nowhere = |n: u16| Query::new(&format!("absent{n}.example.com."), rtype::A);
    let socket = DnsSocket::open(&world.client, LIMITED.parse()?, server(0)?)?;
    for n in 0..60 {
        socket.send(&nowhere(n).message(n))?;
    }
    socket.send(&Query::new("last.any.example.com.", rtype::HINFO).message(0xfffe))?;
    let mut denied = 0;
    loop {
        let reply = Reply::read(&socket.receive()?)?;
        if reply.id == 0xfffe {
            break;
        }
        denied += usize::from(reply.rcode() == 3);
    }
    ensure!((10..20).contains(&denied), "{denied} times NXDOMAIN");
    let seen = flood(world, LIMITED, 61, &Query::new("www.example.org.", rtype::A))?;
    is_limited(&seen, 61, seen.slipped)?;
    let free = flood(world, CLIENT[0], 62, &Query::new(WWW, rtype::A))?;
    ensure!(free.whole == 62, "{free:?}");
    let mut tcp = DnsStream::connect(&world.client, server(1)?)?;
    for _ in 0..60 {
        ensure!(Reply::read(&tcp.ask(&Query::new(WWW, rtype::A).message(3))?)?.counts[1] == 1);
    }
    Ok(())
}

/// Item 65: whatever subnet a query from the limited address names, it is that address which is limited, and none other.
pub(crate) fn a_client_subnet_is_no_excuse(world: &mut World) -> Result<()> {
    let allowed = Query::new("mail.example.com.", rtype::A).option(&subnet(&format!("{}/32", CLIENT[0])));
    let seen = flood(world, LIMITED, 63, &allowed)?;
    is_limited(&seen, 63, seen.slipped)?;
    let blamed = Query::new("mail.example.com.", rtype::A).option(&subnet(&format!("{LIMITED}/32")));
    let seen = flood(world, CLIENT[0], 64, &blamed)?;
    ensure!(seen.whole == 64, "{seen:?}");
    Ok(())
}

/// Item 74: with a good cookie no limit holds; with a client cookie alone, half of what is over gets BADCOOKIE.
pub(crate) fn a_good_cookie_is_an_excuse(world: &mut World) -> Result<()> {
    let query = Query::new("ns1.example.com.", rtype::A);
    let good = cookie(CLIENT_COOKIE, SECRETS[0], now()?, LIMITED.parse()?)?;
    let seen = flood(world, LIMITED, 65, &query.clone().option(&option(10, &good)))?;
    ensure!(seen.whole == 65, "{seen:?}");
    let seen = flood(world, LIMITED, 66, &query.option(&option(10, &CLIENT_COOKIE)))?;
    is_limited(&seen, 66, seen.bad_cookie)
}

/// Item 75.
pub(crate) fn messages_over_tcp_may_be_split_and_joined(world: &mut World) -> Result<()> {
    let query = |id: u16| framed(&Query::new(GSLB, rtype::A).edns().message(id));
    for family in 0..2 {
        let mut stream = DnsStream::connect(&world.client, server(family)?)?;
        let one = query(1);
        // In two parts, split at every byte; the kernel sends each by itself (no delay).
        for at in 1..one.len() {
            stream.send(&one[..at])?;
            stream.send(&one[at..])?;
            ensure!(Reply::read(&stream.message()?)?.id == 1, "split at {at}");
        }
        // Byte by byte.
        for byte in &one {
            stream.send(&[*byte])?;
        }
        ensure!(Reply::read(&stream.message()?)?.counts[1] == 1);
        // A hundred at once, the last one cut; then its rest.
        let all: Vec<u8> = (0..100).flat_map(query).collect();
        let (now, later) = all.split_at(all.len() - 5);
        stream.send(now)?;
        let mut ids: Vec<u16> = (0..99)
            .map(|_| Ok(Reply::read(&stream.message()?)?.id))
            .collect::<Result<_>>()?;
        stream.send(later)?;
        ids.push(Reply::read(&stream.message()?)?.id);
        ids.sort_unstable();
        ensure!(ids.into_iter().eq(0..100), "ids");
        // A message longer than any query: answered, the rest of it ignored.
        let long = Query::new(WWW, rtype::A).tail(&vec![0; 60_000]);
        ensure!(Reply::read(&stream.ask(&long.message(5))?)?.counts == [1, 1, 0, 0]);
        ensure!(Reply::read(&stream.ask(&Query::new(WWW, rtype::A).message(6))?)?.counts[1] == 1);
    }
    Ok(())
}

/// Item 77.
pub(crate) fn a_half_closed_connection_gets_its_reply(world: &mut World) -> Result<()> {
    for family in 0..2 {
        let mut stream = DnsStream::connect(&world.client, server(family)?)?;
        let queries: Vec<u8> = (0..3)
            .flat_map(|id| framed(&Query::new(WWW, rtype::A).message(id)))
            .collect();
        stream.send(&queries)?;
        stream.finish()?;
        for id in 0..3 {
            ensure!(Reply::read(&stream.message()?)?.id == id);
        }
        stream.end()?;
    }
    Ok(())
}

/// Item 79: FIN with the query, a part sent twice with overlap, RST with data. The kernel's TCP does the work; that the frames get
/// there and back is ours.
pub(crate) fn odd_segments(world: &mut World) -> Result<()> {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let wire = RawSocket::open(&world.client, "eth0")?;
    let by_hand = |port| -> Result<ByHand> {
        Ok(ByHand {
            port: world.app.mac("port0")?,
            mac: world.client.mac("eth0")?,
            tags: Vec::new(),
            // Not an address of the client's kernel, which would reset the connection.
            client: ([192, 0, 2, 78].into(), port),
            service: SERVICE[0].parse()?,
        })
    };
    let open = |hand: &ByHand| -> Result<u32> {
        wire.send(&hand.frame(1000, 0, SYN, &[]))?;
        let mut synchronized = None;
        wire.receive(LONG, |frame| {
            synchronized = hand.read(frame).filter(|s| s.flags == SYN | ACK);
            synchronized.is_some()
        })?;
        let theirs = synchronized.context("no SYN and ACK")?.sequence.wrapping_add(1);
        wire.send(&hand.frame(1001, theirs, ACK, &[]))?;
        Ok(theirs)
    };
    let reply = |hand: &ByHand| -> Result<Reply> {
        let mut data = Vec::new();
        wire.receive(LONG, |frame| {
            data.extend(hand.read(frame).map(|s| s.data).unwrap_or_default());
            data.len() > 2
        })?;
        Reply::read(&data[2..])
    };
    let query = framed(&Query::new(WWW, rtype::A).message(9));
    let hand = by_hand(40_101)?;
    let theirs = open(&hand)?;
    wire.send(&hand.frame(1001, theirs, ACK | 8 | 1, &query))?;
    ensure!(reply(&hand)?.counts == [1, 1, 0, 0], "FIN with data");
    let hand = by_hand(40_102)?;
    let theirs = open(&hand)?;
    wire.send(&hand.frame(1001, theirs, ACK, &query[..20]))?;
    // From its tenth byte on.
    wire.send(&hand.frame(1011, theirs, ACK | 8, &query[10..]))?;
    ensure!(reply(&hand)?.counts == [1, 1, 0, 0], "overlapping segments");
    wire.send(&hand.frame(1001 + u32::try_from(query.len())?, theirs, 4 | ACK, b"reset"))?;
    // It went with the reset; the others go on.
    let mut after = Asker::tcp(&world.client, server(0)?, KNOWN);
    ensure!(ask(&mut after, &Query::new(WWW, rtype::A))?.counts[1] == 1);
    Ok(())
}

/// Item 82: of all names and types here, no reply without EDNS is longer than 512 bytes or than 1,232 with it, and what answers ANY is short.
pub(crate) fn replies_are_no_longer_than_they_may(world: &mut World) -> Result<()> {
    let names = [
        "example.com.",
        "www.example.com.",
        "a.wide.example.com.",
        "t9000.example.com.",
        "a.wild.example.com.",
        "absent.example.com.",
    ];
    for family in 0..2 {
        let mut asker = udp(world, family)?;
        for name in names {
            for rtype in [
                rtype::A,
                rtype::NS,
                rtype::TXT,
                rtype::ANY,
                rtype::SOA,
                rtype::DNAME,
            ] {
                for (query, limit) in [
                    (Query::new(name, rtype), 512),
                    (Query::new(name, rtype).edns(), 1232),
                    (Query::new(name, rtype).opt(65535, 0, &[]), 1232),
                ] {
                    let message = query.message(1);
                    let Came::Reply(reply) = asker.ask(&message)? else {
                        anyhow::bail!("no reply")
                    };
                    ensure!(reply.len() <= limit, "{name} {rtype}: {} bytes", reply.len());
                    ensure!(
                        rtype != rtype::ANY || reply.len() <= message.len() + 80,
                        "ANY {name}: {} bytes",
                        reply.len()
                    );
                }
            }
        }
    }
    let status = world.appliance()?.get("/metrics")?;
    ensure!(
        status.contains("windrose_dns_byte_ratio"),
        "no ratio of reply to query bytes in the metrics"
    );
    Ok(())
}
