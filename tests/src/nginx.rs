//! nginx as an origin that fails as it is told to: a share of its answers is 503, without a restart.
//!
//! Called by tests. Each [`Nginx`] owns its processes, which live in the namespace of its site and end with it.

use crate::lab::Host;
use crate::process::{Child, eventually};
use anyhow::{Context, Result, bail};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A running nginx.
#[derive(Debug)]
pub struct Nginx {
    folder: PathBuf,
    _child: Child,
}

/// Which of its answers are 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errors {
    /// None.
    None,
    /// Three in ten, at random.
    Third,
    /// All.
    All,
}

impl Nginx {
    /// Starts an nginx that answers with 200 on each address, and waits until it listens. Its files lie in
    /// `folder`, which it makes.
    ///
    /// # Errors
    /// When it cannot be started or does not listen within 10 s.
    pub fn start(host: &Host, folder: &Path, listen: &[SocketAddr]) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let root = folder.display();
        let listen: String = listen
            .iter()
            .map(|address| format!("listen {address}; "))
            .collect();
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary: String = kinds
            .iter()
            .map(|kind| format!("{kind}_temp_path {root}/{kind}; "))
            .collect();
        // One process, and so nothing that a killed master leaves behind. Each request has an identifier of its own.
        let text = format!(
            "daemon off; master_process off; pid {root}/pid; error_log stderr notice;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log off; {temporary}\n\
             split_clients $request_id $third {{ 30% 1; * \"\"; }}\n\
             server {{ {listen}location / {{\n\
             set $fails \"\";\n\
             if (-f {root}/third) {{ set $fails $third; }}\n\
             if (-f {root}/all) {{ set $fails 1; }}\n\
             if ($fails) {{ return 503; }}\n\
             return 200 \"ok\\n\"; }} }} }}\n"
        );
        let config = folder.join("nginx.conf");
        fs::write(&config, text)?;
        let config = config.to_string_lossy();
        let mut child = host
            .spawn(&["nginx", "-c", &*config])
            .context("nginx is missing: install what packages.apt lists")?;
        let pid = folder.join("pid");
        eventually("nginx listens", Duration::from_secs(10), || {
            if !child.is_running()? {
                bail!("nginx ended:\n{}", child.output());
            }
            // Written once its sockets listen.
            Ok(fs::metadata(&pid).is_ok_and(|file| file.len() > 0))
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            _child: child,
        })
    }

    /// Fails like that from now on.
    ///
    /// # Errors
    /// When its folder is gone.
    pub fn fail(&self, errors: Errors) -> Result<()> {
        for (name, kind) in [("third", Errors::Third), ("all", Errors::All)] {
            let flag = self.folder.join(name);
            if kind == errors {
                fs::write(flag, "")?;
            } else if flag.exists() {
                fs::remove_file(flag)?;
            }
        }
        Ok(())
    }
}
