//! Opens the ports of a configuration: EAL, a pool for each worker, a queue pair for each port and worker.

use crate::config::model::Config;
use crate::config::model::Role;
use anyhow::{Context, Result};
use dataplane::io::dpdk::{self, DpdkQueues, Eal, EalConfig, Mempool, Port, PortConfig};
use dataplane::stages::classify::{self, PortView};
use dataplane::tables::addresses::{AddressKind, Addresses};

/// What was opened. Fields drop in order; queues and ports hold EAL themselves.
pub(super) struct Opened {
    /// Queue pairs by worker, then by port.
    pub(super) queues: Vec<Vec<DpdkQueues>>,
    /// The ports, by index in the configuration.
    pub(super) ports: Vec<Port>,
    /// EAL.
    pub(super) eal: Eal,
}

/// Starts EAL and opens every port.
///
/// # Errors
/// What failed and what to do; everything opened so far is closed again.
pub(super) fn open(config: &Config) -> Result<Opened> {
    let dataplane = &config.dataplane;
    let pci = config
        .ports
        .iter()
        .map(|p| p.device.clone())
        .filter(|d| dpdk::is_pci_address(d))
        .collect();
    let eal = Eal::init(&EalConfig {
        name: "windrose".into(),
        memory_bytes: dataplane.memory_bytes,
        pci,
        args: dataplane.eal.clone(),
    })?;
    tracing::info!(
        dpdk = Eal::version(),
        huge_pages = eal.huge_pages(),
        "EAL started"
    );
    let pools = dataplane
        .cores
        .iter()
        .map(|&core| Mempool::new(&eal, dataplane.buffers, dpdk::numa_node_of_cpu(core)))
        .collect::<Result<Vec<_>, _>>()
        .context("[dataplane] buffers or memory")?;
    let mut queues: Vec<Vec<DpdkQueues>> = pools.iter().map(|_| Vec::new()).collect();
    let mut ports = Vec::new();
    for port in &config.ports {
        let wanted = PortConfig {
            device: port.device.clone(),
            mtu: port.mtu,
            rx_descriptors: port.rx_descriptors,
            tx_descriptors: port.tx_descriptors,
            // Users' packets are for other stations.
            promiscuous: port.role != Role::Service,
        };
        let (opened, pairs) =
            Port::open(&eal, &wanted, &pools).with_context(|| format!("port \"{}\"", port.name))?;
        let info = opened.info();
        let (link_up, link_mbps) = opened.link();
        tracing::info!(
            port = port.name,
            device = info.device,
            driver = info.driver,
            mac = mac_text(info.mac),
            mtu = info.mtu,
            queues = info.queues,
            rx_descriptors = info.rx_descriptors,
            tx_descriptors = info.tx_descriptors,
            checksum_offload = info.checksum_offload,
            address_hash = info.address_hash,
            multicast = ?info.multicast,
            link_up,
            link_mbps,
            "port open"
        );
        for (worker, pair) in queues.iter_mut().zip(pairs) {
            worker.push(pair);
        }
        ports.push(opened);
    }
    Ok(Opened { queues, ports, eal })
}

/// The index of the port of that name: there is one, as loading has seen.
fn pair_index(config: &Config, name: &str) -> u8 {
    let at = config.ports.iter().position(|port| port.name == *name);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

/// A MAC address as text.
pub(super) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

/// The ports as the stages see them, under a configuration that may be newer than the one they were opened by.
///
/// # Errors
/// A service address that nothing can be answered on.
pub(super) fn views(config: &Config, macs: &[[u8; 6]]) -> Result<Vec<PortView>> {
    config
        .ports
        .iter()
        .zip(macs)
        .map(|(port, &mac)| {
            let addresses = port.addresses.iter().map(|&a| (a, AddressKind::Service));
            let addresses = Addresses::new(addresses, fastrand::u64(..))
                .with_context(|| format!("port \"{}\"", port.name))?;
            let role = match &port.role {
                Role::Service => classify::Role::Service,
                Role::Mirror => classify::Role::Mirror,
                Role::Bridge(pair) => classify::Role::Bridge(pair_index(config, pair)),
            };
            Ok(PortView::new(mac, addresses, port.verify_udp_checksum).with_role(role))
        })
        .collect()
}
