//! DNS over a TCP connection byte by byte: what no well-behaved client does. And TCP frames by hand, for clients
//! that the kernel cannot be: VLAN-tagged ones and forged ones.
//!
//! Called by tests. Owns one connection, made inside a namespace on a thread of its own.

use crate::capture::{self, Checksums, Target};
use crate::lab::Host;
use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// Ample for anything that is going to happen at all.
const LONG: Duration = Duration::from_secs(20);

/// A query of class IN without EDNS, RD clear, and no length before it.
pub fn query(id: u16, name: &str, rtype: u16) -> Vec<u8> {
    let mut message = [&id.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.split('.').chain([""]) {
        message.push(u8::try_from(label.len()).unwrap_or(0));
        message.extend(label.as_bytes());
    }
    message.extend([rtype.to_be_bytes(), [0, 1]].concat());
    message
}

/// A message with its length before it.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes()[..], message].concat()
}

/// Runs `work` on a thread inside a namespace. Sockets stay in the namespace that they were made in.
///
/// # Errors
/// When there is no such namespace, or `work` fails.
pub fn inside<T: Send + 'static>(
    host: &Host,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let netns = format!("/run/netns/{}", host.name());
    let thread = std::thread::spawn(move || {
        setns(File::open(&netns)?, CloneFlags::CLONE_NEWNET)?;
        work()
    });
    match thread.join() {
        Ok(done) => done,
        Err(_) => bail!("a thread inside {} panicked", host.name()),
    }
}

/// A UDP socket inside `host`, connected to port 53 of `server`; 20 s receive timeout.
///
/// # Errors
/// When the kernel refuses.
pub fn datagrams(host: &Host, server: IpAddr) -> Result<UdpSocket> {
    inside(host, move || {
        let any: IpAddr = if server.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((server, 53))?;
        socket.set_read_timeout(Some(LONG))?;
        Ok(socket)
    })
}

/// One connection to port 53.
#[derive(Debug)]
pub struct DnsStream(TcpStream);

impl DnsStream {
    /// Connects from inside `host`.
    ///
    /// # Errors
    /// When no connection comes about.
    pub fn connect(host: &Host, server: IpAddr) -> Result<Self> {
        let stream = inside(host, move || {
            Ok(TcpStream::connect_timeout(&SocketAddr::new(server, 53), LONG)?)
        });
        let stream = stream.with_context(|| format!("connect to {server} from {}", host.name()))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LONG))?;
        stream.set_write_timeout(Some(LONG))?;
        Ok(Self(stream))
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.0.write_all(bytes)?)
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn finish(&mut self) -> Result<()> {
        Ok(self.0.shutdown(Shutdown::Write)?)
    }

    /// The next message.
    ///
    /// # Errors
    /// When none comes within 20 s, or the connection ends.
    pub fn message(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 2];
        self.0.read_exact(&mut length)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        self.0.read_exact(&mut message)?;
        Ok(message)
    }

    /// The next message, or `None` when the server ends the connection instead, with FIN or RST.
    ///
    /// # Errors
    /// When neither comes within 20 s, or a message is cut.
    pub fn message_or_end(&mut self) -> Result<Option<Vec<u8>>> {
        let mut length = [0; 2];
        match self.0.read(&mut length[..1]) {
            Ok(0) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            other => other?,
        };
        self.0.read_exact(&mut length[1..])?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        self.0.read_exact(&mut message)?;
        Ok(Some(message))
    }

    /// Waits until the server ends the connection, with FIN or RST.
    ///
    /// # Errors
    /// When it does not within 20 s, or sends something.
    pub fn end(&mut self) -> Result<()> {
        match self.0.read(&mut [0]) {
            Ok(0) => Ok(()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
            Ok(_) => bail!("a byte came instead of the end"),
            Err(error) => Err(error).context("the end of the connection"),
        }
    }

    /// Asks and waits for the reply, whose id must be that of the query.
    ///
    /// # Errors
    /// As [`DnsStream::send`] and [`DnsStream::message`].
    pub fn ask(&mut self, message: &[u8]) -> Result<Vec<u8>> {
        self.send(&framed(message))?;
        let reply = self.message()?;
        ensure!(reply.get(..2) == message.get(..2), "the reply has another id");
        Ok(reply)
    }
}

/// A TCP client over IPv4 that exists only as frames.
#[derive(Clone, Debug)]
pub struct ByHand {
    /// MAC address of the port.
    pub port: [u8; 6],
    /// MAC address that the frames come from.
    pub mac: [u8; 6],
    /// VLAN tags, outermost first, as they stand in the frame.
    pub tags: Vec<u8>,
    /// Its address and port.
    pub client: (Ipv4Addr, u16),
    /// The service address.
    pub service: Ipv4Addr,
}

/// A segment that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number.
    pub sequence: u32,
    /// Flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16.
    pub flags: u8,
    /// Data.
    pub data: Vec<u8>,
}

impl ByHand {
    /// The frame of one segment, checksums right.
    pub fn frame(&self, sequence: u32, acknowledgment: u32, flags: u8, data: &[u8]) -> Vec<u8> {
        let total = u16::try_from(40 + data.len()).unwrap_or(u16::MAX);
        let (from, from_port) = self.client;
        let mut frame = [&self.port[..], &self.mac, &self.tags, &[8, 0]].concat();
        frame.extend(
            [
                &[0x45, 0],
                &total.to_be_bytes()[..],
                &[0, 0, 0x40, 0, 64, 6, 0, 0],
            ]
            .concat(),
        );
        frame.extend([from.octets(), self.service.octets()].concat());
        frame.extend([from_port.to_be_bytes(), [0, 53]].concat());
        frame.extend([sequence.to_be_bytes(), acknowledgment.to_be_bytes()].concat());
        frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend(data);
        let target = Target {
            mac: self.port,
            ipv4: self.service,
            ipv6: std::net::Ipv6Addr::UNSPECIFIED,
            client: std::net::Ipv6Addr::UNSPECIFIED,
        };
        capture::readdress(&mut frame, &target, Checksums::Right);
        frame
    }

    /// The segment in a frame, if it is for this client: right MAC addresses, tags, addresses, ports and checksums.
    pub fn read(&self, frame: &[u8]) -> Option<Segment> {
        let (ether_type, at) = capture::network(frame);
        let tags = frame.get(12..at.checked_sub(2)?)?;
        let packet = frame.get(at..)?;
        let (client, port) = self.client;
        let ours = ether_type == [8, 0]
            && packet.get(9) == Some(&6)
            && packet.get(12..16)? == self.service.octets()
            && packet.get(16..20)? == client.octets()
            && packet.get(22..24)? == port.to_be_bytes();
        if !ours {
            return None;
        }
        assert_eq!((&frame[..6], &frame[6..12]), (&self.mac[..], &self.port[..]));
        assert_eq!(tags, self.tags, "tags of a reply");
        assert!(capture::checksums_hold(frame), "{frame:x?}");
        let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        let offset = 20 + usize::from(packet[32] >> 4) * 4;
        Some(Segment {
            sequence: u32::from_be_bytes(packet.get(24..28)?.try_into().ok()?),
            flags: packet[33],
            data: packet.get(offset..total)?.to_vec(),
        })
    }
}
