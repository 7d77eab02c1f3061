//! One packet buffer of DPDK, owned. Made by receive and alloc, gone by drop or transmit.
//!
//! Invariant, set up by [`Mbuf::adopt`] and kept by all else: the mbuf is ours alone, and its data
//! offset leaves a whole window before the buffer's end.

use crate::io::{Buffer, ChecksumOffload, Shape, WINDOW, Window};
use core::fmt;
use core::ptr::NonNull;
use dpdk_sys as sys;

/// The flags that say how the buffer is freed. All others are of one reception only.
const KEPT_FLAGS: u64 = sys::RTE_MBUF_F_EXTERNAL | sys::RTE_MBUF_F_INDIRECT;
const STRIPPED: u64 = sys::RTE_MBUF_F_RX_VLAN_STRIPPED | sys::RTE_MBUF_F_RX_QINQ_STRIPPED;
/// Bytes of a VLAN tag.
const TAG: usize = 4;
/// Bytes of the two MAC addresses, which stand before the tags.
const ADDRESSES: usize = 12;

/// A packet buffer: one word, not copied, freed to its pool on drop.
#[repr(transparent)]
pub struct Mbuf(NonNull<sys::rte_mbuf>);

// SAFETY: an mbuf has no tie to a thread, and pools take frees from any.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// A fresh buffer of this pool, length 0.
    ///
    /// # Safety
    /// `pool` is a live pool of [`super::Mempool`].
    #[inline]
    pub(super) unsafe fn alloc(pool: *mut sys::rte_mempool) -> Option<Mbuf> {
        // SAFETY: the caller's word. A fresh mbuf is reset: one segment, default headroom, no flag;
        // the pool's data room fits a window behind it.
        NonNull::new(unsafe { sys::shim_pktmbuf_alloc(pool) }).map(Mbuf)
    }

    /// Makes a received mbuf fit the invariant: stripped VLAN tags go back into the data, and
    /// nothing of its reception stays. False if it cannot: then it may only be dropped.
    ///
    /// The layer lengths for checksums stay as they are: they lie in a line that need not be
    /// touched, drivers look at them by flag only, and `request_checksum` writes all of them.
    #[inline]
    pub(super) fn adopt(&mut self) -> bool {
        let raw = self.raw_mut();
        let flags = raw.ol_flags;
        raw.ol_flags = flags & KEPT_FLAGS;
        let mut usable = usize::from(raw.data_off) + WINDOW <= usize::from(raw.buf_len);
        if flags & STRIPPED != 0 {
            usable &= self.restore_tags(flags);
        }
        let raw = self.raw_mut();
        raw.vlan_tci = 0;
        raw.vlan_tci_outer = 0;
        usable
    }

    /// Puts the tags that the port took out back behind the addresses.
    #[cold]
    fn restore_tags(&mut self, flags: u64) -> bool {
        let raw = self.raw_mut();
        let mut tags = [0; 2 * TAG];
        let mut len = 0;
        // The outer one first. Its TPID is not told; IEEE 802.1ad's is what it should have been.
        if flags & sys::RTE_MBUF_F_RX_QINQ_STRIPPED != 0 {
            tags[..2].copy_from_slice(&0x88a8u16.to_be_bytes());
            tags[2..4].copy_from_slice(&raw.vlan_tci_outer.to_be_bytes());
            len = TAG;
        }
        if flags & sys::RTE_MBUF_F_RX_VLAN_STRIPPED != 0 {
            tags[len..len + 2].copy_from_slice(&0x8100u16.to_be_bytes());
            tags[len + 2..len + 4].copy_from_slice(&raw.vlan_tci.to_be_bytes());
            len += TAG;
        }
        let offset = usize::from(raw.data_off);
        if offset < len
            || usize::from(raw.data_len) < ADDRESSES
            || offset + ADDRESSES > usize::from(raw.buf_len)
        {
            return false;
        }
        // SAFETY: the buffer is ours and has `buf_len` bytes; [offset - len, offset + ADDRESSES) lies
        // in it by the test above. `copy` allows overlap.
        unsafe {
            let data = raw.buf_addr.cast::<u8>().add(offset);
            let start = data.sub(len);
            core::ptr::copy(data, start, ADDRESSES);
            core::ptr::copy_nonoverlapping(tags.as_ptr(), start.add(ADDRESSES), len);
        }
        raw.data_off -= len as u16;
        raw.data_len += len as u16;
        raw.pkt_len += len as u32;
        true
    }

    /// The frame: the bytes up to its length, or the window if it is longer.
    pub fn frame(&self) -> &[u8] {
        let len = self.len().min(usize::from(self.raw().data_len)).min(WINDOW);
        // SAFETY: as in `window`; `len` bytes of it.
        unsafe { core::slice::from_raw_parts(self.data(), len) }
    }

    #[inline(always)]
    fn raw(&self) -> &sys::rte_mbuf {
        // SAFETY: the mbuf is ours and valid until dropped.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    fn raw_mut(&mut self) -> &mut sys::rte_mbuf {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { self.0.as_mut() }
    }

    #[inline(always)]
    fn data(&self) -> *mut u8 {
        // SAFETY: the data offset lies in the buffer.
        unsafe {
            self.raw()
                .buf_addr
                .cast::<u8>()
                .add(usize::from(self.raw().data_off))
        }
    }

    /// Frees all segments but the first.
    #[cold]
    fn cut_chain(&mut self) {
        let raw = self.raw_mut();
        let rest = core::mem::replace(&mut raw.next, core::ptr::null_mut());
        raw.nb_segs = 1;
        if !rest.is_null() {
            // SAFETY: the rest of the chain was ours by the first segment and is linked no more.
            unsafe { sys::shim_pktmbuf_free(rest) };
        }
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the mbuf, with its segments, is ours; this is the last use.
        unsafe { sys::shim_pktmbuf_free(self.0.as_ptr()) };
    }
}

