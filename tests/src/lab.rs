//! Network namespaces, veth pairs, addresses: the wires of the lab.
//!
//! Called by the tests and the demo. A [`Lab`] owns its namespaces (`wr<pid>-<n>-<name>`) and removes
//! them, with what still runs inside, on drop. Leftovers of dead processes, by that prefix alone, are
//! swept when the first lab of a process opens.

use crate::process::{self, Child, Finished};
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// Ample for any command that only sets something up.
const SETUP: Duration = Duration::from_secs(20);

/// Labs run one at a time in a process: the machine has few cores, and an appliance polls.
static ONE_LAB: Mutex<()> = Mutex::new(());
static NEXT: AtomicU32 = AtomicU32::new(0);
static SWEEP: Once = Once::new();

/// A set of namespaces and a scratch folder, removed on drop.
#[derive(Debug)]
pub struct Lab {
    prefix: String,
    hosts: Vec<String>,
    folder: tempfile::TempDir,
    _one: MutexGuard<'static, ()>,
}

/// A namespace of a [`Lab`], by name. Lives no longer than the lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(String);

impl Lab {
    /// Opens a lab; waits until no other lab of this process is open.
    ///
    /// # Errors
    /// Without root, or when the scratch folder cannot be made.
    pub fn new() -> Result<Self> {
        if !Uid::effective().is_root() {
            bail!("this needs root (it makes network namespaces): run it as root, or by `./run test`");
        }
        let one = ONE_LAB.lock().unwrap_or_else(PoisonError::into_inner);
        SWEEP.call_once(sweep);
        let prefix = format!(
            "wr{}-{}-",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir()?;
        Ok(Self {
            prefix,
            hosts: Vec::new(),
            folder,
            _one: one,
        })
    }

    /// The scratch folder, removed with the lab.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file into the scratch folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder().join(name);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// A new namespace with loopback up.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn host(&mut self, name: &str) -> Result<Host> {
        let full = format!("{}{name}", self.prefix);
        // Before the command: a half-made namespace is removed too.
        self.hosts.push(full.clone());
        process::run(None, &["ip", "netns", "add", &full], SETUP)?.success()?;
        let host = Host(full);
        host.ip("link set lo up")?;
        Ok(host)
    }

    /// A veth pair, `a_if` in `a` and `b_if` in `b`: up, transmit checksum offload (and with it
    /// segmentation offload) off at both ends, so that what DPDK sees is what a wire would carry.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn link(&self, a: &Host, a_if: &str, b: &Host, b_if: &str) -> Result<()> {
        self.link_queues(a, a_if, b, b_if, 1)
    }

    /// As [`Lab::link`], with `queues` receive and transmit queues at both ends.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn link_queues(&self, a: &Host, a_if: &str, b: &Host, b_if: &str, queues: usize) -> Result<()> {
        let count = format!("numtxqueues {queues} numrxqueues {queues}");
        let far = b.name();
        a.ip(&format!(
            "link add {a_if} {count} type veth peer name {b_if} {count} netns {far}"
        ))?;
        for (host, interface) in [(a, a_if), (b, b_if)] {
            host.command(&["ethtool", "-K", interface, "tx", "off"])?;
            host.ip(&format!("link set {interface} up"))?;
        }
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in self.hosts.drain(..) {
            remove(&name);
        }
    }
}

impl Host {
    /// The namespace's name, as `ip netns` and a check's `netns` key take it.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Runs `ip -n <this namespace> ARGS`, the arguments split at blanks.
    ///
    /// # Errors
    /// When it fails, with what it printed.
    pub fn ip(&self, args: &str) -> Result<String> {
        let mut argv = vec!["ip", "-n", &self.0];
        argv.extend(args.split_ascii_whitespace());
        process::run(None, &argv, SETUP)?.success()
    }

