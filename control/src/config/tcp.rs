//! Reads `[dns.tcp]`. Called by `sections`.

use super::model::Tcp;
use super::reader::Table;
use std::time::Duration;

/// `[dns.tcp]`.
pub(crate) fn tcp(table: &Table<'_>) -> Tcp {
    let get = |key| table.get(key);
    let default = Tcp::default();
    let idle_timeout = get("idle_timeout").and_then(|value| {
        value.duration(
            Duration::from_secs(1)..=Duration::from_secs(600),
            "from 1s to 10m",
        )
    });
    let connections = get("connections")
        .and_then(|value| value.integer(1..=65_536))
        .unwrap_or(default.connections);
    let per_client_value = get("connections_per_client");
    let per_client: u32 = per_client_value
        .as_ref()
        .and_then(|value| value.integer(1..=65_536))
        .unwrap_or(default.connections_per_client);
    if let Some(value) = per_client_value.filter(|_| per_client > connections) {
        value.report.warning(
            value.span,
            "`connections_per_client` is above `connections`, so one client may take them all",
            "lower it, or raise `connections`",
        );
    }
    Tcp {
        enabled: get("enabled")
            .and_then(|value| value.boolean())
            .unwrap_or(default.enabled),
        idle_timeout: idle_timeout.unwrap_or(default.idle_timeout),
        connections,
        connections_per_client: per_client,
        packets_per_second: get("packets_per_second")
            .and_then(|value| value.integer(100..=10_000_000))
            .unwrap_or(default.packets_per_second),
    }
}
