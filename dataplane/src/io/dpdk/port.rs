//! Ports: opened by control or pktgen from a device string, one queue pair a worker, read by control
//! while they run. A port is started when it is opened and never restarted (af_packet before DPDK
//! 25.03 does not survive that); it stops and closes with its last handle.

use super::devargs;
use super::eal::Eal;
use super::error::{DpdkError, reason};
use super::mempool::{DATA_ROOM, Mempool};
use super::queue::DpdkQueues;
use crate::io::BURST_MAX;
use dpdk_sys as sys;
use std::collections::BTreeSet;
use std::ffi::{CString, c_int};
use std::sync::{Arc, Mutex, PoisonError};

/// How a port is opened.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// DPDK device arguments ("net_af_packet0,iface=eth1") or a PCI address.
    pub device: String,
    /// MTU to set, bytes; `None` leaves the port's.
    pub mtu: Option<u16>,
    /// Receive descriptors a queue; adjusted to what the driver takes.
    pub rx_descriptors: u16,
    /// Transmit descriptors a queue; adjusted to what the driver takes.
    pub tx_descriptors: u16,
    /// Receive frames for any MAC address, as a mirror or bridge port does.
    pub promiscuous: bool,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            device: String::new(),
            mtu: None,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            promiscuous: false,
        }
    }
}

/// How a port comes to receive multicast (neighbour discovery needs it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multicast {
    /// It receives all multicast.
    All,
    /// It has no such switch, and receives everything.
    Promiscuous,
    /// It has neither switch: it receives whatever its device gives.
    AsTheDevice,
}

/// What a port is, as opened. For logs and status.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// The device as handed to DPDK, with arguments that were added.
    pub device: String,
    /// The driver's name.
    pub driver: String,
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// MTU, bytes; 0 if the driver does not say.
    pub mtu: u16,
    /// Queue pairs.
    pub queues: u16,
    /// Receive descriptors a queue, as adjusted.
    pub rx_descriptors: u16,
    /// Transmit descriptors a queue, as adjusted.
    pub tx_descriptors: u16,
    /// NUMA node of the device; `None` if it has none.
    pub numa_node: Option<u32>,
    /// The port writes IPv4 and UDP checksums on transmit.
    pub checksum_offload: bool,
    /// The port spreads packets over its queues by a hash of their addresses. Without it, and with
    /// several queues, the driver spreads in its own way (af_packet: by the kernel's flow hash).
    pub address_hash: bool,
    /// How it receives multicast.
    pub multicast: Multicast,
}

/// An open port, for control. Dropping it leaves the port to its queue pairs.
#[derive(Debug)]
pub struct Port {
    opened: Arc<Opened>,
    info: PortInfo,
}

/// Ports open in this process.
static OPEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that is attached, and started or on its way.
#[derive(Debug)]
pub(super) struct Opened {
    id: u16,
    started: bool,
    /// Pools of the queues, and what each promised. After the fields above: freed when closed.
    pools: Vec<(Mempool, u32)>,
    _eal: Eal,
}

impl Opened {
    pub(super) fn id(&self) -> u16 {
        self.id
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: EAL runs, the port is ours by `OPEN`, and no queue of it is polled: every queue
        // pair holds this value. Errors leave nothing more to do.
        unsafe {
            if self.started {
                sys::rte_eth_dev_stop(self.id);
            }
            sys::shim_port_remove(self.id);
        }
        for (pool, promised) in &self.pools {
            pool.release(*promised);
        }
        OPEN.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
    }
}

