//! What can go wrong with EAL, pools and ports: what, where, and what to do about it.

use core::ffi::{CStr, c_int};

/// An error of a DPDK object. DPDK's own lines about it are on standard error.
#[derive(Debug, thiserror::Error)]
pub enum DpdkError {
    /// EAL starts once a process.
    #[error("EAL was started before in this process; it starts once a process")]
    AlreadyStarted,
    /// `rte_eal_init` failed.
    #[error(
        "EAL did not start ({reason}); its arguments were: {args}. Check the `eal` arguments and `memory`"
    )]
    Eal {
        /// The arguments, separated by blanks.
        args: String,
        /// DPDK's word for it.
        reason: String,
    },
    /// A string that no C function takes.
    #[error("{what} {value:?} holds a NUL byte; remove it")]
    Nul {
        /// Which string.
        what: &'static str,
        /// Its value.
        value: String,
    },
    /// No memory for a packet pool.
    #[error(
        "no packet pool of {buffers} buffers ({bytes} bytes, NUMA node {socket}): {reason}. Raise `memory`, or lower \
         `buffers` or the number of workers"
    )]
    Pool {
        /// Buffers wanted.
        buffers: u32,
        /// About what they take.
        bytes: u64,
        /// NUMA node, -1 for any.
        socket: i32,
        /// DPDK's word for it.
        reason: String,
    },
    /// The pool cannot fill the queues of its ports.
    #[error(
        "{device}: its queues and those before it hold up to {needed} buffers of a pool of {buffers}. Raise `buffers`, \
         or lower `rx_descriptors` and `tx_descriptors` (af_xdp keeps 4096 at least)"
    )]
    Buffers {
        /// The port's device.
        device: String,
        /// Buffers that descriptors may hold, over all ports of the worker, and what a burst takes.
        needed: u32,
        /// Buffers in the pool.
        buffers: u32,
    },
    /// The kernel interface of af_packet or af_xdp is not there.
    #[error(
        "{device}: there is no interface {interface:?} in this network namespace. Check `iface=` against `ip link`"
    )]
    NoInterface {
        /// The port's device.
        device: String,
        /// The interface.
        interface: String,
    },
    /// A device argument that does not fit the configuration.
    #[error("{device}: {problem}")]
    Devargs {
        /// The port's device.
        device: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The device is in use by this process.
    #[error(
        "{device}: a port of this device is open already; give each port a device (and vdev name) of its own"
    )]
    InUse {
        /// The port's device.
        device: String,
    },
    /// The driver refused the device, or there is none.
    #[error("{device}: no port came of it ({reason}). {hint}")]
    Probe {
        /// The port's device.
        device: String,
        /// DPDK's word for it.
        reason: String,
        /// What to check.
        hint: String,
    },
    /// More queue pairs than the port has.
    #[error(
        "{device}: {wanted} workers need {wanted} queue pairs, the driver {driver} has {max}. Use fewer `cores`"
    )]
    Queues {
        /// The port's device.
        device: String,
        /// Its driver.
        driver: String,
        /// Queue pairs wanted.
        wanted: u16,
        /// Queue pairs that it has.
        max: u16,
    },
    /// The MTU cannot be had.
    #[error("{device}: mtu = {mtu} is refused: {reason}")]
    Mtu {
        /// The port's device.
        device: String,
        /// What was asked for.
        mtu: u16,
        /// Why, and what to do.
        reason: String,
    },
    /// A step of bringing the port up or down failed.
    #[error("{device}: {step} failed: {reason}; DPDK's own words are on standard error")]
    Port {
        /// The port's device.
        device: String,
        /// The step.
        step: &'static str,
        /// DPDK's word for it.
        reason: String,
    },
    /// The thread has no place among EAL's.
    #[error("the thread was not registered with EAL: {reason}. At most 128 threads can be")]
    Thread {
        /// DPDK's word for it.
        reason: String,
    },
}

/// The text of an error code, whose sign does not matter. `-1` says nothing, so it says so.
pub(super) fn reason(code: c_int) -> String {
    if code == -1 {
        return "the driver gave no reason".to_owned();
    }
    // SAFETY: rte_strerror takes any number and returns a string of this thread, copied at once.
    let text = unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(code.abs())) };
    text.to_string_lossy().into_owned()
}

/// The text of this thread's `rte_errno`.
pub(super) fn last_reason() -> String {
    // SAFETY: reads a thread-local number.
    reason(unsafe { dpdk_sys::shim_errno() })
}
