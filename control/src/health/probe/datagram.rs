//! Checks by datagrams: ICMP and ICMPv6 echo (RFC 792, RFC 4443), UDP, DNS over UDP. Called by [`super::Probe`], which
//! bounds their time; a lost datagram is a failed check, nothing is sent twice.
//!
//! The sockets are connected, so that the kernel hands over what comes from the member alone. ICMP needs CAP_NET_RAW.

use super::{Fault, Stop, connect_stop};
use crate::config::model::{Check, CheckKind, Name};
use crate::netns;
use dataplane::wire::checksum::Sum;
use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::{Message, MessageBuilder};
use domain::rdata::{A, Aaaa};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use tokio::net::UdpSocket;

/// Longest datagram that is read.
const DATAGRAM_MAX: usize = 4096;

/// Carries out a check of one of these kinds; `phase` says how far it came.
pub(super) async fn attempt(
    address: IpAddr,
    check: &Check,
    phase: &mut &'static str,
) -> Result<String, Stop> {
    let socket = open(address, check).await.map_err(Stop::not_run)?;
    if let Some(name) = &check.interface {
        socket
            .bind_device(Some(name.as_bytes()))
            .map_err(|e| Stop::NotRun(format!("interface {name}: {e}")))?;
    }
    *phase = "sending";
    let peer = SocketAddr::new(address, check.port);
    socket.connect(peer).await.map_err(connect_stop)?;
    match &check.kind {
        CheckKind::Udp { payload, expect } => udp(&socket, payload, expect.as_deref(), phase).await,
        CheckKind::Dns {
            query,
            rtype,
            rcode,
            address,
        } => {
            let question = (query, Rtype::from_int(*rtype));
            dns(&socket, question, *rcode, *address, phase).await
        }
        _ => echo(&socket, address.is_ipv4(), phase).await,
    }
}

/// A socket of the target's family, in its namespace.
async fn open(address: IpAddr, check: &Check) -> io::Result<UdpSocket> {
    let icmp = check.kind == CheckKind::Icmp;
    let make = move || -> io::Result<std::net::UdpSocket> {
        let domain = Domain::for_address(SocketAddr::new(address, 0));
        let socket = match (icmp, address.is_ipv4()) {
            (true, true) => Socket::new(domain, Type::RAW, Some(Protocol::ICMPV4)),
            (true, false) => Socket::new(domain, Type::RAW, Some(Protocol::ICMPV6)),
            (false, _) => Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)),
        }?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    let socket = match check.netns.clone() {
        None => make()?,
        Some(name) => tokio::task::spawn_blocking(move || netns::within(&name, make)?).await??,
    };
    UdpSocket::from_std(socket)
}

async fn send(socket: &UdpSocket, datagram: &[u8], phase: &mut &'static str) -> Result<(), Stop> {
    socket.send(datagram).await.map_err(connect_stop)?;
    *phase = "waiting for an answer";
    Ok(())
}

async fn udp(
    socket: &UdpSocket,
    payload: &[u8],
    expect: Option<&[u8]>,
    phase: &mut &'static str,
) -> Result<String, Stop> {
    send(socket, payload, phase).await?;
    let mut buffer = [0; DATAGRAM_MAX];
    let len = socket.recv(&mut buffer).await.map_err(connect_stop)?;
    let answer = &buffer[..len];
    match expect {
        Some(wanted) if !answer.windows(wanted.len()).any(|part| part == wanted) => Err(Stop::Failure(
            Fault::Wrong,
            format!("{len} bytes without what is expected"),
        )),
        _ => Ok(format!("{len} bytes")),
    }
}

async fn dns(
    socket: &UdpSocket,
    (name, rtype): (&Name, Rtype),
    rcode: u8,
    address: Option<IpAddr>,
    phase: &mut &'static str,
) -> Result<String, Stop> {
    let id = fastrand::u16(..);
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(id);
    builder.header_mut().set_rd(true);
    let mut builder = builder.question();
    builder
        .push((name, rtype))
        .map_err(|e| Stop::NotRun(format!("query: {e}")))?;
    send(socket, &builder.finish(), phase).await?;
    let mut buffer = [0; DATAGRAM_MAX];
    loop {
        let len = socket.recv(&mut buffer).await.map_err(connect_stop)?;
        let wrong = |text: String| Stop::Failure(Fault::Wrong, text);
        let Ok(message) = Message::from_octets(&buffer[..len]) else {
            return Err(wrong(format!("{len} bytes that are no DNS message")));
        };
        // An answer to an earlier check, or forged.
        let ours = message.sole_question().is_ok_and(|question| {
            question.qname() == name && question.qtype() == rtype && question.qclass() == Class::IN
        });
        if message.header().id() != id || !message.header().qr() || !ours {
            continue;
        }
        let got = message.header().rcode();
        if got.to_int() != rcode {
            let fault = if got == Rcode::SERVFAIL {
                Fault::Error
            } else {
                Fault::Wrong
            };
            let wanted = Rcode::checked_from_int(rcode).unwrap_or(Rcode::NOERROR);
            return Err(Stop::Failure(fault, format!("{got}, expected {wanted}")));
        }
        let Some(wanted) = address else {
            return Ok(got.to_string());
        };
        let answer = message
            .answer()
            .map_err(|e| wrong(format!("the answer is unreadable: {e}")))?;
        let found = match wanted {
            IpAddr::V4(v4) => answer.limit_to::<A>().flatten().any(|r| r.data().addr() == v4),
            IpAddr::V6(v6) => answer.limit_to::<Aaaa>().flatten().any(|r| r.data().addr() == v6),
        };
        return if found {
            Ok(format!("{got} with {wanted}"))
        } else {
            Err(wrong(format!("{got} without {wanted}")))
        };
    }
}

/// Echo request and reply: type, code, checksum, identifier, sequence number, and eight bytes to know it again.
async fn echo(socket: &UdpSocket, v4: bool, phase: &mut &'static str) -> Result<String, Stop> {
    let (request, reply) = if v4 { (8, 0) } else { (128, 129) };
    let token = fastrand::u64(..).to_be_bytes();
    let mut packet = [0; 16];
    packet[0] = request;
    packet[4..6].copy_from_slice(&token[..2]);
    packet[8..].copy_from_slice(&token);
    if v4 {
        let sum = Sum::of_16(packet).checksum();
        packet[2..4].copy_from_slice(&sum);
    }
    // The kernel fills in the checksum of ICMPv6 (RFC 3542 section 3.1).
    send(socket, &packet, phase).await?;
    let mut buffer = [0; DATAGRAM_MAX];
    loop {
        let len = socket.recv(&mut buffer).await.map_err(connect_stop)?;
        // A raw IPv4 socket gives the IP header as well.
        let skip = if v4 { usize::from(buffer[0] & 15) * 4 } else { 0 };
        let message = buffer[..len].get(skip..).unwrap_or_default();
        if message.first() == Some(&reply) && message.get(8..16) == Some(&token) {
            return Ok("echo reply".into());
        }
    }
}

#[cfg(test)]
#[path = "datagram_tests.rs"]
mod tests;
