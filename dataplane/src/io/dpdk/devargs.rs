//! Device strings ("net_af_packet0,iface=eth1", "0000:3b:00.0"): what must be known of them before
//! and beside the driver, so that a mistake has a clear error.

use super::error::DpdkError;
use super::mempool::DATA_ROOM;
use std::ffi::CString;

/// The drivers of virtual devices that the product is tested with.
const VIRTUAL: [&str; 7] = [
    "net_af_packet",
    "net_af_xdp",
    "net_memif",
    "net_ring",
    "net_pcap",
    "net_tap",
    "net_null",
];

/// True for "0000:3b:00.0" and "3b:00.0", with or without arguments behind.
pub fn is_pci_address(device: &str) -> bool {
    let hex = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit());
    let mut parts = name(device).rsplitn(3, ':');
    let (Some(slot), Some(bus)) = (parts.next(), parts.next()) else {
        return false;
    };
    let domain = parts.next();
    slot.split_once('.')
        .is_some_and(|(slot, function)| hex(slot, 2) && hex(function, 1))
        && hex(bus, 2)
        && domain.is_none_or(|domain| (4..=8).any(|n| hex(domain, n)))
}

/// The device's name: what stands before the first comma.
pub(super) fn name(device: &str) -> &str {
    device.split(',').next().unwrap_or_default()
}

/// The value of an argument.
fn value<'a>(device: &'a str, key: &str) -> Option<&'a str> {
    device
        .split(',')
        .skip(1)
        .find_map(|arg| arg.strip_prefix(key)?.strip_prefix('='))
}

/// Checks what can be checked, and adds the number of queues where the driver wants it told.
pub(super) fn prepare(device: &str, queues: u16) -> Result<String, DpdkError> {
    let wrong = |problem| DpdkError::Devargs {
        device: device.to_owned(),
        problem,
    };
    let driver = name(device).trim_end_matches(|c: char| c.is_ascii_digit());
    let (queue_key, needs_interface) = match driver {
        "net_af_packet" => (Some("qpairs"), true),
        "net_af_xdp" => (Some("queue_count"), true),
        _ => (None, false),
    };
    if needs_interface {
        let interface = value(device, "iface")
            .ok_or_else(|| wrong(format!("it needs an interface: `{},iface=NAME`", name(device))))?;
        if !interface_exists(interface) {
            return Err(DpdkError::NoInterface {
                device: device.to_owned(),
                interface: interface.to_owned(),
            });
        }
    }
    // Debian 12's af_packet copies a received frame without looking at the size of the mbuf.
    let room = DATA_ROOM - dpdk_sys::RTE_PKTMBUF_HEADROOM;
    if driver == "net_af_packet"
        && let Some(size) = value(device, "framesz")
        && size.parse::<u16>().is_ok_and(|size| size > room)
    {
        return Err(wrong(format!(
            "framesz={size} is more than the {room} bytes of a buffer; use 2048, its default"
        )));
    }
    let Some(key) = queue_key else {
        return Ok(device.to_owned());
    };
    match value(device, key) {
        None if queues == 1 => Ok(device.to_owned()),
        None => Ok(format!("{device},{key}={queues}")),
        Some(given) if given.parse() == Ok(queues) => Ok(device.to_owned()),
        Some(given) => Err(wrong(format!(
            "{key}={given}, but there are {queues} workers and each needs a queue pair; leave {key} out"
        ))),
    }
}

/// The least buffers that a driver keeps in its receive and in its transmit queue, whatever the
/// number of descriptors. af_xdp's rings have 2048 entries each.
pub(super) fn kept_buffers(device: &str) -> u32 {
    if name(device).starts_with("net_af_xdp") {
        2048
    } else {
        0
    }
}

fn interface_exists(name: &str) -> bool {
    // SAFETY: a string that ends with NUL is read.
    CString::new(name).is_ok_and(|name| unsafe { libc::if_nametoindex(name.as_ptr()) } != 0)
}

/// What to check when the driver refused the device.
pub(super) fn hint(device: &str) -> String {
    if is_pci_address(device) {
        return "Check the address against `dpdk-devbind.py --status`, and that the device is bound to vfio-pci".into();
    }
    let driver = name(device).trim_end_matches(|c: char| c.is_ascii_digit());
    if !VIRTUAL.contains(&driver) {
        return format!(
            "A device is a PCI address or one of {}, with a number and arguments behind; \
             other drivers must be installed",
            VIRTUAL.join(", ")
        );
    }
    // SAFETY: reads a number of this process.
    let root = unsafe { libc::geteuid() } == 0;
    let needs = match driver {
        "net_af_packet" => "It needs CAP_NET_RAW and CAP_NET_ADMIN",
        "net_af_xdp" => {
            "It needs CAP_NET_ADMIN, CAP_BPF and CAP_IPC_LOCK, and an interface with that many queues"
        }
        "net_tap" => "It needs CAP_NET_ADMIN and /dev/net/tun",
        "net_pcap" => "Check that the file of rx_pcap exists and is a capture",
        "net_memif" => "Check that the directory of socket= exists and is ours to write",
        _ => "Check its arguments",
    };
    let so = if root { "" } else { " (this process is not root)" };
    format!("{needs}{so}; DPDK's own words are on standard error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_told_from_virtual_devices() {
        for yes in ["0000:3b:00.0", "3b:00.1", "0000:3B:1f.7,arg=1", "10000:01:00.0"] {
            assert!(is_pci_address(yes), "{yes}");
        }
        for no in [
            "net_tap0",
            "net_memif0,socket=/x:00.0",
            "",
            "0000:3b:00",
            "3b:00.00",
            "zz:00.0",
        ] {
            assert!(!is_pci_address(no), "{no}");
        }
    }

    #[test]
    fn queue_counts_are_added_or_must_match() {
        let two = prepare("net_af_packet0,iface=lo", 2).unwrap();
        assert_eq!(two, "net_af_packet0,iface=lo,qpairs=2");
        assert_eq!(
            prepare("net_af_xdp1,iface=lo", 4).unwrap(),
            "net_af_xdp1,iface=lo,queue_count=4"
        );
        assert_eq!(prepare(&two, 2).unwrap(), two);
        assert_eq!(prepare("net_ring0", 2).unwrap(), "net_ring0");
        let error = prepare(&two, 3).unwrap_err().to_string();
        assert!(
            error.contains("qpairs=2") && error.contains("3 workers"),
            "{error}"
        );
    }

    #[test]
    fn mistakes_are_named() {
        let missing = prepare("net_af_packet0,iface=nosuch0", 1)
            .unwrap_err()
            .to_string();
        assert!(missing.contains("no interface \"nosuch0\""), "{missing}");
        let none = prepare("net_af_xdp0", 1).unwrap_err().to_string();
        assert!(none.contains("net_af_xdp0,iface=NAME"), "{none}");
        let large = prepare("net_af_packet0,iface=lo,framesz=16384", 1)
            .unwrap_err()
            .to_string();
        assert!(large.contains("2432"), "{large}");
        assert!(prepare("net_af_packet0,iface=lo,framesz=2048", 1).is_ok());
    }
}
