//! Raw DPDK: the functions of `shim.c`, the exported functions that `dataplane::io::dpdk` calls, and
//! the structs that both sides read, with their layouts asserted here and in C. No logic. Names are
//! DPDK's; see <https://doc.dpdk.org/api-22.11/> for what each does.

#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::offset_of;

/// Receive: the outermost VLAN tag was taken out of the data into `vlan_tci`.
pub const RTE_MBUF_F_RX_VLAN_STRIPPED: u64 = 1 << 6;
/// Receive: two tags were taken out, the outer into `vlan_tci_outer`.
pub const RTE_MBUF_F_RX_QINQ_STRIPPED: u64 = 1 << 15;
/// Transmit: write the UDP checksum (a value of a two-bit field).
pub const RTE_MBUF_F_TX_UDP_CKSUM: u64 = 3 << 52;
/// Transmit: write the IPv4 header checksum.
pub const RTE_MBUF_F_TX_IP_CKSUM: u64 = 1 << 54;
/// Transmit: the packet is IPv4.
pub const RTE_MBUF_F_TX_IPV4: u64 = 1 << 55;
/// Transmit: the packet is IPv6.
pub const RTE_MBUF_F_TX_IPV6: u64 = 1 << 56;
/// The data lies in an external buffer.
pub const RTE_MBUF_F_EXTERNAL: u64 = 1 << 61;
/// The data lies in another mbuf's buffer.
pub const RTE_MBUF_F_INDIRECT: u64 = 1 << 62;
/// Port offers IPv4 header checksums on transmit.
pub const RTE_ETH_TX_OFFLOAD_IPV4_CKSUM: u64 = 1 << 1;
/// Port offers UDP checksums on transmit.
pub const RTE_ETH_TX_OFFLOAD_UDP_CKSUM: u64 = 1 << 2;
/// Port transmits mbufs of several segments.
pub const RTE_ETH_TX_OFFLOAD_MULTI_SEGS: u64 = 1 << 15;
/// Port receives long frames into several segments.
pub const RTE_ETH_RX_OFFLOAD_SCATTER: u64 = 1 << 13;
/// Bytes left free before the data of a fresh mbuf.
pub const RTE_PKTMBUF_HEADROOM: u16 = 128;
/// Memory of any NUMA node.
pub const SOCKET_ID_ANY: c_int = -1;
/// `shim_lcore_id` of a thread that is not registered.
pub const LCORE_ID_ANY: c_uint = u32::MAX;

/// The fields of `struct rte_mbuf` that are read or written from Rust.
#[repr(C, align(64))]
pub struct rte_mbuf {
    /// Start of the buffer, headroom included.
    pub buf_addr: *mut c_void,
    buf_iova: u64,
    /// First data byte, from `buf_addr`.
    pub data_off: u16,
    /// References to this mbuf.
    pub refcnt: u16,
    /// Segments of the packet, in its first mbuf.
    pub nb_segs: u16,
    /// Input port.
    pub port: u16,
    /// `RTE_MBUF_F_*`.
    pub ol_flags: u64,
    packet_type: u32,
    /// Length of the packet over all segments.
    pub pkt_len: u32,
    /// Length of the data in this segment.
    pub data_len: u16,
    /// VLAN tag, host order.
    pub vlan_tci: u16,
    /// RSS hash, in its first word.
    pub hash: [u32; 2],
    /// Outer VLAN tag, host order.
    pub vlan_tci_outer: u16,
    /// Length of the buffer, headroom included.
    pub buf_len: u16,
    /// The pool that it returns to.
    pub pool: *mut rte_mempool,
    /// Next segment.
    pub next: *mut rte_mbuf,
    /// Layer lengths for checksums: L2 in bits 0 to 6, L3 in bits 7 to 15.
    pub tx_offload: u64,
    rest: [u64; 6],
}

const _: () = {
    assert!(offset_of!(rte_mbuf, buf_addr) == 0 && offset_of!(rte_mbuf, data_off) == 16);
    assert!(offset_of!(rte_mbuf, refcnt) == 18 && offset_of!(rte_mbuf, nb_segs) == 20);
    assert!(offset_of!(rte_mbuf, port) == 22 && offset_of!(rte_mbuf, ol_flags) == 24);
    assert!(offset_of!(rte_mbuf, packet_type) == 32 && offset_of!(rte_mbuf, pkt_len) == 36);
    assert!(offset_of!(rte_mbuf, data_len) == 40 && offset_of!(rte_mbuf, vlan_tci) == 42);
    assert!(offset_of!(rte_mbuf, hash) == 44 && offset_of!(rte_mbuf, vlan_tci_outer) == 52);
    assert!(offset_of!(rte_mbuf, buf_len) == 54 && offset_of!(rte_mbuf, pool) == 56);
    assert!(offset_of!(rte_mbuf, next) == 64 && offset_of!(rte_mbuf, tx_offload) == 72);
    assert!(size_of::<rte_mbuf>() == 128);
    assert!(offset_of!(shim_port_info, device) == 32 && offset_of!(shim_port_info, rx_offloads) == 96);
    assert!(offset_of!(shim_port_info, l3_hash) == 112 && offset_of!(shim_port_info, mtu_max) == 120);
    assert!(offset_of!(shim_port_info, rx_queues_max) == 128 && offset_of!(shim_port_info, mac) == 134);
    assert!(size_of::<shim_port_info>() == 144 && size_of::<shim_port_stats>() == 64);
    assert!(size_of::<rte_eth_xstat>() == 16 && size_of::<rte_eth_xstat_name>() == 64);
};

