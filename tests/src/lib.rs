//! The network-namespace lab that the end-to-end tests and the demo share.
//!
//! A [`lab::Lab`] owns namespaces; inside them run origins ([`origin`]), the appliance
//! ([`appliance`]) and real clients ([`client`]). Everything is removed on drop, also when a test
//! panics. Needs root and Linux; [`lab::Lab::new`] says so when it is not.

pub mod appliance;
pub mod capture;
pub mod client;
pub mod datagram;
pub mod lab;
pub mod laws;
pub mod libraries;
pub mod message;
pub mod nginx;
pub mod origin;
pub mod peer;
pub mod process;
pub mod raw;
pub mod stream;
pub mod world;
