//! Client, vantage point and server, and wires on which requests pass the vantage point and answers do not.
//!
//! Client and server have one interface each, as tunnels that answer where they were asked need; two routers part the ways.

use crate::link::{Impairment, Link};
use anyhow::Result;
use std::net::Ipv4Addr;
use windrose_tests::lab::{Host, Lab};

/// The client's address.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);

/// The hosts. Fields drop in order: the line before the namespaces.
#[derive(Debug)]
pub struct Wires {
    _link: Option<Link>,
    /// Asks.
    pub client: Host,
    /// Sees requests, on its interface `in`.
    pub vantage: Host,
    /// Answers.
    pub server: Host,
    /// Owns all of them.
    pub lab: Lab,
}

impl Wires {
    /// Makes all. The line between client and vantage point is a forwarder if it has to do something.
    ///
    /// # Errors
    /// Without root, or when the kernel refuses.
    pub fn build(impairment: Impairment, seed: u64) -> Result<Self> {
        let mut lab = Lab::new()?;
        let [client, near, vantage, far, server] =
            ["client", "near", "vantage", "far", "server"].map(|name| lab.host(name));
        let (client, near, vantage, far, server) = (client?, near?, vantage?, far?, server?);
        for host in [&client, &near, &vantage, &far, &server] {
            for scope in ["all", "default"] {
                host.sysctl(&format!("net.ipv4.conf.{scope}.rp_filter"), "0")?;
                host.sysctl(&format!("net.ipv4.conf.{scope}.send_redirects"), "0")?;
                host.sysctl(&format!("net.ipv6.conf.{scope}.disable_ipv6"), "1")?;
            }
        }
        for router in [&near, &vantage, &far] {
            router.sysctl("net.ipv4.ip_forward", "1")?;
        }
        lab.link(&client, "eth", &near, "client")?;
        lab.link(&far, "server", &server, "eth")?;
        let link = if impairment == Impairment::NONE {
            lab.link(&near, "out", &vantage, "in")?;
            None
        } else {
            let wire = lab.host("wire")?;
            lab.link(&near, "out", &wire, "near")?;
            lab.link(&wire, "far", &vantage, "in")?;
            Some(Link::start(&wire, impairment, seed)?)
        };
        lab.link(&vantage, "on", &far, "in")?;
        lab.link(&far, "back", &near, "back")?;
        client.address("lo", &format!("{CLIENT}/32"))?;
        server.address("lo", &format!("{SERVER}/32"))?;
        let hops = [
            (&client, "eth", SERVER, Some(CLIENT), &near, "client"),
            (&near, "out", SERVER, None, &vantage, "in"),
            (&vantage, "on", SERVER, None, &far, "in"),
            (&far, "server", SERVER, None, &server, "eth"),
            (&server, "eth", CLIENT, Some(SERVER), &far, "server"),
            (&far, "back", CLIENT, None, &near, "back"),
            (&near, "client", CLIENT, None, &client, "eth"),
        ];
        for (host, interface, to, from, next, facing) in hops {
            let from = from.map_or_else(String::new, |from: Ipv4Addr| format!("src {from}"));
            host.ip(&format!("route add {to}/32 dev {interface} {from}"))?;
            let mac = next.mac(facing)?.map(|octet| format!("{octet:02x}")).join(":");
            host.ip(&format!(
                "neigh replace {to} lladdr {mac} dev {interface} nud permanent"
            ))?;
        }
        Ok(Self {
            _link: link,
            client,
            vantage,
            server,
            lab,
        })
    }
}
