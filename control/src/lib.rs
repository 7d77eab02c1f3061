//! Windrose control: everything beside the poll cores. The `windrose` binary is a thin main over it.

pub mod admin;
pub mod agent;
pub mod alerts;
mod capture;
pub mod cli;
pub mod config;
pub mod data;
pub mod health;
pub mod latency;
pub mod netns;
pub mod overrides;
pub mod policy;
pub mod publish;
pub mod reports;
#[cfg(feature = "dpdk")]
pub mod run;
pub mod state;
pub mod tcp;
mod zones;
