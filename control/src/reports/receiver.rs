//! The listener that takes reports: HTTP/1.1 over TLS, `POST /v1/report` with a bearer token. Bound by the run loop
//! before anything is opened, served once the appliance runs.
//!
//! Everything is bounded: connections in all and by source, requests by source and by site, the time of a handshake and
//! of a request, the size of a body. What is refused is told to its sender as `{"error": "..."}`, counted, and logged
//! once in a while. A body is looked at only when its token is known.

use super::certificate::{Certificate, CertificateError};
use super::counters::Received;
use super::limits::{Buckets, Quiet, source_of};
use super::report::{BYTES_MAX, PATH, Report};
use super::store::{Refusal, ReportStore};
use crate::admin::api::ErrorBody;
use crate::config::model::{Config, Reports};
use crate::tcp::counters::{Family, Labelled};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// Connections open at once, in all.
const CONNECTIONS_MAX: usize = 512;
/// Connections open at once from one source: a site may send from behind one address.
const CONNECTIONS_PER_SOURCE_MAX: usize = 64;
/// A TLS handshake, or a body, that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests per second from one source, and how many may come at once.
const SOURCE_RATE: (f64, f64) = (50.0, 200.0);
/// Reports per second of one site, and how many may come at once: agents also report when a member changes.
const SITE_RATE: (f64, f64) = (10.0, 50.0);
/// How often refusals of one kind come into the log.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// After an accept that failed for want of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks at who is silent, at most.
const TICK_MAX: Duration = Duration::from_millis(500);

/// Why reports cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum ReceiverError {
    /// The address.
    #[error("cannot listen on {0} (`listen` under [reports]): {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The certificate.
    #[error("certificate of [reports]: {0}")]
    Certificate(#[from] CertificateError),
}

/// The receiver's socket and certificate, not yet served.
pub struct Bound {
    listener: TcpListener,
    certificate: Certificate,
    interval: Duration,
    silent_after: Duration,
}

/// The receiver at work. Dropping it stops it.
pub struct Receiver {
    task: JoinHandle<()>,
    ticker: JoinHandle<()>,
    desk: Arc<Desk>,
    /// Where it listens.
    pub address: SocketAddr,
    /// SHA-256 of its certificate, hexadecimal.
    pub fingerprint: String,
}

impl Bound {
    /// Binds what the configuration names; `None` without `[reports]`. Needs no runtime.
    ///
    /// # Errors
    /// See [`ReceiverError`].
    pub fn bind(config: &Config) -> Result<Option<Self>, ReceiverError> {
        let Some(reports) = &config.reports else {
            return Ok(None);
        };
        Self::bind_reports(config, reports).map(Some)
    }

    fn bind_reports(config: &Config, reports: &Reports) -> Result<Self, ReceiverError> {
        let certificate = Certificate::load(config, reports)?;
        let listener = TcpListener::bind(reports.listen)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| ReceiverError::Listen(reports.listen, error))?;
        Ok(Self {
            listener,
            certificate,
            interval: reports.interval,
            silent_after: reports.silent_after,
        })
    }

    /// Takes reports into `store` from now on, and looks after its ages.
    ///
    /// # Errors
    /// The runtime could not take the socket over.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time.
    pub fn serve(self, store: Arc<ReportStore>) -> io::Result<Receiver> {
        let address = self.listener.local_addr()?;
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let desk = Arc::new(Desk {
            store: store.clone(),
            counters: Family::default(),
            // Agents keep their connection from one report to the next.
            head_timeout: PATIENCE.max(self.interval * 3),
            state: Mutex::new(State {
                sources: Buckets::new(SOURCE_RATE.0, SOURCE_RATE.1),
                sites: Buckets::new(SITE_RATE.0, SITE_RATE.1),
                open: HashMap::new(),
                quiet: Received::ALL.iter().map(|_| Quiet::new(LOG_EVERY)).collect(),
            }),
        });
        let fingerprint = self.certificate.fingerprint;
        let acceptor = TlsAcceptor::from(self.certificate.tls);
        let file = self.certificate.file.display();
        tracing::info!(%address, fingerprint, certificate = %file, "reports of sites are taken");
        let every = (self.silent_after / 20).min(TICK_MAX);
        Ok(Receiver {
            task: tokio::spawn(accept(listener, acceptor, desk.clone())),
            ticker: tokio::spawn(tick(store, every)),
            desk,
            address,
            fingerprint,
        })
    }
}

