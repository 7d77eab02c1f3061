//! Database files: read by what their name ends in, and kept by path, time and size, so that a reload parses only what
//! changed. A table lives as long as a configuration holds it; nothing else keeps it.

use super::ranges::{Overlaps, Range, Ranges};
use super::{As, Place, csv, mmdb};
use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

/// A database in memory: disjoint ranges of addresses, each with one of `values`.
pub struct Table<T> {
    /// The file.
    pub path: PathBuf,
    /// When the file was last changed.
    pub modified: SystemTime,
    /// SHA-256 of the file.
    pub digest: [u8; 32],
    /// Rows of the file: ranges of a CSV, networks of an MMDB.
    pub rows: usize,
    /// Ranges of the file that overlapped others, if any did.
    pub overlaps: Option<Overlaps>,
    /// The ranges, disjoint, neighbours of one value joined. A value is an index in `values`.
    pub ranges: Ranges,
    /// What ranges have, each once.
    pub values: Vec<T>,
}

impl<T> Table<T> {
    /// What the database says of an address.
    pub fn find(&self, address: IpAddr) -> Option<&T> {
        self.values.get(self.ranges.find(address)? as usize)
    }
}

// By hand: a database is no text for a log.
impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("path", &self.path)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

/// Why a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The file.
    pub path: PathBuf,
    /// Its line, from 1, if one is to blame.
    pub line: Option<u64>,
    /// What is wrong.
    pub message: String,
    /// What to do, if there is something to say.
    pub help: Option<String>,
}

impl Failure {
    pub(super) fn new(path: &Path, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line: None,
            message: message.into(),
            help: None,
        }
    }

    pub(super) fn line(mut self, line: u64) -> Self {
        self.line = Some(line);
        self
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// What a reader collects of a file.
#[derive(Debug)]
pub(super) struct Collected<T> {
    rows: usize,
    ranges: Ranges,
    values: Vec<T>,
    index: HashMap<u32, u32, RandomState>,
}

impl<T> Default for Collected<T> {
    fn default() -> Self {
        Self {
            rows: 0,
            ranges: Ranges::default(),
            values: vec![],
            index: HashMap::default(),
        }
    }
}

impl<T> Collected<T> {
    /// The index of the value known as `key`; `make` makes it the first time.
    pub(super) fn value(&mut self, key: u32, make: impl FnOnce() -> T) -> u32 {
        *self.index.entry(key).or_insert_with(|| {
            self.values.push(make());
            self.values.len() as u32 - 1
        })
    }

    /// A row: the range from `first` to `last`, both of one family, has that value.
    pub(super) fn range(&mut self, first: IpAddr, last: IpAddr, value: u32) -> Result<(), String> {
        self.rows += 1;
        match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                let (first, last) = (first.into(), last.into());
                self.ranges.v4.push(Range { first, last, value });
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                let (first, last) = (first.into(), last.into());
                self.ranges.v6.push(Range { first, last, value });
            }
            _ => return Err(format!("{first} and {last} are not of one family")),
        }
        Ok(())
    }

    /// The table, its time and digest still unknown.
    pub(super) fn finish(mut self, path: &Path) -> Result<Table<T>, Failure> {
        let overlaps = self.ranges.tidy();
        if self.rows == 0 {
            return Err(Failure::new(path, "holds nothing"));
        }
        self.values.shrink_to_fit();
        Ok(Table {
            path: path.to_owned(),
            modified: SystemTime::UNIX_EPOCH,
            digest: [0; 32],
            rows: self.rows,
            overlaps,
            ranges: self.ranges,
            values: self.values,
        })
    }
}

/// What tells whether a file is still the one that was read.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    size: u64,
    device: u64,
    inode: u64,
}

/// Tables that some configuration holds, by path.
type Kept<T> = Mutex<Option<HashMap<PathBuf, (Stamp, Weak<Table<T>>)>>>;

static ASNS: Kept<As> = Mutex::new(None);
static PLACES: Kept<Place> = Mutex::new(None);