    /// Runs a set-up command inside; it must end with code 0.
    ///
    /// # Errors
    /// When it fails, with what it printed.
    pub fn command(&self, argv: &[&str]) -> Result<String> {
        self.run(argv, SETUP)?.success()
    }

    /// Runs a command inside to its end, whatever its code.
    ///
    /// # Errors
    /// As [`process::run`].
    pub fn run(&self, argv: &[&str], timeout: Duration) -> Result<Finished> {
        process::run(Some(&self.0), argv, timeout)
    }

    /// Starts a command inside.
    ///
    /// # Errors
    /// As [`process::spawn`].
    pub fn spawn(&self, argv: &[&str]) -> Result<Child> {
        process::spawn(Some(&self.0), argv)
    }

    /// Adds an address with prefix length to an interface. IPv6 skips DAD, so that it serves at once.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn address(&self, interface: &str, address: &str) -> Result<()> {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        self.ip(&format!("addr add {address} dev {interface}{nodad}"))
            .map(drop)
    }

    /// Sets a kernel parameter of this namespace.
    ///
    /// # Errors
    /// When there is no such key, or the value is refused.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.command(&["sysctl", "-q", "-w", &format!("{key}={value}")])
            .map(drop)
    }

    /// MAC address of an interface.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn mac(&self, interface: &str) -> Result<[u8; 6]> {
        let text = self.ip(&format!("-o link show dev {interface}"))?;
        let mac = text
            .split("link/ether ")
            .nth(1)
            .and_then(|rest| rest.split_ascii_whitespace().next());
        parse_mac(mac.with_context(|| format!("no MAC address in: {text}"))?)
    }
}

/// Six hexadecimal octets with colons.
///
/// # Errors
/// Anything else.
pub fn parse_mac(text: &str) -> Result<[u8; 6]> {
    let octets: Result<Vec<u8>, _> = text
        .split(':')
        .map(|octet| u8::from_str_radix(octet, 16))
        .collect();
    octets
        .ok()
        .and_then(|octets| octets.try_into().ok())
        .with_context(|| format!("not a MAC address: {text}"))
}

/// Kills what runs inside a namespace, then removes it. Silent when there is none.
fn remove(name: &str) {
    if let Ok(pids) = process::run(None, &["ip", "netns", "pids", name], SETUP) {
        for pid in pids.stdout.lines().filter_map(|line| line.trim().parse().ok()) {
            // Fails only when the process is gone already.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    let _ = process::run(None, &["ip", "netns", "del", name], SETUP);
}

/// The process that a namespace's name says made it.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix("wr")?.split_once('-')?.0.parse().ok()
}

/// Removes what labs of dead processes left: namespaces and scratch folders, by our names alone.
pub fn sweep() {
    clear(|pid| !Path::new(&format!("/proc/{pid}")).exists());
}

/// Removes every lab of this process. For an exit on which nothing is dropped.
pub fn remove_own() {
    clear(|pid| pid == std::process::id());
}

fn clear(whose: impl Fn(u32) -> bool) {
    let named = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| owner(name).is_some_and(&whose)).collect()
    };
    for name in named(Path::new("/run/netns")) {
        remove(&name);
    }
    let scratch = std::env::temp_dir();
    for name in named(&scratch) {
        // Gone already, or not ours to remove: either way there is nothing more to do.
        let _ = std::fs::remove_dir_all(scratch.join(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_read_from_our_names_alone() {
        assert_eq!(owner("wr123-0-app"), Some(123));
        for other in ["wr-0-app", "wrx-0", "w123-0-app", "blue", "wr123", ""] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn mac_addresses_parse() {
        assert_eq!(
            parse_mac("02:00:5e:00:53:ff").unwrap(),
            [2, 0, 0x5e, 0, 0x53, 0xff]
        );
        for bad in ["", "02:00:5e:00:53", "02:00:5e:00:53:ff:00", "0x:00:5e:00:53:ff"] {
            assert!(parse_mac(bad).is_err(), "{bad}");
        }
    }
}