/// A packet pool; only its address is used.
#[repr(C)]
pub struct rte_mempool {
    opaque: [u8; 0],
}

/// What a port is and offers: `struct shim_port_info` of `shim.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct shim_port_info {
    /// Driver name, NUL-terminated.
    pub driver: [u8; 32],
    /// Device name, NUL-terminated.
    pub device: [u8; 64],
    /// Receive offloads that it offers.
    pub rx_offloads: u64,
    /// Transmit offloads that it offers.
    pub tx_offloads: u64,
    /// Hash fields of layer 3 that it offers.
    pub l3_hash: u64,
    /// Largest MTU, bytes.
    pub mtu_max: u32,
    /// NUMA node, or -1.
    pub socket: i32,
    /// Most receive queues.
    pub rx_queues_max: u16,
    /// Most transmit queues.
    pub tx_queues_max: u16,
    /// MTU now, bytes; 0 if the driver does not say.
    pub mtu: u16,
    /// MAC address.
    pub mac: [u8; 6],
}

/// A port's basic statistics: the totals of `struct rte_eth_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct shim_port_stats {
    /// Packets received.
    pub ipackets: u64,
    /// Packets transmitted.
    pub opackets: u64,
    /// Bytes received.
    pub ibytes: u64,
    /// Bytes transmitted.
    pub obytes: u64,
    /// Packets that the port dropped because the receive queue was full.
    pub imissed: u64,
    /// Packets received with errors.
    pub ierrors: u64,
    /// Packets whose transmission failed.
    pub oerrors: u64,
    /// Receive buffers that could not be allocated.
    pub rx_nombuf: u64,
}

/// One value of the extended statistics.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rte_eth_xstat {
    /// Index into the names.
    pub id: u64,
    /// The value.
    pub value: u64,
}

/// One name of the extended statistics, NUL-terminated.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rte_eth_xstat_name {
    /// The name.
    pub name: [u8; 64],
}

#[allow(missing_docs)] // DPDK's own functions, under their own names
unsafe extern "C" {
    pub fn shim_rx_burst(port: u16, queue: u16, bufs: *mut *mut rte_mbuf, n: u16) -> u16;
    pub fn shim_tx_burst(port: u16, queue: u16, bufs: *mut *mut rte_mbuf, n: u16) -> u16;
    pub fn shim_pktmbuf_alloc(pool: *mut rte_mempool) -> *mut rte_mbuf;
    pub fn shim_pktmbuf_alloc_bulk(pool: *mut rte_mempool, mbufs: *mut *mut rte_mbuf, count: c_uint)
    -> c_int;
    pub fn shim_pktmbuf_free(mbuf: *mut rte_mbuf);
    pub fn shim_errno() -> c_int;
    pub fn shim_lcore_id() -> c_uint;
    pub fn shim_log_to_stderr() -> c_int;
    pub fn shim_port_configure(
        port: u16,
        queues: u16,
        l3_hash: u64,
        rx_offloads: u64,
        tx_offloads: u64,
        mtu: u32,
    ) -> c_int;
    pub fn shim_port_info(port: u16, out: *mut shim_port_info) -> c_int;
    pub fn shim_port_stats(port: u16, out: *mut shim_port_stats) -> c_int;
    pub fn shim_port_link(port: u16, speed_mbps: *mut u32, up: *mut u8) -> c_int;
    pub fn shim_port_find(device: *const c_char, port: *mut u16) -> c_int;
    pub fn shim_port_remove(port: u16) -> c_int;

    pub fn rte_version() -> *const c_char;
    pub fn rte_strerror(errnum: c_int) -> *const c_char;
    pub fn rte_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub fn rte_eal_cleanup() -> c_int;
    pub fn rte_eal_get_runtime_dir() -> *const c_char;
    pub fn rte_thread_register() -> c_int;
    pub fn rte_thread_unregister();
    pub fn rte_dev_probe(devargs: *const c_char) -> c_int;
    pub fn rte_pktmbuf_pool_create(
        name: *const c_char,
        n: c_uint,
        cache_size: c_uint,
        priv_size: u16,
        data_room_size: u16,
        socket_id: c_int,
    ) -> *mut rte_mempool;
    pub fn rte_pktmbuf_free_bulk(mbufs: *mut *mut rte_mbuf, count: c_uint);
    pub fn rte_mempool_free(pool: *mut rte_mempool);
    pub fn rte_mempool_avail_count(pool: *const rte_mempool) -> c_uint;
    pub fn rte_eth_dev_adjust_nb_rx_tx_desc(port: u16, rx: *mut u16, tx: *mut u16) -> c_int;
    pub fn rte_eth_rx_queue_setup(
        port: u16,
        queue: u16,
        descriptors: u16,
        socket: c_uint,
        conf: *const c_void,
        pool: *mut rte_mempool,
    ) -> c_int;
    pub fn rte_eth_tx_queue_setup(
        port: u16,
        queue: u16,
        descriptors: u16,
        socket: c_uint,
        conf: *const c_void,
    ) -> c_int;
    pub fn rte_eth_dev_set_mtu(port: u16, mtu: u16) -> c_int;
    pub fn rte_eth_dev_start(port: u16) -> c_int;
    pub fn rte_eth_dev_stop(port: u16) -> c_int;
    pub fn rte_eth_promiscuous_enable(port: u16) -> c_int;
    pub fn rte_eth_allmulticast_enable(port: u16) -> c_int;
    pub fn rte_eth_xstats_get_names(port: u16, names: *mut rte_eth_xstat_name, size: c_uint) -> c_int;
    pub fn rte_eth_xstats_get(port: u16, values: *mut rte_eth_xstat, n: c_uint) -> c_int;
}
