//! Capture files: read, addressed to the appliance, written, and what is in a frame.
//!
//! Called by the replay tests. Own parsing, on purpose: it judges what the data plane's parsers made.

use anyhow::{Context, Result, bail, ensure};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Global header of a pcap file, bytes.
const FILE_HEADER: usize = 24;
/// Header of each packet in it, bytes.
const PACKET_HEADER: usize = 16;
const ETHERTYPE_VLAN: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// The frames of an Ethernet pcap file (classic format, either byte order).
///
/// # Errors
/// When it cannot be read, is not such a file, or ends inside a packet.
pub fn read(path: &Path) -> Result<Vec<Vec<u8>>> {
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    parse(&bytes).with_context(|| format!("in {}", path.display()))
}

fn parse(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let header = bytes.get(..FILE_HEADER).context("shorter than a pcap header")?;
    // Magic numbers of microsecond and nanosecond files, as little and big endian writers leave them.
    let big = match header[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => false,
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => true,
        _ => bail!("not a pcap file"),
    };
    let word = |at: usize| -> Result<u32> {
        let raw = bytes
            .get(at..at + 4)
            .context("ends inside a packet header")?
            .try_into()?;
        Ok(if big {
            u32::from_be_bytes(raw)
        } else {
            u32::from_le_bytes(raw)
        })
    };
    ensure!(word(20)? == 1, "link type {} is not Ethernet", word(20)?);
    let (mut frames, mut at) = (Vec::new(), FILE_HEADER);
    while at < bytes.len() {
        let length = usize::try_from(word(at + 8)?)?;
        at += PACKET_HEADER;
        frames.push(
            bytes
                .get(at..at + length)
                .context("ends inside a packet")?
                .to_vec(),
        );
        at += length;
    }
    Ok(frames)
}

/// Writes frames as a pcap file; all timestamps are zero.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, frames: &[Vec<u8>]) -> Result<()> {
    let mut bytes = Vec::new();
    // Magic, version 2.4, zone, accuracy, snapshot length, Ethernet.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for frame in frames {
        let length = u32::try_from(frame.len())?;
        for word in [0, 0, length, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

/// Who the frames of a capture are to be for.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// MAC address of the port.
    pub mac: [u8; 6],
    /// Its IPv4 service address.
    pub ipv4: Ipv4Addr,
    /// Its IPv6 service address.
    pub ipv6: Ipv6Addr,
    /// Who asks in captures of a loopback interface, whose own source may not be answered.
    pub client: Ipv6Addr,
}

/// What to do about IPv4 header, TCP and UDP checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Made right, as the sender's hardware would have.
    Right,
    /// UDP checksums made wrong, all others right.
    WrongUdp,
}

/// Addresses a frame to `target`: destination MAC (a group address stays), IP destination, ARP
/// target, an IPv6 source of ::1; then the checksums. Everything else stays. Not an IP or ARP frame: only the MAC.
pub fn readdress(frame: &mut [u8], target: &Target, checksums: Checksums) {
    if frame.len() < 14 {
        return;
    }
    if frame[0] & 1 == 0 {
        frame[..6].copy_from_slice(&target.mac);
    }
    let (ethertype, at) = network(frame);
    let packet = &mut frame[at..];
    match ethertype {
        ETHERTYPE_ARP if packet.len() >= 28 => {
            // A reply also names the MAC that it is for.
            if packet[7] == 2 {
                packet[18..24].copy_from_slice(&target.mac);
            }
            packet[24..28].copy_from_slice(&target.ipv4.octets());
        }
        ETHERTYPE_IPV4 if packet.len() >= 20 => {
            packet[16..20].copy_from_slice(&target.ipv4.octets());
            ipv4_checksums(packet, checksums);
        }
        ETHERTYPE_IPV6 if packet.len() >= 40 => {
            if packet[8..24] == Ipv6Addr::LOCALHOST.octets() {
                packet[8..24].copy_from_slice(&target.client.octets());
            }
            packet[24..40].copy_from_slice(&target.ipv6.octets());
            let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            if packet.len() >= 40 + length {
                let pseudo = sum(&packet[8..40]) + u32::from(packet[6]) + u32_of(length);
                layer4(packet[6], &mut packet[40..40 + length], pseudo, checksums);
            }
        }
        _ => {}
    }
}

