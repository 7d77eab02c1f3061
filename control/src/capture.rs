//! Capture files: pcap and pcapng, frame by frame, whatever their link type, as Ethernet frames in a window.
//!
//! Called by `windrose latency --pcap`. The formats are read by the crate pcap-parser.

use anyhow::{Context, Result, bail};
use dataplane::io::{WINDOW, Window};
use dataplane::wire::eth;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use std::fs::File;
use std::path::Path;

/// A frame is larger than this in no capture that can be read.
const FRAME_MAX: usize = 1 << 20;
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// One frame: its first bytes, as many as fit a window.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    /// Nanoseconds since 1970.
    pub(crate) at: u64,
    /// The bytes, an Ethernet frame.
    pub(crate) window: &'a Window,
    /// How many of them were captured and fit.
    pub(crate) len: usize,
}

/// An interface of a capture.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Units of a second in its stamps, and seconds to add.
    resolution: u64,
    offset: i64,
}

/// Hands every frame of a capture to `each`, in file order. Frames of link types that are not known are passed over; gives how many.
///
/// # Errors
/// A file that cannot be read, or is no capture.
pub(crate) fn read(path: &Path, mut each: impl FnMut(Frame<'_>)) -> Result<u64> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let mut reader = match create_reader(FRAME_MAX, file) {
        Ok(reader) => reader,
        Err(_) => bail!("{shown} is neither a pcap nor a pcapng file"),
    };
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut window = Box::new([0; WINDOW]);
    let mut unknown = 0;
    let mut take = |interface: Option<&Interface>, at: u64, data: &[u8]| match interface
        .and_then(|interface| fill(&mut window, interface.link, data))
    {
        Some(len) => each(Frame {
            at,
            window: &window,
            len,
        }),
        None => unknown += 1,
    };
    loop {
        match reader.next() {
            Ok((consumed, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(header) => {
                        let resolution = if header.is_nanosecond_precision() {
                            SECOND
                        } else {
                            1_000_000
                        };
                        interfaces = vec![Interface {
                            link: header.network,
                            resolution,
                            offset: 0,
                        }];
                    }
                    PcapBlockOwned::Legacy(packet) => {
                        let interface = interfaces.first();
                        let unit = SECOND / interface.map_or(1_000_000, |i| i.resolution);
                        let at = u64::from(packet.ts_sec) * SECOND + u64::from(packet.ts_usec) * unit;
                        take(interface, at, packet.data);
                    }
                    PcapBlockOwned::NG(Block::SectionHeader(_)) => interfaces.clear(),
                    PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
                        interfaces.push(Interface {
                            link: description.linktype,
                            resolution: description.ts_resolution().unwrap_or(1_000_000).max(1),
                            offset: description.if_tsoffset,
                        })
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        let interface = interfaces.get(packet.if_id as usize);
                        let stamp = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                        let at = interface.map_or(0, |i| nanos(stamp, i));
                        let len = packet.data.len().min(packet.caplen as usize);
                        take(interface, at, &packet.data[..len]);
                    }
                    PcapBlockOwned::NG(_) => {}
                }
                reader.consume(consumed);
            }
            Err(PcapError::Eof) => return Ok(unknown),
            Err(PcapError::Incomplete(_)) => {
                reader
                    .refill()
                    .map_err(|error| anyhow::anyhow!("cannot read {shown}: {error:?}"))?;
                if reader.reader_exhausted() && reader.data().is_empty() {
                    return Ok(unknown);
                }
                if reader.reader_exhausted() {
                    bail!("{shown} ends inside a packet");
                }
            }
            Err(error) => bail!("{shown} is damaged: {error:?}"),
        }
    }
}

/// A stamp of pcapng in nanoseconds.
fn nanos(stamp: u64, interface: &Interface) -> u64 {
    let nanos = u128::from(stamp) * u128::from(SECOND) / u128::from(interface.resolution);
    (nanos as u64).saturating_add_signed(interface.offset.saturating_mul(SECOND as i64))
}