impl Buffer for Mbuf {
    #[inline(always)]
    fn window(&mut self) -> &mut Window {
        // SAFETY: by the type's invariant WINDOW bytes follow; they are ours and were initialised
        // when the pool's memory was mapped.
        unsafe { &mut *self.data().cast::<Window>() }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.raw().pkt_len as usize
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        if self.raw().nb_segs != 1 {
            self.cut_chain();
        }
        let len = len.min(WINDOW) as u16;
        let raw = self.raw_mut();
        raw.data_len = len;
        raw.pkt_len = u32::from(len);
    }

    #[inline(always)]
    fn shape(&self) -> Shape {
        let raw = self.raw();
        if raw.nb_segs == 1 && usize::from(raw.data_len) <= WINDOW {
            Shape::Whole
        } else if raw.nb_segs == 1 {
            Shape::Oversized
        } else {
            Shape::MultiSegment
        }
    }

    #[inline]
    fn request_checksum(&mut self, offload: ChecksumOffload) {
        let family = if offload.ipv4 {
            sys::RTE_MBUF_F_TX_IPV4 | sys::RTE_MBUF_F_TX_IP_CKSUM
        } else {
            sys::RTE_MBUF_F_TX_IPV6
        };
        let raw = self.raw_mut();
        raw.ol_flags = raw.ol_flags & KEPT_FLAGS | family | sys::RTE_MBUF_F_TX_UDP_CKSUM;
        // Seven bits and nine; all other fields zero.
        raw.tx_offload = u64::from(offload.l2_len & 0x7f) | u64::from(offload.l3_len & 0x1ff) << 7;
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mbuf")
            .field("len", &self.len())
            .field("shape", &self.shape())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::ManuallyDrop;

    /// An mbuf in plain memory with a buffer of 2304 bytes, as a driver could deliver it. Never freed
    /// to a pool.
    struct Fake {
        mbuf: Box<core::mem::MaybeUninit<sys::rte_mbuf>>,
        room: Box<[u8; 2304]>,
    }

    impl Fake {
        fn new(offset: u16, frame: &[u8]) -> Fake {
            let mut fake = Fake {
                mbuf: Box::new(core::mem::MaybeUninit::zeroed()),
                room: Box::new([0xcc; 2304]),
            };
            let at = usize::from(offset);
            fake.room[at..at + frame.len()].copy_from_slice(frame);
            let buf_addr = fake.room.as_mut_ptr().cast();
            // SAFETY: an mbuf of zeros is a valid one: integers and null pointers.
            let raw = unsafe { fake.mbuf.assume_init_mut() };
            (raw.buf_addr, raw.buf_len, raw.data_off) = (buf_addr, 2304, offset);
            (raw.nb_segs, raw.refcnt) = (1, 1);
            (raw.data_len, raw.pkt_len) = (frame.len() as u16, frame.len() as u32);
            fake
        }

        fn raw(&mut self) -> &mut sys::rte_mbuf {
            // SAFETY: initialised in `new`.
            unsafe { self.mbuf.assume_init_mut() }
        }

        fn mbuf(&mut self) -> ManuallyDrop<Mbuf> {
            ManuallyDrop::new(Mbuf(NonNull::from(self.raw())))
        }
    }

    const FRAME: &[u8] = b"ddddddssssss\x08\x00payload";

    #[test]
    fn a_stripped_tag_comes_back_and_no_metadata_stays() {
        let mut fake = Fake::new(128, FRAME);
        // Besides: receive checksums good, RSS hash, flow mark (bits 7, 1, 2), and a stale outer tag.
        (fake.raw().ol_flags, fake.raw().vlan_tci) = (1 << 6 | 1 | 1 << 7 | 1 << 1 | 1 << 2, 0x6064);
        fake.raw().vlan_tci_outer = 0xffff;
        let mut mbuf = fake.mbuf();
        assert!(mbuf.adopt());
        assert_eq!(mbuf.frame(), b"ddddddssssss\x81\x00\x60\x64\x08\x00payload");
        assert_eq!(mbuf.len(), FRAME.len() + 4);
        let raw = mbuf.raw();
        assert_eq!((raw.ol_flags, raw.vlan_tci, raw.vlan_tci_outer), (0, 0, 0));
    }

    #[test]
    fn two_stripped_tags_come_back_outer_first() {
        let mut fake = Fake::new(128, FRAME);
        fake.raw().ol_flags = 1 << 6 | 1 << 15 | 1 | 1 << 20 | 1 << 61;
        (fake.raw().vlan_tci_outer, fake.raw().vlan_tci) = (7, 9);
        let mut mbuf = fake.mbuf();
        assert!(mbuf.adopt());
        assert_eq!(
            mbuf.frame(),
            b"ddddddssssss\x88\xa8\x00\x07\x81\x00\x00\x09\x08\x00payload"
        );
        // How the buffer is freed is no metadata of the packet.
        assert_eq!(mbuf.raw().ol_flags, 1 << 61);
    }

    #[test]
    fn a_tag_flag_without_strip_means_the_tag_is_in_the_data() {
        let mut fake = Fake::new(128, FRAME);
        (fake.raw().ol_flags, fake.raw().vlan_tci) = (1, 5);
        let mut mbuf = fake.mbuf();
        assert!(mbuf.adopt());
        assert_eq!(mbuf.frame(), FRAME);
        assert_eq!(mbuf.raw().vlan_tci, 0);
    }

    #[test]
    fn without_room_for_tag_or_window_it_is_not_used() {
        let mut no_headroom = Fake::new(2, FRAME);
        no_headroom.raw().ol_flags = 1 << 6 | 1;
        assert!(!no_headroom.mbuf().adopt());
        let mut runt = Fake::new(128, b"ddddddsssss");
        runt.raw().ol_flags = 1 << 6 | 1;
        assert!(!runt.mbuf().adopt());
        assert!(!Fake::new(257, FRAME).mbuf().adopt());
        let mut last = Fake::new(256, FRAME);
        assert!(last.mbuf().adopt());
        last.mbuf().window()[2047] = 1;
        assert_eq!(last.room[2303], 1);
    }

    #[test]
    fn shape_and_length() {
        let mut fake = Fake::new(128, &[1; 2048]);
        assert_eq!(fake.mbuf().shape(), Shape::Whole);
        let mut fake = Fake::new(128, &[1; 2049]);
        assert_eq!((fake.mbuf().shape(), fake.mbuf().len()), (Shape::Oversized, 2049));
        assert_eq!(fake.mbuf().frame().len(), 2048);
        fake.mbuf().set_len(60);
        assert_eq!(
            (fake.mbuf().shape(), fake.mbuf().len(), fake.raw().data_len),
            (Shape::Whole, 60, 60)
        );
        fake.mbuf().set_len(3000);
        assert_eq!(fake.mbuf().len(), 2048);
        let mut fake = Fake::new(128, &[1; 100]);
        (fake.raw().nb_segs, fake.raw().pkt_len) = (2, 3000);
        assert_eq!(
            (fake.mbuf().shape(), fake.mbuf().len()),
            (Shape::MultiSegment, 3000)
        );
        assert_eq!(fake.mbuf().frame().len(), 100);
    }

    #[test]
    fn checksum_flags_follow_the_family() {
        let mut fake = Fake::new(128, FRAME);
        fake.raw().tx_offload = u64::MAX;
        fake.mbuf().request_checksum(ChecksumOffload {
            l2_len: 18,
            l3_len: 20,
            ipv4: true,
        });
        // Bits 52 and 53: UDP; 54: IP checksum; 55: IPv4.
        assert_eq!(fake.raw().ol_flags, 0b1111 << 52);
        assert_eq!(fake.raw().tx_offload, 18 + (20 << 7));
        // The same buffer again, now IPv6: bit 56, and no IPv4 flag left.
        fake.mbuf().request_checksum(ChecksumOffload {
            l2_len: 14,
            l3_len: 40,
            ipv4: false,
        });
        assert_eq!(fake.raw().ol_flags, 0b10011 << 52);
        assert_eq!(fake.raw().tx_offload, 14 + (40 << 7));
    }
}
