//! The part of the checked configuration that says where the admin API listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `[admin]`.
#[derive(Clone)]
pub struct Admin {
    /// Unix socket of the admin API. Default "/run/windrose.sock".
    pub socket: PathBuf,
    /// `listen = "127.0.0.1:9153"`: the API and `/metrics` on TCP; needs a token for all but `/metrics`.
    pub listen: Option<SocketAddr>,
    /// Bearer token for TCP.
    pub token: Option<String>,
}

// By hand, so that no log or message can hold the token.
impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "(not shown)");
        let Self {
            socket,
            listen,
            token: _,
        } = self;
        f.debug_struct("Admin")
            .field("socket", socket)
            .field("listen", listen)
            .field("token", &token)
            .finish()
    }
}
