//! Raw Ethernet frames on an interface of a namespace: what no kernel client sends (VLAN tags, bad frames).
//!
//! Called by tests. Owns one AF_PACKET socket, opened inside the namespace on a thread of its own, so
//! that the caller's namespace stays what it was.

// AF_PACKET addresses have no safe constructor in the standard library or nix.
#![allow(unsafe_code)]

use crate::lab::Host;
use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Longest frame that is received, bytes.
const FRAME_MAX: usize = 9216;

/// A socket that sends and receives whole frames of one interface.
#[derive(Debug)]
pub struct RawSocket {
    socket: OwnedFd,
}

impl RawSocket {
    /// Opens one on `interface` of `host`.
    ///
    /// # Errors
    /// Without privilege, or when there is no such interface.
    pub fn open(host: &Host, interface: &str) -> Result<Self> {
        let netns = format!("/run/netns/{}", host.name());
        let (host, interface) = (host.name().to_owned(), interface.to_owned());
        let opened = std::thread::spawn(move || -> Result<OwnedFd> {
            setns(File::open(&netns)?, CloneFlags::CLONE_NEWNET)?;
            open(&interface)
        });
        let Ok(socket) = opened.join() else {
            bail!("the thread that opens a raw socket panicked")
        };
        let socket = socket.with_context(|| format!("raw socket on the lab's interface in {host}"))?;
        Ok(Self { socket })
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        // SAFETY: the pointer and length are of one live slice; the descriptor is ours and open.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if usize::try_from(sent).ok() != Some(frame.len()) {
            return Err(io::Error::last_os_error()).context("send a frame");
        }
        Ok(())
    }

    /// The next received frame that `accept` takes, VLAN tag included; others are skipped.
    ///
    /// # Errors
    /// When none has come after `timeout`.
    pub fn receive(&self, timeout: Duration, mut accept: impl FnMut(&[u8]) -> bool) -> Result<Vec<u8>> {
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if let Some(frame) = self.poll()?
                && accept(&frame)
            {
                return Ok(frame);
            }
        }
        bail!("no such frame within {timeout:?}")
    }

    /// One frame, if any comes within the socket's receive timeout. The kernel strips the outer tag
    /// from the data and passes it as ancillary data (`tpacket_auxdata`); here it is put back.
    fn poll(&self) -> Result<Option<Vec<u8>>> {
        let mut frame = vec![0u8; FRAME_MAX];
        let mut control = [0u64; 16];
        let mut iov = libc::iovec {
            iov_base: frame.as_mut_ptr().cast(),
            iov_len: frame.len(),
        };
        // SAFETY: msghdr is plain old data for which all zeroes is a valid value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: message points to the live buffers above, with their lengths.
        let got = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
        let Ok(len) = usize::try_from(got) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error).context("receive a frame"),
            };
        };
        frame.truncate(len);
        // SAFETY: message was filled in by recvmsg; its control buffer is live and aligned to 8 bytes.
        let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        while !header.is_null() {
            // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return null or a header inside the control buffer.
            let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
            if level == libc::SOL_PACKET && kind == libc::PACKET_AUXDATA {
                // SAFETY: a PACKET_AUXDATA message carries one tpacket_auxdata, plain integers.
                let aux: libc::tpacket_auxdata = unsafe {
                    libc::CMSG_DATA(header)
                        .cast::<libc::tpacket_auxdata>()
                        .read_unaligned()
                };
                if aux.tp_status & libc::TP_STATUS_VLAN_VALID != 0 && len >= 12 {
                    let tag = [aux.tp_vlan_tpid.to_be_bytes(), aux.tp_vlan_tci.to_be_bytes()].concat();
                    frame.splice(12..12, tag);
                }
            }
            // SAFETY: header is one that CMSG_FIRSTHDR or CMSG_NXTHDR returned for this message.
            header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
        }
        Ok(Some(frame))
    }
}

/// A socket bound to `interface` of the calling thread's namespace; 50 ms receive timeout.
fn open(interface: &str) -> Result<OwnedFd> {
    let index = nix::net::if_::if_nametoindex(interface).with_context(|| format!("interface {interface}"))?;
    let protocol = u16::try_from(libc::ETH_P_ALL)?.to_be();
    let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; the result is checked before it is owned.
    let fd = unsafe { libc::socket(libc::AF_PACKET, flags, i32::from(protocol)) };
    if fd < 0 {
        return Err(io::Error::last_os_error()).context("AF_PACKET socket");
    }
    // SAFETY: fd is a fresh descriptor that nothing else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: sockaddr_ll is plain old data for which all zeroes is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET)?;
    address.sll_protocol = protocol;
    address.sll_ifindex = i32::try_from(index)?;
    let length = u32::try_from(size_of_val(&address))?;
    // SAFETY: address is a live sockaddr_ll of that length.
    let bound = unsafe { libc::bind(fd, (&raw const address).cast(), length) };
    if bound != 0 {
        return Err(io::Error::last_os_error()).context("bind an AF_PACKET socket");
    }
    let timeout = libc::timeval {
        tv_sec: 0,
        tv_usec: 50_000,
    };
    let one: libc::c_int = 1;
    option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)?;
    option(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, &one)?;
    // Not our own frames: only what comes in.
    option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &one)?;
    Ok(socket)
}

/// setsockopt with a plain value.
fn option<T>(fd: i32, level: i32, name: i32, value: &T) -> Result<()> {
    let length = u32::try_from(size_of::<T>())?;
    // SAFETY: value is live and of that length; the kernel only reads it.
    let done = unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), length) };
    if done != 0 {
        return Err(io::Error::last_os_error()).context("setsockopt");
    }
    Ok(())
}
