//! A punted frame taken apart for the kernel's TCP, and a packet of the kernel's put into a frame: never beyond the
//! bytes, never a packet longer than its frame, and what is put together comes apart the same. Input: the frame.

use crate::{Runner, Target, seeds};
use control::tcp::frame;

pub(crate) const TARGET: Target = Target {
    name: "exception",
    runner,
    seeds: seeds::punted,
    bounded: 40_000,
    len_max: 1600,
};

fn runner() -> Runner {
    Box::new(|input| {
        // As from the kernel: any packet.
        let _ = frame::read_outbound(input);
        let Ok(inbound) = frame::read(input) else { return };
        let packet = inbound.packet;
        // The packet is a part of the frame, of the length that its header says, and of a protocol that passes.
        let range = input.as_ptr_range();
        assert!(range.contains(&packet.as_ptr()) && packet.as_ptr_range().end <= range.end);
        let len = match packet[0] >> 4 {
            6 => 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])),
            _ => usize::from(u16::from_be_bytes([packet[2], packet[3]])),
        };
        assert_eq!(len, packet.len(), "length of {input:02x?}");
        // A reply's frame carries the same tags, the addresses swapped.
        let back = inbound.link.frame(packet);
        let tags = back.len() - packet.len() - 2;
        assert_eq!(back[..6], input[6..12]);
        assert_eq!(back[6..12], input[..6]);
        assert_eq!(back[12..tags], input[12..tags]);
        let again = frame::read(&back).expect("what was read once is read again");
        assert_eq!((again.flow, again.packet), (inbound.flow, packet));
        assert_eq!(
            (again.link.ours, again.link.peer),
            (inbound.link.peer, inbound.link.ours)
        );
        if let (Some((sent, _)), Some(heard)) = (frame::read_outbound(packet), inbound.flow) {
            assert_eq!((sent.client, sent.service), (heard.service, heard.client));
        }
    })
}