impl Receiver {
    /// What became of connections and requests, by name.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.desk.counters.read()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
        self.ticker.abort();
    }
}

async fn tick(store: Arc<ReportStore>, every: Duration) {
    let mut interval = tokio::time::interval(every.max(Duration::from_millis(10)));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        store.tick(Instant::now());
    }
}

/// What all connections share.
struct Desk {
    store: Arc<ReportStore>,
    counters: Family<Received>,
    head_timeout: Duration,
    state: Mutex<State>,
}

struct State {
    sources: Buckets<IpAddr>,
    sites: Buckets<String>,
    /// Connections open by source.
    open: HashMap<IpAddr, usize>,
    /// By [`Received`].
    quiet: Vec<Quiet>,
}

/// A connection's place; given back on drop.
struct Place {
    desk: Arc<Desk>,
    source: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.desk.lock();
        if let Some(count) = state.open.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                state.open.remove(&self.source);
            }
        }
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts, and logs once in a while.
    fn note(&self, what: Received, from: IpAddr, why: &str) {
        self.counters.bump(what);
        let may = self
            .lock()
            .quiet
            .get_mut(what.index())
            .and_then(|quiet| quiet.may(Instant::now()));
        if let Some(held_back) = may {
            tracing::warn!(%from, what = what.name(), why, held_back, "report refused");
        }
    }

    /// A place for a connection from `from`, if there is one.
    fn admit(self: &Arc<Self>, from: IpAddr, open: usize) -> Option<Place> {
        let source = source_of(from);
        let mut state = self.lock();
        let count = state.open.entry(source).or_default();
        if open >= CONNECTIONS_MAX || *count >= CONNECTIONS_PER_SOURCE_MAX {
            if *count == 0 {
                state.open.remove(&source);
            }
            return None;
        }
        *count += 1;
        drop(state);
        Some(Place {
            desk: self.clone(),
            source,
        })
    }
}

/// Accepts for ever.
async fn accept(listener: tokio::net::TcpListener, acceptor: TlsAcceptor, desk: Arc<Desk>) {
    let mut open = JoinSet::new();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot take a connection for reports");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while open.try_join_next().is_some() {}
        let from = peer.ip().to_canonical();
        match desk.admit(from, open.len()) {
            Some(place) => drop(open.spawn(connection(stream, from, acceptor.clone(), desk.clone(), place))),
            None => desk.note(Received::TooManyConnections, from, "too many connections"),
        }
    }
}