/// Reads an ASN database: CSV as of the npm package `@ip-location-db/asn`, or MMDB with `autonomous_system_number`.
/// One that is in use already and has not changed on disk is not read again.
///
/// # Errors
/// What is wrong with the file, with its line.
pub fn load_asn(path: &Path) -> Result<Arc<Table<As>>, Failure> {
    kept(&ASNS, path, csv::asn, mmdb::asn)
}

/// Reads a country or city database: CSV as of the npm package `@ip-location-db/asn-country`, or MMDB with `country`,
/// `continent` and `location` as far as it has them. Otherwise as [`load_asn`].
///
/// # Errors
/// As [`load_asn`].
pub fn load_places(path: &Path) -> Result<Arc<Table<Place>>, Failure> {
    kept(&PLACES, path, csv::places, mmdb::places)
}

type Read<T> = fn(&Path, &[u8]) -> Result<Collected<T>, Failure>;

fn kept<T>(kept: &Kept<T>, path: &Path, csv: Read<T>, mmdb: Read<T>) -> Result<Arc<Table<T>>, Failure> {
    let cannot = |error: std::io::Error| Failure::new(path, format!("cannot be read: {error}"));
    let read = match path.extension().and_then(|e| e.to_str()) {
        Some(e) if e.eq_ignore_ascii_case("csv") => csv,
        Some(e) if e.eq_ignore_ascii_case("mmdb") => mmdb,
        _ => return Err(Failure::new(path, "is neither .csv nor .mmdb by its name")),
    };
    let metadata = std::fs::metadata(path).map_err(cannot)?;
    let stamp = Stamp {
        modified: metadata.modified().map_err(cannot)?,
        size: metadata.len(),
        device: metadata.dev(),
        inode: metadata.ino(),
    };
    let lock = || kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((have, table)) = lock().get_or_insert_default().get(path)
        && *have == stamp
        && let Some(table) = table.upgrade()
    {
        return Ok(table);
    }
    let bytes = std::fs::read(path).map_err(cannot)?;
    let mut table = read(path, &bytes)?.finish(path)?;
    table.modified = stamp.modified;
    table.digest = Sha256::digest(&bytes).into();
    let table = Arc::new(table);
    let mut all = lock();
    let all = all.get_or_insert_default();
    all.retain(|_, (_, table)| table.strong_count() > 0);
    all.insert(path.to_owned(), (stamp, Arc::downgrade(&table)));
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_only_when_it_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "1.0.0.0,1.0.0.255,1,a\n").unwrap();
        let first = load_asn(&path).unwrap();
        assert!(Arc::ptr_eq(&first, &load_asn(&path).unwrap()));
        // Another size is another file, whatever the clock's grain.
        std::fs::write(&path, "1.0.0.0,1.0.0.255,2,bb\n").unwrap();
        let second = load_asn(&path).unwrap();
        assert_eq!((first.values[0].number, second.values[0].number), (1, 2));
        assert_ne!(first.digest, second.digest);
        // One that was replaced (as tools do that write beside it and rename) is another too.
        let beside = folder.path().join("b.csv");
        std::fs::write(&beside, "1.0.0.0,1.0.0.255,3,bb\n").unwrap();
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::File::options()
            .append(true)
            .open(&beside)
            .unwrap()
            .set_modified(time)
            .unwrap();
        std::fs::rename(&beside, &path).unwrap();
        assert_eq!(load_asn(&path).unwrap().values[0].number, 3);
    }

    #[test]
    fn a_table_goes_with_its_last_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone.csv");
        std::fs::write(&path, "1.0.0.0,1.0.0.255,KR\n").unwrap();
        let table = load_places(&path).unwrap();
        let weak = Arc::downgrade(&table);
        drop(table);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn what_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let told = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            load_asn(&path).unwrap_err().message
        };
        assert!(told("a.txt", b"").contains(".csv nor .mmdb"));
        assert!(told("a.csv", b"").contains("holds nothing"));
        assert!(told("a.mmdb", b"no database").contains("MaxMind"));
        let absent = load_asn(&folder.path().join("absent.csv")).unwrap_err();
        assert!(absent.message.contains("No such file"), "{absent}");
    }
}
