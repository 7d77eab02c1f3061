//! Work inside a network namespace: a named one, for the sockets of health checks (a socket keeps the
//! namespace that it was made in, so only its creation has to happen inside), or a new one without a
//! name, with a TUN interface in it, for DNS over TCP.

// TUNSETIFF has no safe wrapper in the standard library or nix; registering a file with tokio has none either.
#![allow(unsafe_code)]

use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tokio::io::unix::AsyncFd;

/// Where `ip netns add NAME` keeps its namespaces.
const NETNS_DIR: &str = "/run/netns";

/// Runs `work` with the network namespace `name` (`/run/netns/NAME`) around it.
///
/// It runs on a thread of its own that ends with it: a thread that failed to come back would poison
/// whatever it did next. Blocks until `work` is done; from async code call it in `spawn_blocking`.
///
/// # Errors
/// The namespace does not exist, may not be entered (needs CAP_SYS_ADMIN), or no thread could start.
pub fn within<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let path = Path::new(NETNS_DIR).join(name);
    let explain =
        |e: io::Error| io::Error::new(e.kind(), format!("network namespace {}: {e}", path.display()));
    let namespace = File::open(&path).map_err(explain)?;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, || {
                setns(&namespace, CloneFlags::CLONE_NEWNET).map_err(|e| explain(e.into()))?;
                Ok(work())
            })?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Moves the calling thread into a new network namespace, for good: threads that it starts are born there.
///
/// The namespace has no name, so two processes never meet in it, and the kernel removes it with the
/// last thread, socket or interface file in it, whichever way the process ends.
///
/// # Errors
/// Without CAP_SYS_ADMIN.
pub fn leave_for_new() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|e| io::Error::new(io::Error::from(e).kind(), format!("a new network namespace: {e}")))
}

/// Makes a TUN interface in the calling thread's namespace. Each read of the file gives one IP packet, each
/// write takes one; neither waits. The interface goes when the file is closed. Call it inside the runtime that
/// will wait for packets.
///
/// # Errors
/// `/dev/net/tun` is missing or may not be used (needs CAP_NET_ADMIN), or the name is taken or too long.
pub fn open_tun(name: &str) -> io::Result<AsyncFd<File>> {
    const DEVICE: &str = "/dev/net/tun";
    let explain = |e: io::Error| io::Error::new(e.kind(), format!("TUN interface {name} by {DEVICE}: {e}"));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(DEVICE)
        .map_err(explain)?;
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            // Both flags are below 2^15.
            ifru_flags: (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short,
        },
    };
    // The last byte stays zero.
    if name.len() >= libc::IFNAMSIZ {
        return Err(explain(io::ErrorKind::InvalidInput.into()));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the descriptor is open, and the request is a live ifreq, which is what TUNSETIFF reads and writes.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if made < 0 {
        return Err(explain(io::Error::last_os_error()));
    }
    // SAFETY: the file owns its descriptor, and AsyncFd owns the file; nobody closes or replaces it meanwhile.
    Ok(unsafe { AsyncFd::register(file) }?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::process::Command;

    /// A namespace of this test, removed on drop.
    pub(crate) struct Namespace(pub(crate) String);

    impl Namespace {
        /// Adds it, with its loopback up.
        pub(crate) fn new(tag: &str) -> Self {
            let name = format!("wr-{tag}-{}", std::process::id());
            let made = Command::new("ip").args(["netns", "add", &name]).status();
            assert!(
                made.is_ok_and(|s| s.success()),
                "this test needs root and iproute2: ip netns add {name} failed"
            );
            let namespace = Self(name);
            let up = Command::new("ip")
                .args(["-n", &namespace.0, "link", "set", "lo", "up"])
                .status();
            assert!(
                up.is_ok_and(|s| s.success()),
                "could not bring up lo in {}",
                namespace.0
            );
            namespace
        }
    }

    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
        }
    }

    fn own() -> std::path::PathBuf {
        std::fs::read_link("/proc/thread-self/ns/net").unwrap()
    }

    #[test]
    fn work_runs_inside_and_the_caller_stays_outside() {
        let before = own();
        let ns = Namespace::new("unit");
        let inside = within(&ns.0, own).unwrap();
        assert_ne!(inside, before);
        assert_eq!(own(), before);
    }

    #[test]
    fn a_missing_namespace_is_named() {
        let error = within("no-such-namespace", || ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(
            error.to_string().contains("/run/netns/no-such-namespace"),
            "{error}"
        );
    }

    #[test]
    fn a_tun_in_a_new_namespace_is_seen_there_alone_and_goes_with_it() {
        let name = "wr-unit-tun";
        let before = own();
        let thread = std::thread::spawn(move || {
            leave_for_new().unwrap();
            assert_ne!(own(), before);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let tun = runtime.block_on(async { open_tun(name).unwrap() });
            assert!(nix::net::if_::if_nametoindex(name).is_ok());
            let taken = runtime.block_on(async { open_tun(name).unwrap_err() });
            assert_eq!(taken.kind(), io::ErrorKind::ResourceBusy, "{taken}");
            drop(tun);
            assert!(nix::net::if_::if_nametoindex(name).is_err());
        });
        thread.join().unwrap();
        assert!(nix::net::if_::if_nametoindex(name).is_err());
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let error = runtime.block_on(async { open_tun("a-name-of-16-byt").unwrap_err() });
            assert!(error.to_string().contains("a-name-of-16-byt"), "{error}");
        })
        .join()
        .unwrap();
    }
}
