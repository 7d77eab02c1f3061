//! The file of samples: CSV, a row a sample, turned over by size.
//!
//! Made by the run loop, fed by the collector. Written by a thread of its own: a slow disk loses rows, which are counted, and
//! delays nothing. `FILE` is the newest, `FILE.1` the one before it, and so on; what is older is removed. It goes on where an
//! earlier run ended.

use anyhow::{Context, Result};
use crossbeam::channel::{Receiver, Sender, bounded};
use dataplane::flow::estimate::{Kind, Sample};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Batches of rows that wait to be written.
const WAITING: usize = 64;
/// What was written is on disk after that time at the latest.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// After an error the file is opened anew, no more often than so.
const RETRY_EVERY: Duration = Duration::from_secs(5);

/// The first line of each file.
pub const HEADER: &str = "time,clients,site,member,kind,value,flow,confidence,doubts";

/// A sample, with whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The narrowest clients that it is of, in words.
    pub clients: Arc<str>,
    /// The site.
    pub site: Arc<str>,
    /// The server.
    pub member: Option<IpAddr>,
    /// What it tells.
    pub sample: Sample,
    /// Tells flows apart.
    pub flow: u32,
}

impl Row {
    /// As CSV fields. `time`: Unix time, seconds. Times are microseconds; of retransmissions it is their number.
    fn fields(&self, time: f64) -> [String; 9] {
        let value = match self.sample.kind {
            Kind::Retransmitted => self.sample.value.0.to_string(),
            _ => super::cell::micros(self.sample.value).to_string(),
        };
        let doubts: Vec<&str> = self.sample.doubts.names().collect();
        [
            format!("{time:.3}"),
            self.clients.to_string(),
            self.site.to_string(),
            self.member.map_or_else(String::new, |member| member.to_string()),
            self.sample.kind.name().to_owned(),
            value,
            format!("{:08x}", self.flow),
            self.sample.doubts.confidence().name().to_owned(),
            doubts.join(" "),
        ]
    }
}

/// A batch of rows, and when they came.
type Batch = (Vec<Row>, SystemTime);

/// The file. Dropping it writes what waits.
#[derive(Debug)]
pub struct SampleFile {
    rows: Option<Sender<Batch>>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    lost: AtomicU64,
}

impl SampleFile {
    /// Opens `path`, for files of `size` bytes of which `keep` are kept.
    ///
    /// # Errors
    /// When it cannot be opened or no thread be had.
    pub fn open(path: &Path, size: u64, keep: u32) -> Result<Self> {
        let counts = Arc::new(Counts::default());
        let mut out = Out {
            path: path.to_owned(),
            size,
            keep,
            file: None,
            written: 0,
            next_try: None,
        };
        out.open()
            .with_context(|| format!("cannot write {}, the `file` of [latency]", path.display()))?;
        let (rows, waiting) = bounded::<Batch>(WAITING);
        let counted = counts.clone();
        let thread = std::thread::Builder::new()
            .name("windrose-csv".into())
            .spawn(move || run(&mut out, &waiting, &counted))?;
        Ok(Self {
            rows: Some(rows),
            counts,
            thread: Some(thread),
        })
    }

    /// Hands rows over, or counts them as lost where too many wait already. Never waits.
    pub fn write(&self, rows: Vec<Row>) {
        let count = rows.len() as u64;
        let Some(waiting) = &self.rows else { return };
        if count > 0 && waiting.try_send((rows, SystemTime::now())).is_err() {
            self.counts.lost.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Rows written, and rows lost.
    pub fn counts(&self) -> (u64, u64) {
        let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (count(&self.counts.written), count(&self.counts.lost))
    }
}

impl Drop for SampleFile {
    fn drop(&mut self) {
        self.rows = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes latency samples panicked");
        }
    }
}

fn run(out: &mut Out, waiting: &Receiver<Batch>, counts: &Counts) {
    let mut flushed = Instant::now();
    loop {
        let batch = waiting.recv_timeout(FLUSH_EVERY);
        if let Ok((rows, at)) = &batch {
            let count = rows.len() as u64;
            let counted = match out.write(rows, *at) {
                Ok(()) => &counts.written,
                Err(error) => {
                    // The rows that did get there are few: one bad batch is said to be lost whole.
                    out.fail(&error);
                    &counts.lost
                }
            };
            counted.fetch_add(count, Ordering::Relaxed);
        }
        let ended = matches!(&batch, Err(error) if error.is_disconnected());
        if (ended || flushed.elapsed() >= FLUSH_EVERY)
            && let Some(file) = &mut out.file
        {
            flushed = Instant::now();
            if let Err(error) = file.flush() {
                out.fail(&error.into());
            }
        }
        if ended {
            return;
        }
    }
}

/// The writing side.
struct Out {
    path: PathBuf,
    size: u64,
    keep: u32,
    file: Option<BufWriter<File>>,
    /// Bytes in it.
    written: u64,
    next_try: Option<Instant>,
}

impl Out {
    fn numbered(&self, n: u32) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        if n > 0 {
            name.push(format!(".{n}"));
        }
        name.into()
    }

    fn open(&mut self) -> Result<()> {
        let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        self.written = file.metadata()?.len();
        let mut file = BufWriter::new(file);
        if self.written == 0 {
            writeln!(file, "{HEADER}")?;
            self.written = HEADER.len() as u64 + 1;
        }
        self.file = Some(file);
        self.next_try = None;
        Ok(())
    }

    /// Begins a new file; the ones before it move up by one.
    fn turn_over(&mut self) -> Result<()> {
        if let Some(mut file) = self.file.take() {
            file.flush()?;
        }
        for n in (0..self.keep.saturating_sub(1)).rev() {
            let (from, to) = (self.numbered(n), self.numbered(n + 1));
            match std::fs::rename(&from, &to) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        if self.keep <= 1 {
            std::fs::remove_file(&self.path)?;
        }
        self.open()
    }

    fn write(&mut self, rows: &[Row], at: SystemTime) -> Result<()> {
        if self.next_try.is_some_and(|at| Instant::now() < at) {
            anyhow::bail!("waiting to open it anew");
        }
        if self.file.is_none() {
            self.open()?;
        }
        let time = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        for row in rows {
            let mut line = csv::WriterBuilder::new()
                .has_headers(false)
                .from_writer(Vec::with_capacity(96));
            line.write_record(row.fields(time))?;
            let line = line.into_inner().map_err(|error| error.into_error())?;
            if self.written + line.len() as u64 > self.size && self.written > HEADER.len() as u64 + 1 {
                self.turn_over()?;
            }
            let Some(file) = &mut self.file else { continue };
            file.write_all(&line)?;
            self.written += line.len() as u64;
        }
        Ok(())
    }

    /// Says what is wrong, once until it is opened anew.
    fn fail(&mut self, error: &anyhow::Error) {
        if self.next_try.is_none_or(|at| Instant::now() >= at) {
            let file = self.path.display();
            tracing::error!(%file, error = format!("{error:#}"), "latency samples cannot be written");
            self.file = None;
            self.next_try = Some(Instant::now() + RETRY_EVERY);
        }
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