impl Port {
    /// Opens and starts a port with one queue pair per pool, in order. From then on it receives, so
    /// the queues should be polled soon.
    ///
    /// A driver that works on a kernel interface looks for it in the calling thread's network namespace.
    pub fn open(
        eal: &Eal,
        config: &PortConfig,
        pools: &[Mempool],
    ) -> Result<(Port, Vec<DpdkQueues>), DpdkError> {
        let queues = pools.len() as u16;
        let device = devargs::prepare(&config.device, queues)?;
        let mut opened = attach(eal, &device)?;
        let id = opened.id;
        let raw = raw_info(id, &device)?;
        let driver = text(&raw.driver);
        let max = raw.rx_queues_max.min(raw.tx_queues_max);
        if queues == 0 || queues > max {
            return Err(DpdkError::Queues {
                device,
                driver,
                wanted: queues,
                max,
            });
        }

        let checksums = sys::RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | sys::RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
        let checksum_offload = raw.tx_offloads & checksums == checksums;
        let rx_offloads = scatter(config, &raw, &device)?;
        let mut tx_offloads = raw.tx_offloads & sys::RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
        if checksum_offload {
            tx_offloads |= checksums;
        }
        let l3_hash = if queues > 1 { raw.l3_hash } else { 0 };
        let check = |step, code| check(&device, step, code);
        // SAFETY: the port is ours and stopped; all arguments are plain.
        check("configuring it", unsafe {
            sys::shim_port_configure(id, queues, l3_hash, rx_offloads, tx_offloads, 0)
        })?;
        let (mut rx, mut tx) = (config.rx_descriptors, config.tx_descriptors);
        // SAFETY: as above; the two numbers are ours.
        check("adjusting its descriptors", unsafe {
            sys::rte_eth_dev_adjust_nb_rx_tx_desc(id, &mut rx, &mut tx)
        })?;

        let kept = devargs::kept_buffers(&device);
        let promised = u32::from(rx).max(kept) + u32::from(tx).max(kept) + 2 * BURST_MAX as u32;
        for (queue, pool) in (0..).zip(pools) {
            let buffers = pool.buffers();
            pool.promise(promised).map_err(|needed| DpdkError::Buffers {
                device: device.clone(),
                needed,
                buffers,
            })?;
            opened.pools.push((pool.clone(), promised));
            // -1 is any node.
            let socket = raw.socket as u32;
            // SAFETY: the port is configured for these queues; `opened` keeps the pool alive until
            // the port is closed.
            check("setting up a receive queue", unsafe {
                sys::rte_eth_rx_queue_setup(id, queue, rx, socket, std::ptr::null(), pool.raw())
            })?;
            // SAFETY: as above.
            check("setting up a transmit queue", unsafe {
                sys::rte_eth_tx_queue_setup(id, queue, tx, socket, std::ptr::null())
            })?;
        }
        if let Some(mtu) = config.mtu {
            set_mtu(id, mtu, &device, &driver)?;
        }
        // SAFETY: configured, and all queues are set up.
        check("starting it", unsafe { sys::rte_eth_dev_start(id) })?;
        opened.started = true;
        let multicast = receive_multicast(id, config.promiscuous, &device)?;

        let raw = raw_info(id, &device)?;
        let info = PortInfo {
            device,
            driver,
            mac: raw.mac,
            mtu: raw.mtu,
            queues,
            rx_descriptors: rx,
            tx_descriptors: tx,
            numa_node: u32::try_from(raw.socket).ok(),
            checksum_offload,
            address_hash: l3_hash != 0,
            multicast,
        };
        let opened = Arc::new(opened);
        let pairs = (0..)
            .zip(pools)
            .map(|(queue, pool)| DpdkQueues::new(&opened, queue, pool.clone(), raw.mac, checksum_offload))
            .collect();
        Ok((Port { opened, info }, pairs))
    }

    /// What the port is.
    pub fn info(&self) -> &PortInfo {
        &self.info
    }

    /// Whether the link is up, and its speed in Mbit/s if the driver knows it. Drivers of virtual
    /// devices may say anything, and not notice changes.
    pub fn link(&self) -> (bool, Option<u32>) {
        let (mut mbps, mut up) = (0, 0);
        // SAFETY: the port is open; the numbers are ours.
        let code = unsafe { sys::shim_port_link(self.opened.id, &mut mbps, &mut up) };
        // 0: none; the highest number: unknown.
        (
            code == 0 && up != 0,
            (code == 0 && mbps != 0 && mbps != u32::MAX).then_some(mbps),
        )
    }

    /// The port's basic statistics since it was opened, readable while it runs.
    pub fn stats(&self) -> Result<sys::shim_port_stats, DpdkError> {
        let mut stats = sys::shim_port_stats::default();
        // SAFETY: the port is open; the struct is ours and laid out as the shim's.
        let code = unsafe { sys::shim_port_stats(self.opened.id, &mut stats) };
        check(&self.info.device, "reading its statistics", code)?;
        Ok(stats)
    }

    /// The driver's extended statistics by name, readable while it runs.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>, DpdkError> {
        let id = self.opened.id;
        let failed = |code| check(&self.info.device, "reading its extended statistics", code);
        // SAFETY: with no room DPDK gives the number of statistics.
        let count = unsafe { sys::rte_eth_xstats_get_names(id, std::ptr::null_mut(), 0) };
        failed(count.min(0))?;
        let mut names = vec![sys::rte_eth_xstat_name { name: [0; 64] }; count as usize];
        let mut values = vec![sys::rte_eth_xstat::default(); count as usize];
        // SAFETY: both arrays have `count` entries, laid out as DPDK's.
        let (named, valued) = unsafe {
            (
                sys::rte_eth_xstats_get_names(id, names.as_mut_ptr(), count as u32),
                sys::rte_eth_xstats_get(id, values.as_mut_ptr(), count as u32),
            )
        };
        failed(named.min(0))?;
        failed(valued.min(0))?;
        values.truncate(valued as usize);
        let named =
            |value: &sys::rte_eth_xstat| Some((text(&names.get(value.id as usize)?.name), value.value));
        Ok(values.iter().filter_map(named).collect())
    }
}

