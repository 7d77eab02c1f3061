//! DNS over a UDP socket of the kernel, and over TCP, as one thing to ask: whether a message is answered, told without waiting.
//!
//! Called by the matrix and the comparison with other servers. Owns one socket, opened inside a namespace on a
//! thread of its own.

use crate::lab::Host;
use crate::message::{Query, rtype};
use crate::stream::{DnsStream, framed, inside};
use anyhow::{Context, Result, ensure};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Ample for anything that is going to happen at all.
const LONG: Duration = Duration::from_secs(10);
/// Id of the question behind each message, which no other message has.
pub const SENTINEL: u16 = 0xffff;

/// What came for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// One reply.
    Reply(Vec<u8>),
    /// Nothing, though what was sent behind it was answered.
    Nothing,
    /// The end of the TCP connection.
    End,
    /// One reply, then the end of the TCP connection.
    Last(Vec<u8>),
}

/// A connected UDP socket.
#[derive(Debug)]
pub struct DnsSocket(UdpSocket);

impl DnsSocket {
    /// Opens one inside `host`, from `local`, to port 53 of `server`.
    ///
    /// # Errors
    /// When there is no such namespace, address or route.
    pub fn open(host: &Host, local: IpAddr, server: IpAddr) -> Result<Self> {
        let socket = inside(host, move || {
            let socket = UdpSocket::bind(SocketAddr::new(local, 0))?;
            socket.connect(SocketAddr::new(server, 53))?;
            Ok(socket)
        });
        let socket = socket.with_context(|| format!("socket to {server} in {}", host.name()))?;
        socket.set_read_timeout(Some(LONG))?;
        Ok(Self(socket))
    }

    /// Sends one message.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        self.0.send(message)?;
        Ok(())
    }

    /// The next message.
    ///
    /// # Errors
    /// When none comes within 10 s.
    pub fn receive(&self) -> Result<Vec<u8>> {
        let mut buffer = vec![0; 65_536];
        let length = self.0.recv(&mut buffer).context("no datagram came")?;
        buffer.truncate(length);
        Ok(buffer)
    }
}

/// The ways to ask one server.
#[derive(Debug)]
pub enum Way {
    /// UDP.
    Udp(DnsSocket),
    /// TCP: one connection, made anew when it has ended.
    Tcp {
        /// Whose.
        host: Host,
        /// The server.
        server: IpAddr,
        /// The connection.
        stream: Option<DnsStream>,
        /// The question that is sent behind each message.
        behind: Vec<u8>,
    },
}

/// A server, and a question that it answers.
#[derive(Debug)]
pub struct Asker {
    way: Way,
    sentinel: Vec<u8>,
}

impl Asker {
    /// Asks over UDP from `local`; `known` is a name that the server answers for.
    ///
    /// # Errors
    /// As [`DnsSocket::open`].
    pub fn udp(host: &Host, local: IpAddr, server: IpAddr, known: &str) -> Result<Self> {
        let way = Way::Udp(DnsSocket::open(host, local, server)?);
        let sentinel = Query::new(known, rtype::SOA).message(SENTINEL);
        Ok(Self { way, sentinel })
    }

    /// Asks over TCP.
    pub fn tcp(host: &Host, server: IpAddr, known: &str) -> Self {
        let sentinel = Query::new(known, rtype::SOA).message(SENTINEL);
        let way = Way::Tcp {
            host: host.clone(),
            server,
            stream: None,
            behind: framed(&sentinel),
        };
        Self { way, sentinel }
    }

    /// Sends a message and, behind it, a question of which the server's answer is sure. What has not come before that
    /// answer will not come: the way keeps the order.
    ///
    /// # Errors
    /// When the second gets no answer, or the first several.
    pub fn ask(&mut self, message: &[u8]) -> Result<Came> {
        let mut came = Came::Nothing;
        match &mut self.way {
            Way::Udp(socket) => {
                socket.send(message)?;
                socket.send(&self.sentinel)?;
                loop {
                    let got = socket.receive()?;
                    if got.get(..2) == Some(&SENTINEL.to_be_bytes()) {
                        return Ok(came);
                    }
                    ensure!(came == Came::Nothing, "a second reply");
                    came = Came::Reply(got);
                }
            }
            Way::Tcp {
                host,
                server,
                stream: slot,
                behind,
            } => {
                let stream = match slot {
                    Some(stream) => stream,
                    None => slot.insert(DnsStream::connect(host, *server)?),
                };
                // A server that ends the connection may do so before all is sent.
                let sent = stream.send(&[&framed(message)[..], behind].concat());
                loop {
                    match stream.message_or_end()? {
                        None => {
                            *slot = None;
                            return Ok(match came {
                                Came::Reply(got) => Came::Last(got),
                                _ => Came::End,
                            });
                        }
                        Some(got) if got.get(..2) == Some(&SENTINEL.to_be_bytes()) => {
                            sent?;
                            return Ok(came);
                        }
                        Some(got) => {
                            ensure!(came == Came::Nothing, "a second reply");
                            came = Came::Reply(got);
                        }
                    }
                }
            }
        }
    }
}
