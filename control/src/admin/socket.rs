//! The Unix socket's file: made with mode 0600, taken over from a dead process, refused while a
//! live one serves it, removed at the end. Called by the server.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why the socket could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody answers on it.
    #[error("{0}: another windrose serves this socket; stop it, or set another `socket` under [admin]")]
    Live(PathBuf),
    /// A file that is no socket lies there.
    #[error("{0}: exists and is not a socket; remove it, or set another `socket` under [admin]")]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("{0}: cannot make the admin socket: {1}")]
    Io(PathBuf, #[source] io::Error),
}

/// The socket's file, removed on drop if it is still ours.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on `path`, non-blocking.
///
/// # Errors
/// See [`SocketError`].
pub fn listen(path: &Path) -> Result<(UnixListener, SocketFile), SocketError> {
    let failed = |error| SocketError::Io(path.to_owned(), error);
    check_vacant(path)?;
    // Bound under another name and moved into place: the socket is never there with a wider mode,
    // and a dead process's file is replaced in one step.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let _ = fs::remove_file(&fresh);
    let listener = UnixListener::bind(&fresh).map_err(failed)?;
    let placed = listener
        .set_nonblocking(true)
        .and_then(|()| fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)))
        .and_then(|()| identity(&fresh))
        .and_then(|identity| fs::rename(&fresh, path).map(|()| identity));
    match placed {
        Ok(identity) => Ok((
            listener,
            SocketFile {
                path: path.to_owned(),
                identity,
            },
        )),
        Err(error) => {
            let _ = fs::remove_file(&fresh);
            Err(failed(error))
        }
    }
}

/// Nothing at the path, or the socket of a process that is gone.
fn check_vacant(path: &Path) -> Result<(), SocketError> {
    let failed = |error| SocketError::Io(path.to_owned(), error);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(meta) if !meta.file_type().is_socket() => return Err(SocketError::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketError::Live(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        // A full backlog is a sign of life as well.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(SocketError::Live(path.to_owned())),
        Err(error) => Err(failed(error)),
    }
}

/// Device and inode.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_private_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let (_listener, file) = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        UnixStream::connect(&path).unwrap();
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_process_is_succeeded_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        // The standard library leaves the file behind, as a killed process does.
        drop(UnixListener::bind(&path).unwrap());
        let (_listener, _file) = listen(&path).unwrap();
        let error = listen(&path).unwrap_err();
        assert!(matches!(error, SocketError::Live(_)), "{error}");
        assert!(error.to_string().contains("another windrose"), "{error}");
        UnixStream::connect(&path).expect("the live one must stay");
    }

    #[test]
    fn a_successor_keeps_its_file_when_the_predecessor_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let (listener, file) = listen(&path).unwrap();
        drop(listener);
        let (_second, _second_file) = listen(&path).unwrap();
        drop(file);
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn other_files_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.txt");
        fs::write(&path, "keep").unwrap();
        assert!(matches!(listen(&path).unwrap_err(), SocketError::NotASocket(_)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "keep");
        let missing = dir.path().join("none/s.sock");
        let error = listen(&missing).unwrap_err().to_string();
        assert!(
            error.contains("none/s.sock") && error.contains("No such file"),
            "{error}"
        );
    }
}
