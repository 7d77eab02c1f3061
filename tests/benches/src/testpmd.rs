//! dpdk-testpmd as the yardstick: started once, its forwarding switched on and off by its command line.

use crate::rig::CPU;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Ample for any one command of it.
const PATIENCE: Duration = Duration::from_secs(30);
/// After that it is killed.
const QUIT: Duration = Duration::from_secs(3);
const PROMPT: &str = "testpmd> ";

/// A running testpmd. Ended on drop.
pub(crate) struct Testpmd {
    child: Child,
    input: ChildStdin,
    output: Arc<Mutex<String>>,
    errors: File,
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // Killed outright it would leave its XDP program on the interface. What fails here, the kill makes good.
        let _ = writeln!(self.input, "quit");
        let start = Instant::now();
        while start.elapsed() < QUIT && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Testpmd {
    /// Starts it over one virtual device with a forwarding mode; it waits for [`Testpmd::rate`]. It forwards on the
    /// measured CPU; `netns` names the namespace that it runs in.
    ///
    /// # Errors
    /// When it does not start: what it printed.
    pub(crate) fn start(device: &str, mode: &str, netns: Option<&str>) -> Result<Self> {
        Self::start_with(device, mode, netns, &[])
    }

    /// As [`Testpmd::start`], with further options.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn start_with(device: &str, mode: &str, netns: Option<&str>, more: &[&str]) -> Result<Self> {
        let prefix = format!("--file-prefix=testpmd-{}", std::process::id());
        // The main thread only reads commands.
        let lcores = format!("--lcores=0@1,1@{CPU}");
        let vdev = format!("--vdev={device}");
        let mut argv: Vec<&str> = match netns {
            Some(name) => vec!["ip", "netns", "exec", name],
            None => vec![],
        };
        argv.extend(["setpriv", "--pdeathsig", "KILL", "--"]);
        // Into a pipe it would print in blocks.
        argv.extend(["stdbuf", "-oL", "dpdk-testpmd", &lcores]);
        argv.extend([
            "--no-huge",
            "-m",
            "256",
            "--no-pci",
            "--no-telemetry",
            &prefix,
            &vdev,
        ]);
        argv.extend(["--", "-i", "--nb-cores=1", "--total-num-mbufs=16384"]);
        let mode = format!("--forward-mode={mode}");
        argv.push(&mode);
        argv.extend(more);
        let errors = tempfile::tempfile()?;
        let mut child = Command::new(argv[0])
            .args(&argv[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            .spawn()
            .context("cannot start dpdk-testpmd: install dpdk-dev")?;
        let input = child.stdin.take().context("no standard input")?;
        let mut stdout = child.stdout.take().context("no standard output")?;
        let output = Arc::new(Mutex::new(String::new()));
        let sink = output.clone();
        // Ends with the child.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stdout.read(&mut buffer) {
                if let Ok(mut text) = sink.lock() {
                    text.push_str(&String::from_utf8_lossy(&buffer[..n]));
                }
            }
        });
        let mut this = Self {
            child,
            input,
            output,
            errors,
        };
        this.until(PROMPT)?;
        Ok(this)
    }

    /// Waits for `mark`; takes the output up to and with it.
    fn until(&mut self, mark: &str) -> Result<String> {
        let start = Instant::now();
        loop {
            if let Ok(mut text) = self.output.lock()
                && let Some(at) = text.find(mark)
            {
                return Ok(text.drain(..at + mark.len()).collect());
            }
            if start.elapsed() > PATIENCE || self.child.try_wait()?.is_some() {
                let mut text = self.output.lock().map(|t| t.clone()).unwrap_or_default();
                self.errors.seek(SeekFrom::Start(0))?;
                self.errors.read_to_string(&mut text)?;
                bail!("dpdk-testpmd does not answer; it printed:\n{text}");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// One command and what it prints up to `mark`.
    fn ask(&mut self, command: &str, mark: &str) -> Result<String> {
        writeln!(self.input, "{command}")?;
        self.until(mark)
    }

    /// Packets received and transmitted per second over about `time`, by its own counts and clock.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn rate(&mut self, time: Duration) -> Result<(f64, f64)> {
        self.ask("start", "packet forwarding")?;
        std::thread::sleep(Duration::from_millis(50));
        self.ask("show port stats 0", "Tx-bps:")?;
        std::thread::sleep(time);
        let text = self.ask("show port stats 0", "Tx-bps:")?;
        self.ask("stop", "Done.")?;
        let figure = |name: &str| -> Result<f64> {
            let rest = text
                .split(name)
                .nth(1)
                .with_context(|| format!("no {name} in:\n{text}"))?;
            let word = rest.split_whitespace().next().unwrap_or_default();
            word.parse()
                .with_context(|| format!("{name} is {word:?} in:\n{text}"))
        };
        Ok((figure("Rx-pps:")?, figure("Tx-pps:")?))
    }
}
