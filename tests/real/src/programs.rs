//! nginx, memcached and WireGuard in the hosts' namespaces. All end with their owners.

use crate::wires::{SERVER, Wires};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;
use windrose_tests::lab::Host;
use windrose_tests::process::{Child, eventually};

const START: Duration = Duration::from_secs(10);

/// nginx before an origin on port 9000 of the same host: HTTP/1.1 on 8080, TLS with HTTP/1.1 and HTTP/2 on 8443.
///
/// # Errors
/// When it does not start.
pub fn nginx(wires: &Wires, certificate: &str, key: &str) -> Result<Child> {
    let lab = &wires.lab;
    lab.write("certificate.pem", certificate)?;
    lab.write("key.pem", key)?;
    let root = lab.folder().display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {root}/{kind}; "))
        .collect();
    let text = format!(
        "daemon off; master_process off; pid {root}/nginx.pid; error_log stderr error;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; {temporary}\n\
         keepalive_requests 100000000; client_max_body_size 10m;\n\
         upstream origin {{ server 127.0.0.1:9000; keepalive 64; keepalive_requests 100000000; }}\n\
         server {{ listen {SERVER}:8080; listen {SERVER}:8443 ssl http2;\n\
         ssl_certificate {root}/certificate.pem; ssl_certificate_key {root}/key.pem;\n\
         location / {{ proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}\n"
    );
    let config = lab.write("nginx.conf", &text)?;
    let mut child = wires.server.spawn(&["nginx", "-c", &config.to_string_lossy()])?;
    let pid = lab.folder().join("nginx.pid");
    eventually("nginx listens", START, || {
        if !child.is_running()? {
            bail!("nginx ended:\n{}", child.output());
        }
        Ok(std::fs::metadata(&pid).is_ok_and(|file| file.len() > 0))
    })?;
    Ok(child)
}

/// memcached on port 11211.
///
/// # Errors
/// When it does not start.
pub fn memcached(wires: &Wires) -> Result<Child> {
    let address = SERVER.to_string();
    let argv = [
        "memcached",
        "-u",
        "root",
        "-U",
        "0",
        "-t",
        "1",
        "-l",
        &address,
        "-p",
        "11211",
    ];
    let mut child = wires.server.spawn(&argv)?;
    eventually("memcached listens", START, || {
        if !child.is_running()? {
            bail!("memcached ended:\n{}", child.output());
        }
        let listening = wires.server.command(&["ss", "-tlnH"])?;
        Ok(listening.contains(":11211"))
    })?;
    Ok(child)
}

/// A user-space tunnel: 10.99.0.1 at the client, 10.99.0.2 at the server.
#[derive(Debug)]
pub struct WireGuard {
    _ends: [Child; 2],
    sockets: [PathBuf; 2],
}

impl Drop for WireGuard {
    fn drop(&mut self) {
        for socket in &self.sockets {
            // Gone already if the program took it with it.
            let _ = std::fs::remove_file(socket);
        }
    }
}

impl WireGuard {
    /// Brings it up.
    ///
    /// # Errors
    /// When wireguard-go or wg fails.
    pub fn start(wires: &Wires) -> Result<Self> {
        // The control sockets lie in one folder for all namespaces.
        let names = ["a", "b"].map(|end| format!("wr{}{end}", std::process::id()));
        let hosts = [&wires.client, &wires.server];
        let mut public = Vec::new();
        for (host, name) in hosts.iter().zip(&names) {
            let key = host.command(&["wg", "genkey"])?;
            let file = wires.lab.write(name, &key)?;
            public.push(host.command(&["sh", "-c", &format!("wg pubkey < {}", file.display())])?);
        }
        let ends = [start(hosts[0], &names[0])?, start(hosts[1], &names[1])?];
        let sockets = names
            .each_ref()
            .map(|name| Path::new("/var/run/wireguard").join(format!("{name}.sock")));
        let made = Self { _ends: ends, sockets };
        let endpoint = format!("{SERVER}:51820");
        for (at, (host, name)) in hosts.iter().zip(&names).enumerate() {
            let (own, other) = (at + 1, 2 - at);
            let key = wires.lab.folder().join(name);
            let (key, allowed) = (key.to_string_lossy(), format!("10.99.0.{other}/32"));
            let peer = public.get(1 - at).context("no public key")?.trim();
            let mut argv = vec!["wg", "set", name, "private-key", &*key, "listen-port", "51820"];
            argv.extend(["peer", peer, "allowed-ips", &allowed]);
            if at == 0 {
                argv.extend(["endpoint", &endpoint]);
            }
            host.command(&argv)?;
            host.address(name, &format!("10.99.0.{own}/24"))?;
            host.ip(&format!("link set {name} mtu 1420 up"))?;
        }
        Ok(made)
    }
}

fn start(host: &Host, name: &str) -> Result<Child> {
    let mut child = host.spawn(&["wireguard-go", "-f", name])?;
    eventually("the tunnel's interface is there", START, || {
        if !child.is_running()? {
            bail!("wireguard-go ended:\n{}", child.output());
        }
        Ok(Path::new("/var/run/wireguard")
            .join(format!("{name}.sock"))
            .exists()
            && host.ip(&format!("link show {name}")).is_ok())
    })?;
    Ok(child)
}

/// tcpdump on the vantage point's `in`, nanosecond stamps, into `file`. It is recording when this returns.
///
/// # Errors
/// When it does not start.
pub fn record(wires: &Wires, file: &Path) -> Result<Child> {
    let file = file.to_string_lossy();
    let argv = [
        "tcpdump",
        "-i",
        "in",
        "-Q",
        "in",
        "-s",
        "200",
        "-B",
        "16384",
        "--time-stamp-precision=nano",
        "-Z",
        "root",
        "-w",
        &*file,
        "ip",
    ];
    let mut child = wires.vantage.spawn(&argv)?;
    eventually("tcpdump records", START, || {
        if !child.is_running()? {
            bail!("tcpdump ended:\n{}", child.output());
        }
        Ok(child.output().contains("listening on"))
    })?;
    Ok(child)
}
