//! The other end of the admin socket, for the command line: one request, one JSON answer.

use super::api::ErrorBody;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

/// Where a running appliance listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/windrose.sock";
/// Largest answer that is read, bytes: a status of some hundred thousand members.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// How long an answer may take; a reload of a million names takes seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No such file.
    #[error(
        "{0}: no such socket; start the appliance with `windrose run -c FILE`, or name its socket with --socket"
    )]
    Missing(PathBuf),
    /// The file is there and nobody listens.
    #[error(
        "{0}: nobody listens; the appliance that made this socket is gone, start it with `windrose run -c FILE`"
    )]
    Dead(PathBuf),
    /// Not ours to open.
    #[error("{0}: permission denied; run this as the user that runs the appliance")]
    Denied(PathBuf),
    /// Any other trouble on the way.
    #[error("{0}: {1}")]
    Transport(PathBuf, String),
    /// The appliance answered that it will not.
    #[error("{0}")]
    Refused(String),
}

/// Sends one request to the appliance behind `socket`; returns the JSON of its answer.
///
/// # Errors
/// See [`ClientError`]. Blocks for a minute at most.
pub fn request(socket: &Path, method: Method, path_and_query: &str) -> Result<Vec<u8>, ClientError> {
    let transport = |error: String| ClientError::Transport(socket.to_owned(), error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| transport(e.to_string()))?;
    runtime.block_on(async {
        tokio::time::timeout(TIMEOUT, exchange(socket, method, path_and_query))
            .await
            .unwrap_or_else(|_| Err(transport(format!("no answer within {TIMEOUT:?}"))))
    })
}

/// [`request`] by GET, read as `T`.
///
/// # Errors
/// As there, and when the answer is not a `T`: client and appliance differ in version.
pub fn get<T: DeserializeOwned>(socket: &Path, path_and_query: &str) -> Result<T, ClientError> {
    parse(socket, &request(socket, Method::GET, path_and_query)?)
}

/// Reads an answer.
///
/// # Errors
/// It is not a `T`.
pub fn parse<T: DeserializeOwned>(socket: &Path, answer: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(answer).map_err(|error| {
        ClientError::Transport(
            socket.to_owned(),
            format!("unexpected answer (is the appliance of another version?): {error}"),
        )
    })
}

async fn exchange(socket: &Path, method: Method, path_and_query: &str) -> Result<Vec<u8>, ClientError> {
    let transport =
        |error: &dyn std::error::Error| ClientError::Transport(socket.to_owned(), error.to_string());
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ClientError::Missing(socket.to_owned()),
            io::ErrorKind::ConnectionRefused => ClientError::Dead(socket.to_owned()),
            io::ErrorKind::PermissionDenied => ClientError::Denied(socket.to_owned()),
            _ => transport(&error),
        })?;
    let request = Request::builder()
        .method(method)
        .uri(path_and_query)
        .header(header::HOST, "windrose")
        .body(Empty::<Bytes>::new())
        .map_err(|e| transport(&e))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| transport(&e))?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|e| transport(&e))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await;
    connection.abort();
    let body = body.map_err(|e| transport(e.as_ref()))?.to_bytes().to_vec();
    if status.is_success() {
        return Ok(body);
    }
    Err(ClientError::Refused(
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(said) => said.error,
            Err(_) => format!("the appliance answered with status {status}"),
        },
    ))
}