/// Puts a frame into the window, an Ethernet header before it where it has none; its length.
fn fill(window: &mut Window, link: Linktype, data: &[u8]) -> Option<usize> {
    // Where the packet begins, and where its EtherType stands.
    let (start, ether_type) = match link {
        Linktype::ETHERNET => {
            let len = data.len().min(WINDOW);
            window[..len].copy_from_slice(&data[..len]);
            return Some(len);
        }
        // Linux "any" interface, both forms.
        Linktype::LINUX_SLL => (16, *data.get(14..)?.first_chunk()?),
        Linktype::LINUX_SLL2 => (20, *data.first_chunk()?),
        // Bare IP; a word of the address family before it.
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 | Linktype(12) => (0, version(data)?),
        Linktype::NULL | Linktype::LOOP => (4, version(data.get(4..)?)?),
        _ => return None,
    };
    let packet = data.get(start..)?;
    let len = packet.len().min(WINDOW - eth::HEADER_LEN);
    window[..eth::HEADER_LEN].fill(0);
    window[eth::HEADER_LEN - 2..eth::HEADER_LEN].copy_from_slice(&ether_type);
    window[eth::HEADER_LEN..eth::HEADER_LEN + len].copy_from_slice(&packet[..len]);
    Some(eth::HEADER_LEN + len)
}

/// The EtherType of an IP packet.
fn version(packet: &[u8]) -> Option<[u8; 2]> {
    match packet.first()? >> 4 {
        4 => Some(eth::ETHER_TYPE_IPV4.to_be_bytes()),
        6 => Some(eth::ETHER_TYPE_IPV6.to_be_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>)>> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), bytes)?;
        let mut got = Vec::new();
        read(file.path(), |frame| {
            got.push((frame.at, frame.window[..frame.len].to_vec()))
        })?;
        Ok(got)
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// pcap (draft-ietf-opsawg-pcap section 4): the magic number tells the unit of stamps.
    #[test]
    fn pcap_with_both_units_and_link_types() {
        let bare = [0x45, 0, 0, 20];
        for (magic, nanos) in [
            (0xa1b2_c3d4u32, 5_000_000_007_000),
            (0xa1b2_3c4d, 5_000_000_000_007),
        ] {
            let mut file = words(&[magic, 0x0004_0002, 0, 0, 65_535, 101, 5000, 7, 4, 60]);
            file.extend(bare);
            let want = [&[0; 12][..], &[8, 0], &bare].concat();
            assert_eq!(frames(&file).unwrap(), [(nanos, want)]);
        }
        let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1, 1, 0, 2, 2]);
        file.extend([1, 2]);
        assert_eq!(frames(&file).unwrap(), [(1_000_000_000, vec![1, 2])]);
        file.pop();
        assert!(
            frames(&file)
                .unwrap_err()
                .to_string()
                .contains("ends inside a packet")
        );
        assert!(frames(b"not a capture at all, but text").is_err());
        assert!(frames(b"").is_err());
    }

    /// pcapng (draft-ietf-opsawg-pcapng section 4): a section, an interface with stamps of nanoseconds, a packet.
    #[test]
    fn pcapng_with_the_interface_s_resolution() {
        let mut file = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
        // Link type 1, snapshot length, option 9 (if_tsresol) of one byte: 10^-9; end of options.
        file.extend(words(&[1, 32, 1, 65_535, 0x0001_0009, 9, 0, 32]));
        // 2^32 + 5 ns; three bytes and a fourth to fill the word.
        file.extend(words(&[6, 36, 0, 1, 5, 3, 3]));
        file.extend([7, 8, 9, 0]);
        file.extend(words(&[36]));
        assert_eq!(frames(&file).unwrap(), [((1 << 32) + 5, vec![7, 8, 9])]);
    }
}
