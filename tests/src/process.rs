//! Child processes, optionally inside a network namespace, that never outlive their owner.
//!
//! Called by everything else in the lab. Owns the children that it starts: dropping a [`Child`]
//! kills it, and the kernel kills it when the thread that started it is gone (`setpriv --pdeathsig`).

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a child's end is looked for.
const POLL: Duration = Duration::from_millis(5);

/// What a finished command left.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The command line, for messages.
    pub command: String,
    /// Exit code; 128 + signal when a signal ended it.
    pub code: i32,
    /// Its standard output, lossily as UTF-8.
    pub stdout: String,
    /// Its standard error, lossily as UTF-8.
    pub stderr: String,
}

impl Finished {
    /// The standard output of a command that ended with code 0.
    ///
    /// # Errors
    /// Any other code: the command line, the code and both outputs.
    pub fn success(self) -> Result<String> {
        if self.code != 0 {
            bail!(
                "`{}` ended with code {}:\n{}{}",
                self.command,
                self.code,
                self.stdout,
                self.stderr
            );
        }
        Ok(self.stdout)
    }
}

/// A running child. Its outputs go to unlinked temporary files, so that it never blocks on a pipe.
#[derive(Debug)]
pub struct Child {
    command: String,
    inner: std::process::Child,
    stdout: File,
    stderr: File,
}

/// Starts `argv`, in the named network namespace if one is given.
///
/// # Errors
/// When the program cannot be started.
pub fn spawn(netns: Option<&str>, argv: &[&str]) -> Result<Child> {
    let mut line = match netns {
        Some(name) => vec!["ip", "netns", "exec", name],
        None => vec![],
    };
    line.extend(["setpriv", "--pdeathsig", "KILL", "--"]);
    line.extend(argv);
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let inner = Command::new(line[0])
        .args(&line[1..])
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        // Ctrl-C in a terminal is for the owner, which then stops its children in order.
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start `{}`", line.join(" ")))?;
    Ok(Child {
        command: argv.join(" "),
        inner,
        stdout,
        stderr,
    })
}

/// Runs `argv` to its end.
///
/// # Errors
/// When it cannot be started, or has not ended after `timeout`: then it is killed, and the error
/// holds what it printed.
pub fn run(netns: Option<&str>, argv: &[&str], timeout: Duration) -> Result<Finished> {
    spawn(netns, argv)?.wait(timeout)
}

impl Child {
    /// Process id. The namespace and death-signal wrappers exec, so it is the program's own.
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// What it has printed so far: standard output, then standard error.
    pub fn output(&self) -> String {
        format!("{}{}", text(&self.stdout), text(&self.stderr))
    }

    /// True until it has ended.
    ///
    /// # Errors
    /// When the child cannot be waited for.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.inner.try_wait()?.is_none())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if let Some(status) = self.inner.try_wait()? {
            bail!(
                "`{}` has ended already ({status}):\n{}",
                self.command,
                self.output()
            );
        }
        let pid = i32::try_from(self.pid()).context("process id")?;
        kill(Pid::from_raw(pid), signal).with_context(|| format!("{signal} to `{}`", self.command))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it has not ended after `timeout`: then it is killed, and the error holds its output.
    pub fn wait(mut self, timeout: Duration) -> Result<Finished> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.inner.try_wait()? {
                return Ok(Finished {
                    command: self.command.clone(),
                    code: code(status),
                    stdout: text(&self.stdout),
                    stderr: text(&self.stderr),
                });
            }
            if Instant::now() > deadline {
                bail!(
                    "`{}` has not ended after {timeout:?}; it printed:\n{}",
                    self.command,
                    self.output()
                );
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.inner.kill();
        let _ = self.inner.wait();
    }
}

/// Shells' convention for the end by a signal.
fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The whole of a file that a child writes to through its own descriptor.
fn text(file: &File) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        // A second handle on the open file description would move the child's write offset.
        let mut own = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file)))?;
        own.seek(SeekFrom::Start(0))?;
        let mut bytes = Vec::new();
        own.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// Waits until `what` holds, asking every few milliseconds.
///
/// # Errors
/// When it does not hold after `timeout`, naming `description`; or the first error of `what`.
pub fn eventually(
    description: &str,
    timeout: Duration,
    mut what: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let start = Instant::now();
    loop {
        if what()? {
            return Ok(start.elapsed());
        }
        if start.elapsed() > timeout {
            bail!("after {timeout:?} still not so: {description}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
