//! Tests elsewhere that items point at. A test sees to it that there are such functions.

/// Of tests/tests/tcp.rs.
pub(crate) const TCP_LIMITS: &[&str] = &[
    "idle_connections_are_closed_and_bytes_alone_do_not_count",
    "limits_close_the_connection_that_waits_longest",
    "floods_over_tcp_take_nothing_from_udp",
];