async fn connection(stream: TcpStream, from: IpAddr, acceptor: TlsAcceptor, desk: Arc<Desk>, _place: Place) {
    let stream = match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return desk.note(Received::BadHandshake, from, &error.to_string()),
        Err(_) => return desk.note(Received::BadHandshake, from, "TLS handshake took too long"),
    };
    let service = service_fn(|request| {
        let desk = desk.clone();
        async move { Ok::<_, Infallible>(desk.respond(request, from).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(desk.head_timeout)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    // A sender that goes away between two reports is no matter.
    if let Err(error) = served
        && (error.is_parse() || error.is_timeout())
    {
        desk.note(Received::Incomplete, from, &error.to_string());
    }
}

/// A refusal: what to count, what to answer.
struct Refused(Received, StatusCode, String);

impl Desk {
    async fn respond(&self, request: Request<Incoming>, from: IpAddr) -> Response<Full<Bytes>> {
        match self.take(request, from).await {
            Ok(body) => {
                self.counters.bump(Received::Taken);
                json(StatusCode::OK, body)
            }
            Err(Refused(what, status, error)) => {
                self.note(what, from, &error);
                let body = serde_json::to_vec(&ErrorBody { error }).unwrap_or_default();
                let mut response = json(status, body);
                if status == StatusCode::UNAUTHORIZED {
                    let bearer = HeaderValue::from_static("Bearer");
                    response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
                }
                response
            }
        }
    }

    async fn take(&self, request: Request<Incoming>, from: IpAddr) -> Result<Vec<u8>, Refused> {
        let too_many = |error: &str| Refused(Received::TooMany, StatusCode::TOO_MANY_REQUESTS, error.into());
        if !self.lock().sources.take(source_of(from), Instant::now()) {
            return Err(too_many("too many requests from this address"));
        }
        if request.uri().path() != PATH {
            let error = format!("no such endpoint: reports go to POST {PATH}");
            return Err(Refused(Received::OtherRequest, StatusCode::NOT_FOUND, error));
        }
        if request.method() != Method::POST {
            let error = format!("reports are sent by POST, not {}", request.method());
            return Err(Refused(
                Received::OtherRequest,
                StatusCode::METHOD_NOT_ALLOWED,
                error,
            ));
        }
        let site = bearer(&request).and_then(|token| self.store.site_of(token.as_bytes()));
        let Some(site) = site else {
            let error = "needs `Authorization: Bearer TOKEN`, the token of the site".to_owned();
            return Err(Refused(Received::BadToken, StatusCode::UNAUTHORIZED, error));
        };
        if !self.lock().sites.take(site.clone(), Instant::now()) {
            return Err(too_many("too many reports of this site"));
        }
        let report = read(request).await?;
        if report.site != site {
            // Its own name is no secret to who holds the token; those of others are.
            let error = format!("the token is of site {site:?}, the report of {:?}", report.site);
            return Err(Refused(Received::OtherSite, StatusCode::FORBIDDEN, error));
        }
        let refused = |error: Refusal| match error {
            Refusal::UnknownSite(_) => Refused(Received::OtherSite, StatusCode::FORBIDDEN, error.to_string()),
            Refusal::Old { .. } => Refused(Received::OldSequence, StatusCode::CONFLICT, error.to_string()),
        };
        let answer = self.store.take(report, from, Instant::now()).map_err(refused)?;
        serde_json::to_vec(&answer).map_err(|error| {
            Refused(
                Received::BadReport,
                StatusCode::INTERNAL_SERVER_ERROR,
                error.to_string(),
            )
        })
    }
}

/// The token of `Authorization: Bearer TOKEN`.
fn bearer(request: &Request<Incoming>) -> Option<String> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().to_owned())
}

/// The report in a request's body.
async fn read(request: Request<Incoming>) -> Result<Report, Refused> {
    let too_large = || {
        let error = format!("larger than {BYTES_MAX} bytes");
        Refused(Received::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, error)
    };
    let incomplete = |error: String| Refused(Received::Incomplete, StatusCode::REQUEST_TIMEOUT, error);
    let bad = |error: String| Refused(Received::BadReport, StatusCode::BAD_REQUEST, error);
    let body = Limited::new(request.into_body(), BYTES_MAX).collect();
    let body = match tokio::time::timeout(PATIENCE, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
        Ok(Err(error)) => return Err(incomplete(error.to_string())),
        Err(_) => return Err(incomplete("the body took too long".into())),
    };
    let report: Report = serde_json::from_slice(&body).map_err(|error| bad(format!("no report: {error}")))?;
    report.check().map_err(bad)?;
    Ok(report)
}

fn json(status: StatusCode, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
#[path = "receiver_tests.rs"]
mod tests;
