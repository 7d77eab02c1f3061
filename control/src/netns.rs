//! Work inside a named network namespace. Called by health checks for their sockets: a socket keeps
//! the namespace that it was made in, so only its creation has to happen inside.

use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io;
use std::path::Path;

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
}
