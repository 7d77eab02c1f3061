//! DNS over TCP (RFC 7766, RFC 9210): the exception path behind the punt rings, and the listener at its end.
//!
//! One thread, in a network namespace without a name, owns everything: the TUN interface, the kernel's TCP
//! sockets, the clients' ways, and one engine. `run` starts it, the publisher feeds it ([`Sink`]), its replies
//! go back through the publisher ([`Injector`]). All its work shares that one thread, so whatever
//! floods it takes a CPU of control's at most, and nothing of a worker's beyond a full ring.
//!
//! ```text
//!  worker --punt ring--> publisher --Sink--> exception --> TUN --> kernel TCP --> listener, connection
//!  worker <--injections-- publisher <-- exception (way by neighbours) <-- TUN <------'  answer (engine)
//! ```

mod answer;
mod connection;
pub mod counters;
mod exception;
pub mod frame;
pub mod framing;
mod interface;
mod limits;
mod listener;
mod neighbours;

pub use answer::link;
pub use counters::Tally;
pub use exception::{Inbox, Sink, queue};

use crate::config::model;
use crate::netns;
use crate::publish::Injector;
use answer::Answerer;
use anyhow::{Context, Result, anyhow};
use connection::Shared;
use dataplane::io::WINDOW;
use dataplane::link::WorkerLink;
use dataplane::tables::Snapshot;
use interface::Interface;
use limits::{Connections, Limits};
use neighbours::Neighbours;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::cell::RefCell;
use std::collections::HashSet;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::MissedTickBehavior;

/// How often tables and words are taken when no query comes.
const TURN: Duration = Duration::from_millis(20);
/// Descriptors that everything but DNS connections may need.
const OTHER_DESCRIPTORS: u64 = 512;

/// Largest MTU of the interface: a packet and what stands before it fit a slot of the rings.
pub const MTU_MAX: u16 = (WINDOW - frame::LINK_MAX) as u16;

/// The running thread. Dropping it ends it, and with it every connection.
pub struct Tcp {
    stop: Option<oneshot::Sender<()>>,
    addresses: UnboundedSender<HashSet<IpAddr>>,
    thread: Option<JoinHandle<()>>,
    tally: Arc<Tally>,
}

/// What the thread is told at start.
struct Start {
    config: model::Tcp,
    mtu: u16,
    addresses: HashSet<IpAddr>,
    inbox: Inbox,
    injector: Injector<Snapshot>,
    link: WorkerLink<Snapshot>,
    tally: Arc<Tally>,
    new_addresses: UnboundedReceiver<HashSet<IpAddr>>,
    stop: oneshot::Receiver<()>,
}

/// Starts the thread and waits until it listens. `mtu`: the least of all ports; `addresses`: the service
/// addresses of all ports; `link`: the worker's end of [`link`], whose other end the publisher has.
///
/// # Errors
/// What the kernel refuses; nothing is left of it.
pub fn start(
    config: &model::Tcp,
    mtu: u16,
    addresses: HashSet<IpAddr>,
    inbox: Inbox,
    injector: Injector<Snapshot>,
    link: WorkerLink<Snapshot>,
) -> Result<Tcp> {
    let mut config = config.clone();
    config.connections = raise_descriptors(config.connections);
    let tally = Arc::new(Tally::default());
    let (to_thread, new_addresses) = unbounded_channel();
    let (stop, stopped) = oneshot::channel();
    let (report, ready) = std::sync::mpsc::channel();
    let start = Start {
        config,
        mtu: mtu.min(MTU_MAX),
        addresses,
        inbox,
        injector,
        link,
        tally: tally.clone(),
        new_addresses,
        stop: stopped,
    };
    let body = move || {
        let runtime = netns::leave_for_new()
            .map_err(anyhow::Error::from)
            .and_then(|()| {
                // Made here, so that whatever it opens is inside.
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .context("the TCP thread's runtime")
            });
        match runtime {
            Ok(runtime) => LocalSet::new().block_on(&runtime, run(start, report)),
            Err(error) => _ = report.send(Err(error)),
        }
    };
    let thread = std::thread::Builder::new()
        .name("windrose-tcp".into())
        .spawn(body)
        .context("cannot start the TCP thread")?;
    let tcp = Tcp {
        stop: Some(stop),
        addresses: to_thread,
        thread: Some(thread),
        tally,
    };
    ready
        .recv()
        .map_err(|_| anyhow!("the TCP thread ended at once"))
        .flatten()
        .context("DNS over TCP (needs root and /dev/net/tun; `enabled = false` in [dns.tcp] does without)")?;
    Ok(tcp)
}

