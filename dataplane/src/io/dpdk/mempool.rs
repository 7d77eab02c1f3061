//! Packet pools: one a worker, on its NUMA node. Made by control at start-up; buffers come out by
//! receive and [`super::DpdkQueues`]'s `alloc`, and go back when an [`super::Mbuf`] is dropped or a
//! port has sent it.

use super::eal::Eal;
use super::error::{DpdkError, last_reason};
use crate::io::WINDOW;
use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Buffer bytes: the headroom, a window, and 384 more, so that the window fits behind any data offset
/// up to 512. af_xdp's is 384: the kernel leaves 256 bytes (XDP_PACKET_HEADROOM) behind DPDK's 128.
/// Behind the headroom it is a multiple of 128, to which some NICs round down.
pub(super) const DATA_ROOM: u16 = dpdk_sys::RTE_PKTMBUF_HEADROOM + WINDOW as u16 + 384;

/// A pool of packet buffers. Clones speak of the same pool; it is freed with the last handle, port
/// queue and registered worker that uses it.
#[derive(Clone, Debug)]
pub struct Mempool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    raw: NonNull<dpdk_sys::rte_mempool>,
    buffers: u32,
    /// Buffers that the descriptors of opened ports may hold.
    promised: AtomicU32,
    /// Set when the pool must outlive this handle: buffers are still out. See `drop`.
    eal: Option<Eal>,
}

// SAFETY: rte_mempool is made for several producers and consumers; the pointer stays valid until the
// drop, which needs the last handle.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Mempool {
    /// A pool of `buffers` buffers on a NUMA node; `None`, or no huge pages: wherever there is memory.
    pub fn new(eal: &Eal, buffers: u32, numa_node: Option<u32>) -> Result<Mempool, DpdkError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("windrose_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let socket = match numa_node {
            Some(node) if eal.huge_pages() => node as i32,
            _ => dpdk_sys::SOCKET_ID_ANY,
        };
        // DPDK takes a cache up to 512 and up to two thirds of the pool. A quarter of a small pool
        // leaves enough for ports when the worker's cache is full.
        let cache = (buffers / 4).min(256);
        let c_name = CString::new(name).unwrap_or_default();
        // SAFETY: EAL runs; the name is copied.
        let raw = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create(c_name.as_ptr(), buffers, cache, 0, DATA_ROOM, socket)
        };
        let Some(raw) = NonNull::new(raw) else {
            let bytes = u64::from(buffers) * (u64::from(DATA_ROOM) + 256);
            return Err(DpdkError::Pool {
                buffers,
                bytes,
                socket,
                reason: last_reason(),
            });
        };
        Ok(Mempool(Arc::new(Pool {
            raw,
            buffers,
            promised: AtomicU32::new(0),
            eal: Some(eal.clone()),
        })))
    }

    /// Buffers in the pool.
    pub fn buffers(&self) -> u32 {
        self.0.buffers
    }

    /// Buffers free now, those in the caches of threads included. Walks the caches: not for the
    /// packet path.
    pub fn available(&self) -> u32 {
        self.0.available()
    }

    pub(super) fn raw(&self) -> *mut dpdk_sys::rte_mempool {
        self.0.raw.as_ptr()
    }

    /// Promises `count` buffers to a port's queues; the total promised if the pool cannot hold that.
    pub(super) fn promise(&self, count: u32) -> Result<(), u32> {
        let promised = self.0.promised.fetch_add(count, Ordering::Relaxed) + count;
        if promised > self.0.buffers {
            self.0.promised.fetch_sub(count, Ordering::Relaxed);
            return Err(promised);
        }
        Ok(())
    }

    /// Takes a promise back.
    pub(super) fn release(&self, count: u32) {
        self.0.promised.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Pool {
    fn available(&self) -> u32 {
        // SAFETY: the pool is valid.
        unsafe { dpdk_sys::rte_mempool_avail_count(self.raw.as_ptr()) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.available() == self.buffers {
            // SAFETY: no handle and no buffer is left.
            unsafe { dpdk_sys::rte_mempool_free(self.raw.as_ptr()) };
        } else {
            // Somebody holds a buffer of it (a driver's ring that closed without emptying, an Mbuf
            // kept aside). Its memory must stay, so the pool and EAL do.
            core::mem::forget(self.eal.take());
        }
    }
}

/// The NUMA node of a CPU; `None` if the kernel does not say.
pub fn numa_node_of_cpu(cpu: usize) -> Option<u32> {
    let entries = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).ok()?;
    entries
        .flatten()
        .find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}
