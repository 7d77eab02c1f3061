//! Messages out of a byte stream: two bytes of length, then the message (RFC 1035 section 4.2.2), however the
//! stream is cut into segments. Called by `connection`.

/// Shortest message that is read: the DNS header.
const MESSAGE_MIN: usize = dataplane::wire::dns::HEADER_LEN;

/// Bytes received and not yet taken.
#[derive(Debug, Default)]
pub struct Framer {
    bytes: Vec<u8>,
    /// Where the next message's length stands.
    at: usize,
}

/// A length that no DNS message has: below its header's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength;

impl Framer {
    /// Where received bytes are appended. Bounded by who reads: one read for each time that [`Framer::next_message`]
    /// found no whole message.
    pub fn input(&mut self) -> &mut Vec<u8> {
        // What was taken makes room first; with nothing left a large buffer is given back.
        self.bytes.drain(..self.at);
        self.at = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(1024);
        }
        &mut self.bytes
    }

    /// The next whole message.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, BadLength> {
        let rest = &self.bytes[self.at..];
        let Some((&[a, b], rest)) = rest.split_first_chunk() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_be_bytes([a, b]));
        if len < MESSAGE_MIN {
            return Err(BadLength);
        }
        let Some(message) = rest.get(..len) else {
            return Ok(None);
        };
        self.at += 2 + len;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(fill: u8, len: usize) -> Vec<u8> {
        [&(len as u16).to_be_bytes()[..], &vec![fill; len]].concat()
    }

    /// All messages that come out when the stream arrives in `parts`.
    fn taken<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
        let (mut framer, mut out) = (Framer::default(), Vec::new());
        for part in parts {
            framer.input().extend(part);
            while let Some(message) = framer.next_message().unwrap() {
                out.push(message.to_vec());
            }
        }
        assert!(framer.input().is_empty());
        out
    }

    #[test]
    fn messages_are_found_however_the_stream_is_cut() {
        let wanted = [vec![1; 12], vec![2; 300], vec![3; 65535], vec![4; 13]];
        let stream: Vec<u8> = [message(1, 12), message(2, 300), message(3, 65535), message(4, 13)].concat();
        assert_eq!(taken([&stream[..]]), wanted);
        for size in [1, 2, 3, 7, 1000, 40000] {
            assert_eq!(taken(stream.chunks(size)), wanted, "in parts of {size}");
        }
        // Split once at every place around the first two messages and their lengths.
        for cut in 0..=320 {
            assert_eq!(taken([&stream[..cut], &stream[cut..]]), wanted, "cut at {cut}");
        }
    }

    #[test]
    fn a_length_below_the_header_is_refused() {
        for len in 0..12u16 {
            let mut framer = Framer::default();
            framer.input().extend(len.to_be_bytes());
            assert_eq!(framer.next_message(), Err(BadLength), "{len}");
        }
        let mut framer = Framer::default();
        framer.input().extend(12u16.to_be_bytes());
        assert_eq!(framer.next_message(), Ok(None));
    }

    #[test]
    fn a_long_message_leaves_no_large_buffer_behind() {
        let mut framer = Framer::default();
        framer.input().extend(message(1, 65535));
        assert!(framer.next_message().unwrap().is_some());
        assert!(framer.input().capacity() <= 1024);
    }
}