/// EtherType under the tags, and where its packet starts.
pub fn network(frame: &[u8]) -> ([u8; 2], usize) {
    let mut at = 12;
    while at + 6 <= frame.len() && ETHERTYPE_VLAN.contains(&[frame[at], frame[at + 1]]) {
        at += 4;
    }
    match frame.get(at..at + 2) {
        Some(&[high, low]) => ([high, low], at + 2),
        _ => ([0, 0], frame.len()),
    }
}

fn ipv4_checksums(packet: &mut [u8], checksums: Checksums) {
    let header = usize::from(packet[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    if header < 20 || total < header || packet.len() < total {
        return;
    }
    packet[10..12].fill(0);
    let checksum = !fold(sum(&packet[..header]));
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    // The checksum of a fragmented datagram covers what is not here.
    if u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff == 0 {
        let pseudo = sum(&packet[12..20]) + u32::from(packet[9]) + u32_of(total - header);
        layer4(packet[9], &mut packet[header..total], pseudo, checksums);
    }
}

fn layer4(protocol: u8, segment: &mut [u8], pseudo: u32, checksums: Checksums) {
    let (field, least) = match protocol {
        PROTOCOL_TCP => (16, 20),
        PROTOCOL_UDP => (6, 8),
        _ => return,
    };
    if segment.len() < least {
        return;
    }
    segment[field..field + 2].fill(0);
    let mut checksum = !fold(pseudo + sum(segment));
    if protocol == PROTOCOL_UDP && checksums == Checksums::WrongUdp {
        checksum ^= 0x0101;
    }
    // Zero means "none" in UDP, so a computed zero is sent as its other form (RFC 768).
    if protocol == PROTOCOL_UDP && checksum == 0 {
        checksum = 0xffff;
    }
    segment[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Sum of 16-bit words, an odd last byte padded (RFC 1071). Frames are short enough for 32 bits.
fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

fn u32_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// True when the IPv4 header and TCP, UDP, ICMP or ICMPv6 checksums of an unfragmented frame are right.
pub fn checksums_hold(frame: &[u8]) -> bool {
    let (ethertype, at) = network(frame);
    let packet = &frame[at..];
    let (protocol, segment, addresses) = match ethertype {
        ETHERTYPE_IPV4 if packet.len() >= 20 => {
            let header = usize::from(packet[0] & 15) * 4;
            let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            if header < 20 || total < header || packet.len() < total || fold(sum(&packet[..header])) != 0xffff
            {
                return false;
            }
            (packet[9], &packet[header..total], &packet[12..20])
        }
        ETHERTYPE_IPV6 if packet.len() >= 40 => {
            let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            let Some(segment) = packet[40..].get(..length) else {
                return false;
            };
            (packet[6], segment, &packet[8..40])
        }
        _ => return true,
    };
    // ICMP (1) has no pseudo-header; ICMPv6 (58) has.
    let pseudo = match protocol {
        1 => 0,
        PROTOCOL_TCP | PROTOCOL_UDP | 58 => sum(addresses) + u32::from(protocol) + u32_of(segment.len()),
        _ => return true,
    };
    // A UDP checksum of zero means none, over IPv4 alone.
    let none = protocol == PROTOCOL_UDP && segment.get(6..8) == Some(&[0, 0]);
    if none {
        ethertype == ETHERTYPE_IPV4
    } else {
        fold(pseudo + sum(segment)) == 0xffff
    }
}

/// The DNS message of a UDP frame from or to port 53, with its addresses and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsFrame {
    /// VLAN tags, as bytes.
    pub tags: Vec<u8>,
    /// Source address and port.
    pub from: (Vec<u8>, u16),
    /// Destination address and port.
    pub to: (Vec<u8>, u16),
    /// The message.
    pub message: Vec<u8>,
}

/// Reads a frame as DNS over UDP; `None` when it is not.
pub fn dns(frame: &[u8]) -> Option<DnsFrame> {
    let (ethertype, at) = network(frame);
    let packet = frame.get(at..)?;
    let (from, to, segment) = match ethertype {
        ETHERTYPE_IPV4 if packet.get(9) == Some(&PROTOCOL_UDP) => {
            let header = usize::from(packet[0] & 15) * 4;
            (packet.get(12..16)?, packet.get(16..20)?, packet.get(header..)?)
        }
        ETHERTYPE_IPV6 if packet.get(6) == Some(&PROTOCOL_UDP) => {
            (packet.get(8..24)?, packet.get(24..40)?, packet.get(40..)?)
        }
        _ => return None,
    };
    let word = |at: usize| Some(u16::from_be_bytes(segment.get(at..at + 2)?.try_into().ok()?));
    let (source, destination, length) = (word(0)?, word(2)?, usize::from(word(4)?));
    (source == 53 || destination == 53).then_some(())?;
    Some(DnsFrame {
        tags: frame.get(12..at - 2)?.to_vec(),
        from: (from.to_vec(), source),
        to: (to.to_vec(), destination),
        message: segment.get(8..length)?.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Target = Target {
        mac: [2, 0x70, 0x63, 0x61, 0x70, 0],
        ipv4: Ipv4Addr::new(192, 0, 2, 53),
        ipv6: Ipv6Addr::new(0x2001, 0xdb8, 0x53, 0, 0, 0, 0, 0x53),
        client: Ipv6Addr::new(0x2001, 0xdb8, 0x53, 0, 0, 0, 0, 0x10),
    };

    fn captures() -> Vec<(String, Vec<Vec<u8>>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures");
        let mut found: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
            .map(|path| {
                (
                    path.file_name().unwrap().to_string_lossy().into_owned(),
                    read(&path).unwrap(),
                )
            })
            .collect();
        found.sort();
        found
    }

    // IPv4 header of RFC 1071's usual worked example (source 192.168.0.1, checksum b861).
    #[test]
    fn the_checksum_is_that_of_the_worked_example() {
        let mut header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7,
        ];
        assert_eq!(!fold(sum(&header)), 0xb861);
        header[10..12].copy_from_slice(&[0xb8, 0x61]);
        assert_eq!(fold(sum(&header)), 0xffff);
    }

    // Counted with tcpdump -r FILE | wc -l.
    #[test]
    fn every_capture_has_its_frames() {
        let counts: Vec<_> = captures().iter().map(|(_, frames)| frames.len()).collect();
        assert_eq!(counts, [133, 89, 1, 2, 1, 10, 42, 2, 14]);
    }

    #[test]
    fn frames_come_out_addressed_to_the_target_with_right_checksums() {
        for (name, frames) in captures() {
            for (at, original) in frames.iter().enumerate() {
                let mut frame = original.clone();
                readdress(&mut frame, &TARGET, Checksums::Right);
                assert_eq!(frame.len(), original.len());
                let (ethertype, start) = network(&frame);
                let packet = &frame[start..];
                let to: (&[u8], &[u8]) = match ethertype {
                    ETHERTYPE_ARP => (&packet[24..28], &TARGET.ipv4.octets()),
                    ETHERTYPE_IPV4 => (&packet[16..20], &TARGET.ipv4.octets()),
                    _ => (&packet[24..40], &TARGET.ipv6.octets()),
                };
                assert!(ethertype != ETHERTYPE_IPV6 || packet[8..24] != Ipv6Addr::LOCALHOST.octets());
                assert_eq!(to.0, to.1, "{name} {at}");
                assert!(frame[..6] == TARGET.mac || frame[0] & 1 == 1, "{name} {at}");
                let fragment = ethertype == ETHERTYPE_IPV4 && (packet[6] & 0x3f != 0 || packet[7] != 0);
                assert!(fragment || checksums_hold(&frame), "{name} {at}");
                if let (Some(before), Some(after)) = (dns(original), dns(&frame)) {
                    assert_eq!(
                        (before.message, before.tags),
                        (after.message, after.tags),
                        "{name} {at}"
                    );
                    readdress(&mut frame, &TARGET, Checksums::WrongUdp);
                    assert!(fragment || !checksums_hold(&frame), "{name} {at}");
                }
            }
        }
    }

    #[test]
    fn written_files_read_back_and_broken_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcap");
        let frames = vec![vec![1; 60], vec![2; 1514]];
        write(&path, &frames).unwrap();
        assert_eq!(read(&path).unwrap(), frames);
        let bytes = std::fs::read(&path).unwrap();
        for cut in [0, 10, 30, bytes.len() - 1] {
            assert!(parse(&bytes[..cut]).is_err(), "{cut}");
        }
        assert!(parse(&[0; 64]).is_err());
    }
}
