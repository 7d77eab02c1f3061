//! The admin API: HTTP over a Unix socket, and over TCP with a token if configured. The run loop
//! binds it before anything else starts and hands in the appliance once it runs; the command line
//! uses [`client`].
//!
//! * [`api`]: what is said; [`metrics`]: the same for Prometheus;
//! * [`server`]: the endpoints; [`socket`]: the Unix socket's file; [`client`]: the other end.

pub mod api;
pub mod client;
pub mod latency;
mod latency_metrics;
pub mod metrics;
pub mod server;
pub mod socket;

pub use api::Appliance;
pub use server::{Bound, Running};
