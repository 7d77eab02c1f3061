//! Files of the state folder: what an appliance knows that its configuration does not say, over restarts. Used by
//! health (what was known last) and overrides.
//!
//! A file is replaced whole (written aside, synced, renamed), so that a crash leaves the old one or the new one. What
//! cannot be read is said in the log and counts as absent: a start never fails by it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Makes the folder, if it is not there yet, and sees that files can be made in it.
///
/// # Errors
/// It cannot be made or written to.
pub fn prepare(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    tempfile::NamedTempFile::new_in(folder).map(drop)
}

/// Replaces a file by `value` as JSON.
///
/// # Errors
/// The file stays as it was.
pub fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer_pretty(&mut file, value)?;
    file.write_all(b"\n")?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    // The name as well.
    File::open(folder)?.sync_all()
}

/// Reads a file that [`write()`] made; `None` if there is none, or none that can be read.
pub fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let read = fs::read(path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
    match read {
        Ok(value) => Some(value),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "state file is not readable: going on without it");
            None
        }
    }
}

/// Now, as Unix time.
pub fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper/known.json");
        assert!(write(&path, &[1]).is_err(), "no such folder");
        prepare(path.parent().unwrap()).unwrap();
        assert_eq!(read::<Vec<u32>>(&path), None);
        write(&path, &[1, 2]).unwrap();
        write(&path, &[3]).unwrap();
        assert_eq!(read(&path), Some(vec![3]));
        // Nothing is left beside it.
        let files = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(files, 1);
        fs::write(&path, "[3").unwrap();
        assert_eq!(read::<Vec<u32>>(&path), None);
    }
}
