//! The Environment Abstraction Layer: started once a process, by control or pktgen, before any pool
//! or port. Owns the choice between huge pages and none, and leaves the caller's CPU affinity alone.

use super::error::{DpdkError, last_reason};
use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How EAL is started.
#[derive(Clone, Debug)]
pub struct EalConfig {
    /// Name of the program: first part of the file prefix, which also has the process id.
    pub name: String,
    /// Memory to reserve, bytes; rounded up to 1 MiB.
    pub memory_bytes: u64,
    /// PCI addresses that EAL may take. None: the PCI bus is not looked at.
    pub pci: Vec<String>,
    /// Further arguments, verbatim. They come last; an argument given here is not given by default.
    pub args: Vec<String>,
}

impl Default for EalConfig {
    fn default() -> Self {
        Self {
            name: "windrose".into(),
            memory_bytes: 256 << 20,
            pci: Vec::new(),
            args: Vec::new(),
        }
    }
}

/// The running EAL. Clones speak of the same; the last one dropped cleans up, after all pools,
/// ports and registered threads.
#[derive(Clone, Debug)]
pub struct Eal(Arc<Running>);

#[derive(Debug)]
struct Running {
    huge: bool,
    args: Vec<String>,
    /// DPDK's directory for this process's files, if it is ours alone and there is anything in it
    /// (further arguments may ask for that). Removed at the end.
    run_dir: Option<PathBuf>,
}

static STARTED: AtomicBool = AtomicBool::new(false);

impl Eal {
    /// Starts EAL on a thread of its own, since EAL pins the thread that starts it. Raises
    /// RLIMIT_MEMLOCK as far as allowed, which af_xdp needs. EAL logs errors to standard error.
    pub fn init(config: &EalConfig) -> Result<Eal, DpdkError> {
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(DpdkError::AlreadyStarted);
        }
        raise_memlock();
        let prefix = format!("{}-{}", config.name, std::process::id());
        let huge = !has(&config.args, "--no-huge")
            && free_huge_bytes(Path::new("/sys/kernel/mm/hugepages")) >= config.memory_bytes;
        let args = arguments(config, &prefix, huge, first_allowed_cpu());
        let c_args = args
            .iter()
            .map(|arg| {
                CString::new(arg.as_str()).map_err(|_| DpdkError::Nul {
                    what: "the EAL argument",
                    value: arg.clone(),
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let started = std::thread::Builder::new()
            .name("eal-init".into())
            .spawn(move || start(c_args));
        let started = started.map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err("its thread panicked".into()))
        });
        let failed = |reason| DpdkError::Eal {
            args: args.join(" "),
            reason,
        };
        let run_dir = started
            .map_err(|error| failed(error.to_string()))?
            .map_err(failed)?;
        let run_dir = run_dir.filter(|dir| dir.file_name().is_some_and(|name| name == prefix.as_str()));
        // As started here it stays empty, so it can go at once: a process that dies leaves none.
        let run_dir = run_dir.filter(|dir| std::fs::remove_dir(dir).is_err());
        Ok(Eal(Arc::new(Running { huge, args, run_dir })))
    }

    /// True when packet memory lies in huge pages.
    pub fn huge_pages(&self) -> bool {
        self.0.huge
    }

    /// The arguments that EAL was started with, the program's name first.
    pub fn args(&self) -> &[String] {
        &self.0.args
    }