impl Tcp {
    /// Has the interface carry these addresses, after a reload.
    pub fn set_addresses(&self, addresses: HashSet<IpAddr>) {
        // An error means that the thread has ended, and has said why.
        let _ = self.addresses.send(addresses);
    }

    /// What it counts.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // An error means that it has ended already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the TCP thread panicked");
        }
    }
}

/// The thread's life: sets up, reports, serves until told to stop.
async fn run(mut start: Start, report: std::sync::mpsc::Sender<Result<()>>) {
    let set_up = async {
        let interface = Interface::new(start.mtu, &start.addresses).await?;
        Ok((interface, listener::open().context("port 53")?))
    };
    let ((mut interface, tun), listener) = match set_up.await {
        Ok(done) => done,
        Err(error) => {
            let _ = report.send(Err(error));
            return;
        }
    };
    let thread = nix::unistd::gettid();
    tracing::info!(
        mtu = start.mtu,
        netns = format!("/proc/{}/task/{thread}/ns/net", std::process::id()),
        "DNS over TCP"
    );
    let _ = report.send(Ok(()));
    let limits = Limits {
        total: start.config.connections as usize,
        per_client: start.config.connections_per_client as usize,
    };
    let shared = Rc::new(Shared {
        answerer: RefCell::new(Answerer::new(
            start.link,
            fastrand::u64(..),
            start.config.idle_timeout,
            start.tally.clone(),
        )),
        connections: RefCell::new(Connections::new(limits)),
        tally: start.tally.clone(),
        idle: start.config.idle_timeout,
    });
    let neighbours = RefCell::new(Neighbours::default());
    tokio::select! {
        () = exception::forward(start.inbox, &tun, &neighbours, &start.tally) => {}
        () = exception::send_back(&tun, &neighbours, &start.injector, &start.tally) => {}
        () = listener::accept(listener, shared.clone()) => {}
        () = turn(&shared) => {}
        () = follow(&mut interface, &mut start.new_addresses) => {}
        _ = &mut start.stop => {}
    }
}

/// Takes tables and words on time.
async fn turn(shared: &Shared) {
    let mut clock = tokio::time::interval(TURN);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        shared.answerer.borrow_mut().turn();
    }
}

/// Follows the service addresses over reloads.
async fn follow(interface: &mut Interface, addresses: &mut UnboundedReceiver<HashSet<IpAddr>>) {
    while let Some(wanted) = addresses.recv().await {
        if let Err(error) = interface.set_addresses(&wanted).await {
            tracing::error!(
                error = format!("{error:#}"),
                "no DNS over TCP for a service address"
            );
        }
    }
}

/// Raises the limit on descriptors as far as the system lets us; the connections that it leaves room for.
fn raise_descriptors(connections: u32) -> u32 {
    let wanted = u64::from(connections) + OTHER_DESCRIPTORS;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return connections;
    };
    if soft >= wanted {
        return connections;
    }
    let now = wanted.min(hard);
    if setrlimit(Resource::RLIMIT_NOFILE, now, hard).is_ok() && now == wanted {
        return connections;
    }
    let left = now.saturating_sub(OTHER_DESCRIPTORS).max(1) as u32;
    tracing::warn!(
        connections,
        left,
        "the limit on open files leaves room for fewer DNS connections"
    );
    left
}
