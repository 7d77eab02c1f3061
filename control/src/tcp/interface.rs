//! The exception interface: a TUN in a network namespace without a name, with the service addresses on it.
//! Set up and owned by the TCP thread.
//!
//! A namespace of its own, since a host that had the service addresses on an interface would answer ARP for
//! them on others too. A TUN and not a TAP: it asks for no MAC addresses. Neither leaves anything behind.

use crate::netns;
use anyhow::{Context, Result};
use rtnetlink::packet_route::route::RouteScope;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use std::collections::HashSet;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use tokio::io::unix::AsyncFd;

/// Name of the interface; it stands alone in its namespace but for the loopback.
const NAME: &str = "windrose";
/// Index of the loopback interface in every namespace.
const LOOPBACK: u32 = 1;
/// Below this the kernel switches IPv6 off on an interface (RFC 8200 section 5).
const IPV6_MTU_MIN: u16 = 1280;

/// Kernel parameters of the namespace: path below `/proc/sys/net`, value. A kernel without one goes without.
const PARAMETERS: &[(&str, &str)] = &[
    // A full SYN queue answers by cookies and keeps no state.
    ("ipv4/tcp_syncookies", "1"),
    // Each repeats a packet to an address that may be forged: two, not five.
    ("ipv4/tcp_synack_retries", "2"),
    // Closed by us and not acknowledged: given up soon.
    ("ipv4/tcp_orphan_retries", "3"),
    // Large answers get through where "fragmentation needed" is filtered.
    ("ipv4/tcp_mtu_probing", "1"),
    // Memory of a connection, bytes: least, usual, most.
    ("ipv4/tcp_rmem", "4096 16384 131072"),
    ("ipv4/tcp_wmem", "4096 16384 262144"),
    ("ipv4/conf/windrose/rp_filter", "0"),
    // The namespace may have taken over "1" from the host's defaults.
    ("ipv6/conf/windrose/disable_ipv6", "0"),
    // Nothing is autoconfigured or asked for: every word on this link is a client's.
    ("ipv6/conf/windrose/accept_ra", "0"),
    ("ipv6/conf/windrose/router_solicitations", "0"),
    ("ipv6/conf/windrose/addr_gen_mode", "1"),
    ("ipv6/conf/windrose/accept_dad", "0"),
];

/// The interface. It and its namespace are gone when its file and the thread are.
pub(super) struct Interface {
    netlink: Handle,
    index: u32,
    addresses: HashSet<IpAddr>,
}

impl Interface {
    /// Makes it, and the file by which its packets are read and written, in the calling thread's namespace, which must be a new one. Runs inside the thread's runtime.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub(super) async fn new(mtu: u16, addresses: &HashSet<IpAddr>) -> Result<(Self, AsyncFd<File>)> {
        let tun = netns::open_tun(NAME)?;
        let index = nix::net::if_::if_nametoindex(NAME).context("index of the TUN interface")?;
        for (key, value) in PARAMETERS {
            parameter(key, value)?;
        }
        let (connection, netlink, _) = rtnetlink::new_connection().context("netlink socket")?;
        tokio::spawn(connection);
        let up = |index| LinkUnspec::new_with_index(index).up();
        netlink.link().set(up(LOOPBACK).build()).execute().await?;
        let link = up(index).mtu(mtu.into()).build();
        netlink
            .link()
            .set(link)
            .execute()
            .await
            .with_context(|| format!("an MTU of {mtu} on the TUN interface"))?;
        let mut interface = Self {
            netlink,
            index,
            addresses: HashSet::new(),
        };
        if mtu < IPV6_MTU_MIN && addresses.iter().any(IpAddr::is_ipv6) {
            tracing::warn!(mtu, "a port's MTU is below 1280: no DNS over TCP for IPv6");
        }
        interface.routes(mtu >= IPV6_MTU_MIN).await?;
        let wanted = addresses
            .iter()
            .copied()
            .filter(|a| a.is_ipv4() || mtu >= IPV6_MTU_MIN);
        interface.set_addresses(&wanted.collect()).await?;
        Ok((interface, tun))
    }

    /// Everything goes out by the TUN.
    async fn routes(&self, ipv6: bool) -> Result<()> {
        let v4 = RouteMessageBuilder::<Ipv4Addr>::new()
            .output_interface(self.index)
            .scope(RouteScope::Link);
        self.netlink
            .route()
            .add(v4.build())
            .execute()
            .await
            .context("IPv4 default route")?;
        if ipv6 && Path::new("/proc/sys/net/ipv6").exists() {
            let v6 = RouteMessageBuilder::<Ipv6Addr>::new().output_interface(self.index);
            self.netlink
                .route()
                .add(v6.build())
                .execute()
                .await
                .context("IPv6 default route")?;
        }
        Ok(())
    }

    /// Makes `wanted` the addresses of the interface.
    ///
    /// # Errors
    /// An address that the kernel does not take; the others are tried all the same.
    pub(super) async fn set_addresses(&mut self, wanted: &HashSet<IpAddr>) -> Result<()> {
        let mut failed = Ok(());
        for address in wanted {
            if self.addresses.contains(address) {
                continue;
            }
            let bits = if address.is_ipv4() { 32 } else { 128 };
            let request = self.netlink.address().add(self.index, *address, bits);
            match request.execute().await {
                Ok(()) => _ = self.addresses.insert(*address),
                Err(error) => failed = Err(error).with_context(|| format!("address {address}")),
            }
        }
        let gone: Vec<IpAddr> = self.addresses.difference(wanted).copied().collect();
        for address in gone {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            // The message that added it says which to take away.
            let message = self
                .netlink
                .address()
                .add(self.index, address, bits)
                .message_mut()
                .clone();
            match self.netlink.address().del(message).execute().await {
                Ok(()) => _ = self.addresses.remove(&address),
                Err(error) => failed = Err(error).with_context(|| format!("address {address}")),
            }
        }
        failed
    }
}

/// Sets one parameter; one that this kernel has not is left out.
fn parameter(key: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys/net").join(key);
    match std::fs::write(&path, value) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("kernel parameter {}", path.display()))
        }
        _ => Ok(()),
    }
}