    /// DPDK's version, as it names itself.
    pub fn version() -> String {
        // SAFETY: rte_version returns a static string.
        unsafe { CStr::from_ptr(dpdk_sys::rte_version()) }
            .to_string_lossy()
            .into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: EAL runs, and nothing that needs it is left: every such object holds an `Eal`.
        unsafe { dpdk_sys::rte_eal_cleanup() };
        if let Some(dir) = &self.run_dir {
            // Its name holds our process id. What cannot be removed is left to the administrator.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// Runs `rte_eal_init` on this thread; gives DPDK's run-time directory.
fn start(args: Vec<CString>) -> Result<Option<PathBuf>, String> {
    // EAL keeps pointers into its arguments, and may permute the array: both stay for good.
    let args: &'static [CString] = args.leak();
    let mut argv: Vec<*mut c_char> = args.iter().map(|arg| arg.as_ptr().cast_mut()).collect();
    argv.push(std::ptr::null_mut());
    let argv = argv.leak();
    // SAFETY: no EAL call was made before, by the flag in `init`. `argv` has one string per argument
    // and ends with a null; EAL does not write to the strings.
    let code = unsafe {
        dpdk_sys::shim_log_to_stderr();
        dpdk_sys::rte_eal_init(args.len() as c_int, argv.as_mut_ptr())
    };
    if code < 0 {
        return Err(last_reason());
    }
    // SAFETY: EAL runs; it returns a string of its own that lives as long as the process, or null.
    let dir = unsafe {
        let dir = dpdk_sys::rte_eal_get_runtime_dir();
        if dir.is_null() {
            None
        } else {
            Some(CStr::from_ptr(dir).to_string_lossy().into_owned())
        }
    };
    Ok(dir.map(PathBuf::from))
}

/// EAL's arguments. Those of the configuration win over the defaults.
fn arguments(config: &EalConfig, prefix: &str, huge: bool, cpu: usize) -> Vec<String> {
    let mut args = vec![config.name.clone()];
    let mut default = |unless: &[&str], new: &[String]| {
        if !unless.iter().any(|flag| has(&config.args, flag)) {
            args.extend_from_slice(new);
        }
    };
    let mebibytes = config.memory_bytes.div_ceil(1 << 20).max(1).to_string();
    // Workers are not EAL's: it gets one lcore, for the thread that starts it and then ends.
    default(&["-l", "-c", "--lcores"], &[format!("--lcores=0@{cpu}")]);
    default(&["-m", "--socket-mem"], &["-m".into(), mebibytes]);
    default(&["--file-prefix"], &[format!("--file-prefix={prefix}")]);
    default(&["--no-telemetry", "--telemetry"], &["--no-telemetry".into()]);
    default(&["--log-level"], &["--log-level=*:error".into()]);
    // No files are shared with other processes. --in-memory says so for huge pages, and leaves none
    // behind; it cannot go with --no-huge.
    if huge {
        default(
            &["--in-memory", "--huge-dir", "--proc-type"],
            &["--in-memory".into()],
        );
    } else {
        default(&["--no-huge"], &["--no-huge".into()]);
        default(&["--no-shconf"], &["--no-shconf".into()]);
    }
    // Without a list EAL takes every device bound to a DPDK driver, those of others too.
    if config.pci.is_empty() {
        default(
            &["--no-pci", "-a", "--allow", "-b", "--block"],
            &["--no-pci".into()],
        );
    } else {
        for address in &config.pci {
            default(&[], &["-a".into(), address.clone()]);
        }
    }
    args.extend_from_slice(&config.args);
    args
}

/// Whether `flag` is among `args`, alone or with a value behind it ("--x=1", "-m64").
fn has(args: &[String], flag: &str) -> bool {
    args.iter().any(|arg| {
        arg.strip_prefix(flag).is_some_and(|rest| {
            rest.is_empty() || rest.starts_with('=') || (!flag.starts_with("--") && !rest.starts_with('-'))
        })
    })
}

/// Bytes of free huge pages of all sizes.
fn free_huge_bytes(dir: &Path) -> u64 {
    let Ok(sizes) = std::fs::read_dir(dir) else {
        return 0;
    };
    sizes
        .flatten()
        .filter_map(|size| {
            let name = size.file_name();
            let kilobytes: u64 = name
                .to_str()?
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()?;
            let free = std::fs::read_to_string(size.path().join("free_hugepages")).ok()?;
            Some(kilobytes * 1024 * free.trim().parse::<u64>().ok()?)
        })
        .sum()
}

/// The first CPU that this thread may run on.
fn first_allowed_cpu() -> usize {
    core_affinity::get_core_ids()
        .and_then(|ids| ids.first().map(|id| id.id))
        .unwrap_or(0)
}

/// AF_XDP's packet memory counts as locked. Root may lift the limit; others keep theirs.
fn raise_memlock() {
    let no_limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a struct of ours is read; a refusal changes nothing.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &no_limit) };
}

/// Makes the calling thread known to EAL, so that its packet pool has a cache for it. Undone when
/// the guard is dropped, on the same thread.
pub fn register_thread(eal: &Eal) -> Result<RegisteredThread, DpdkError> {
    // SAFETY: EAL runs. A second registration of one thread is refused by the check.
    unsafe {
        if dpdk_sys::shim_lcore_id() != dpdk_sys::LCORE_ID_ANY {
            return Err(DpdkError::Thread {
                reason: "it is registered already".into(),
            });
        }
        if dpdk_sys::rte_thread_register() != 0 {
            return Err(DpdkError::Thread {
                reason: last_reason(),
            });
        }
    }
    Ok(RegisteredThread {
        _eal: eal.clone(),
        _this_thread: PhantomData,
    })
}

/// See [`register_thread`]. Stays on its thread.
#[derive(Debug)]
pub struct RegisteredThread {
    _eal: Eal,
    _this_thread: PhantomData<*const ()>,
}

impl RegisteredThread {
    /// EAL's number for this thread.
    pub fn lcore(&self) -> u32 {
        // SAFETY: reads a thread-local number.
        unsafe { dpdk_sys::shim_lcore_id() }
    }
}

impl Drop for RegisteredThread {
    fn drop(&mut self) {
        // SAFETY: this thread was registered by `register_thread`, as the guard cannot leave it.
        unsafe { dpdk_sys::rte_thread_unregister() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(args: &[&str], pci: &[&str]) -> EalConfig {
        EalConfig {
            memory_bytes: (64 << 20) + 1,
            pci: pci.iter().map(|s| s.to_string()).collect(),
            args: args.iter().map(|s| s.to_string()).collect(),
            ..EalConfig::default()
        }
    }

    #[test]
    fn defaults_need_no_huge_pages_and_touch_no_pci_device() {
        let args = arguments(&with(&[], &[]), "windrose-7", false, 3).join(" ");
        assert_eq!(
            args,
            "windrose --lcores=0@3 -m 65 --file-prefix=windrose-7 --no-telemetry --log-level=*:error --no-huge \
             --no-shconf --no-pci"
        );
    }

    #[test]
    fn huge_pages_go_in_memory_and_pci_devices_are_listed() {
        let args = arguments(&with(&[], &["0000:3b:00.0"]), "p", true, 0).join(" ");
        assert!(args.ends_with("--in-memory -a 0000:3b:00.0"), "{args}");
        assert!(
            !args.contains("--no-huge") && !args.contains("--no-pci"),
            "{args}"
        );
    }

    #[test]
    fn what_the_user_gives_is_not_given_twice() {
        let given = ["-m128", "--log-level=lib.eal:debug", "-l", "1", "--file-prefix=x"];
        let args = arguments(&with(&given, &[]), "p", false, 0);
        assert_eq!(args.iter().filter(|arg| arg.starts_with("-m")).count(), 1);
        assert_eq!(
            args.iter().filter(|arg| arg.starts_with("--log-level")).count(),
            1
        );
        assert!(
            !args
                .iter()
                .any(|arg| arg.starts_with("--lcores") || arg == "--file-prefix=p")
        );
    }
}