/// Attaches the device, or finds the port that EAL attached at its start (PCI).
fn attach(eal: &Eal, device: &str) -> Result<Opened, DpdkError> {
    let c_string = |value: &str| {
        CString::new(value).map_err(|_| DpdkError::Nul {
            what: "the device",
            value: value.to_owned(),
        })
    };
    let (name, args) = (c_string(devargs::name(device))?, c_string(device)?);
    // One attach at a time, so that two of the same device see each other.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut id = 0;
    // SAFETY: EAL runs; the strings end with NUL.
    let found = unsafe { sys::shim_port_find(name.as_ptr(), &mut id) };
    if found == 0 && open.contains(&id) {
        return Err(DpdkError::InUse {
            device: device.to_owned(),
        });
    }
    if found != 0 {
        let refused = |code| DpdkError::Probe {
            device: device.to_owned(),
            reason: reason(code),
            hint: devargs::hint(device),
        };
        // SAFETY: as above.
        let code = unsafe { sys::rte_dev_probe(args.as_ptr()) };
        if code != 0 {
            return Err(refused(code));
        }
        // SAFETY: as above.
        let code = unsafe { sys::shim_port_find(name.as_ptr(), &mut id) };
        if code != 0 {
            return Err(refused(code));
        }
    }
    open.insert(id);
    Ok(Opened {
        id,
        started: false,
        pools: Vec::new(),
        _eal: eal.clone(),
    })
}

/// The offload that an MTU longer than a buffer needs.
fn scatter(config: &PortConfig, raw: &sys::shim_port_info, device: &str) -> Result<u64, DpdkError> {
    let Some(mtu) = config.mtu else { return Ok(0) };
    let refused = |reason| {
        Err(DpdkError::Mtu {
            device: device.to_owned(),
            mtu,
            reason,
        })
    };
    // Ethernet header, two tags, FCS.
    const OVERHEAD: u32 = 14 + 8 + 4;
    const ROOM: u32 = (DATA_ROOM - sys::RTE_PKTMBUF_HEADROOM) as u32;
    if raw.mtu_max != 0 && u32::from(mtu) > raw.mtu_max {
        return refused(format!("the driver takes {} at most", raw.mtu_max));
    }
    if u32::from(mtu) + OVERHEAD <= ROOM {
        return Ok(0);
    }
    match raw.rx_offloads & sys::RTE_ETH_RX_OFFLOAD_SCATTER {
        0 => refused(format!(
            "frames would not fit a buffer, and the driver cannot split them; use {} at most",
            ROOM - OVERHEAD
        )),
        scatter => Ok(scatter),
    }
}

fn set_mtu(id: u16, mtu: u16, device: &str, driver: &str) -> Result<(), DpdkError> {
    // SAFETY: the port is ours.
    let code = unsafe { sys::rte_eth_dev_set_mtu(id, mtu) };
    let reason = match code {
        0 => return Ok(()),
        code if code == -libc::ENOTSUP => format!("the driver {driver} cannot set it; leave `mtu` out"),
        code => reason(code),
    };
    Err(DpdkError::Mtu {
        device: device.to_owned(),
        mtu,
        reason,
    })
}

/// Lets the port receive all multicast, or everything if it is asked to or has no other way.
fn receive_multicast(id: u16, promiscuous: bool, device: &str) -> Result<Multicast, DpdkError> {
    let unsupported = |code| code == -libc::ENOTSUP;
    if !promiscuous {
        // SAFETY: the port is ours.
        let code = unsafe { sys::rte_eth_allmulticast_enable(id) };
        if !unsupported(code) {
            return check(device, "enabling multicast", code).map(|()| Multicast::All);
        }
    }
    // SAFETY: as above.
    let code = unsafe { sys::rte_eth_promiscuous_enable(id) };
    if unsupported(code) {
        return Ok(Multicast::AsTheDevice);
    }
    check(device, "enabling promiscuous mode", code).map(|()| Multicast::Promiscuous)
}

fn raw_info(id: u16, device: &str) -> Result<sys::shim_port_info, DpdkError> {
    let mut raw = core::mem::MaybeUninit::zeroed();
    // SAFETY: the port exists; the struct is ours, laid out as the shim's, and all zeros are valid.
    let (code, raw) = unsafe { (sys::shim_port_info(id, raw.as_mut_ptr()), raw.assume_init()) };
    check(device, "reading what it is", code)?;
    Ok(raw)
}

fn check(device: &str, step: &'static str, code: c_int) -> Result<(), DpdkError> {
    if code == 0 {
        return Ok(());
    }
    Err(DpdkError::Port {
        device: device.to_owned(),
        step,
        reason: reason(code),
    })
}

/// A string out of a C array.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
