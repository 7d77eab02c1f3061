//! One queue pair of a port, owned by one worker. The only part of DPDK on the packet path.

use super::mbuf::Mbuf;
use super::mempool::Mempool;
use super::port::Opened;
use crate::io::{Burst, QueuePair};
use dpdk_sys as sys;
use std::sync::Arc;

/// The RX and TX queue of one number of one port. The port closes when its [`super::Port`] and all
/// its queue pairs are gone.
pub struct DpdkQueues {
    port: u16,
    queue: u16,
    mac: [u8; 6],
    checksum_offload: bool,
    /// Received mbufs that no window fits, freed unseen.
    unusable: u64,
    pool: Mempool,
    _opened: Arc<Opened>,
}

impl DpdkQueues {
    pub(super) fn new(
        opened: &Arc<Opened>,
        queue: u16,
        pool: Mempool,
        mac: [u8; 6],
        checksums: bool,
    ) -> Self {
        let port = opened.id();
        let _opened = Arc::clone(opened);
        Self {
            port,
            queue,
            mac,
            checksum_offload: checksums,
            unusable: 0,
            pool,
            _opened,
        }
    }

    /// The number of this pair in its port.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Frees the mbufs that cannot be used. The others keep their order.
    #[cold]
    fn sort_out(&mut self, burst: &mut Burst<Mbuf>, usable: u32) {
        for at in 0..burst.len() {
            let Some(mbuf) = burst.pop_front() else { return };
            if usable >> at & 1 == 1 {
                // There is room: one was taken out.
                let _ = burst.push(mbuf);
            } else {
                self.unusable += 1;
            }
        }
    }
}

// The bits of a word stand for the packets of a burst.
const _: () = assert!(crate::io::BURST_MAX <= 32);

impl QueuePair for DpdkQueues {
    type Buf = Mbuf;

    #[inline]
    fn rx(&mut self, burst: &mut Burst<Mbuf>) {
        // Whatever is left in it stays in front, untouched.
        let before = burst.len();
        let spare = burst.spare();
        // SAFETY: the port is open and the queue set up, by `_opened`; only this value polls it, and
        // `self` is borrowed mutably. Mbuf is a pointer to an mbuf, not null; the driver writes the
        // first `received` slots and gives the mbufs away.
        let received = unsafe {
            let n = spare.len() as u16;
            let received = sys::shim_rx_burst(self.port, self.queue, spare.as_mut_ptr().cast(), n);
            burst.filled(usize::from(received));
            received
        };
        if received == 0 {
            return;
        }
        let mut usable = u32::MAX;
        for (at, mbuf) in burst.as_mut_slice().iter_mut().enumerate().skip(before) {
            usable &= !(u32::from(!mbuf.adopt()) << at);
        }
        if usable != u32::MAX {
            self.sort_out(burst, usable);
        }
    }

    #[inline]
    fn tx(&mut self, burst: &mut Burst<Mbuf>) -> usize {
        let mbufs = burst.as_mut_slice();
        // SAFETY: as in `rx`. The first `sent` mbufs belong to the driver from then on.
        unsafe {
            let n = mbufs.len() as u16;
            let sent = sys::shim_tx_burst(self.port, self.queue, mbufs.as_mut_ptr().cast(), n);
            let sent = usize::from(sent);
            burst.gave_away(sent);
            sent
        }
    }

    #[inline]
    fn free(&mut self, burst: &mut Burst<Mbuf>) {
        let mbufs = burst.as_mut_slice();
        // SAFETY: the mbufs, with their segments, are ours, and given up with this call.
        unsafe {
            let count = mbufs.len();
            sys::rte_pktmbuf_free_bulk(mbufs.as_mut_ptr().cast(), count as u32);
            burst.gave_away(count);
        }
    }

    #[inline]
    fn alloc(&mut self) -> Option<Mbuf> {
        // SAFETY: the pool is live, we hold a handle.
        unsafe { Mbuf::alloc(self.pool.raw()) }
    }

    #[inline]
    fn alloc_burst(&mut self, burst: &mut Burst<Mbuf>, count: usize) -> usize {
        let wanted = count.min(burst.free());
        let spare = burst.spare();
        // SAFETY: the pool is live, we hold a handle. All `wanted` slots, which `spare` has, are written with
        // mbufs that are ours, reset as by `alloc`, or none is.
        unsafe {
            let slots = spare.as_mut_ptr().cast();
            if sys::shim_pktmbuf_alloc_bulk(self.pool.raw(), slots, wanted as u32) == 0 {
                burst.filled(wanted);
                return wanted;
            }
        }
        // Fewer than wanted are left.
        for done in 0..wanted {
            let Some(mbuf) = self.alloc() else { return done };
            let _ = burst.push(mbuf);
        }
        wanted
    }

    fn unusable(&self) -> u64 {
        self.unusable
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn checksum_offload(&self) -> bool {
        self.checksum_offload
    }
}
