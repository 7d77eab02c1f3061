//! The endpoints, and the tasks that serve them. Bound by the run loop at start-up, so that a taken
//! socket is told before any port opens; served once the appliance runs.
//!
//! `GET /v1/status`, `GET /v1/explain?name=&type=&from=&ecs=`, `POST /v1/reload`, `GET /v1/events`, `GET /v1/latency`, `/v1/overrides`
//! (`GET`; `POST ?glob=&action=&weight=&for_s=&comment=`; `DELETE ?glob=`), `GET /metrics`, `GET /healthz`. Over TCP all but `/metrics` need `Authorization: Bearer TOKEN`; who may open the
//! Unix socket is trusted. Errors are JSON: `{"error": "..."}`.

use super::api::{Appliance, ClearRequest, ErrorBody, Events, ExplainRequest, OverrideRequest, Status};
use super::latency::LatencyReport;
use super::metrics;
use super::socket::{self, SocketError, SocketFile};
use crate::config::model;
use crate::overrides::Override;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::serve::Listener;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tokio::task::JoinHandle;

/// Why the admin API could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The Unix socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The TCP address.
    #[error("cannot listen on {0} (`listen` under [admin]): {1}")]
    Tcp(SocketAddr, #[source] io::Error),
}

/// The admin API's sockets, bound and not yet served.
#[derive(Debug)]
pub struct Bound {
    unix: UnixListener,
    file: SocketFile,
    tcp: Option<TcpListener>,
    token: Option<String>,
}

/// The admin API being served. Dropping it stops that and removes the Unix socket.
#[derive(Debug)]
pub struct Running {
    tasks: Vec<JoinHandle<()>>,
    _file: SocketFile,
}

impl Bound {
    /// Binds what the configuration names. Needs no runtime.
    ///
    /// # Errors
    /// A socket is taken or refused; the message says which and what to do.
    pub fn bind(config: &model::Admin) -> Result<Self, BindError> {
        let (unix, file) = socket::listen(&config.socket)?;
        let tcp = config
            .listen
            .map(|address| {
                TcpListener::bind(address)
                    .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
                    .map_err(|error| BindError::Tcp(address, error))
            })
            .transpose()?;
        Ok(Self {
            unix,
            file,
            tcp,
            token: config.token.clone(),
        })
    }

    /// The TCP address that was bound (the port is known even if the configuration left it to the system).
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves `appliance` from now on.
    ///
    /// # Errors
    /// The runtime could not take the sockets over.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn serve(self, appliance: Arc<dyn Appliance>) -> io::Result<Running> {
        let routes = routes(appliance);
        let mut tasks = vec![spawn(
            tokio::net::UnixListener::from_std(self.unix)?,
            routes.clone(),
        )];
        if let Some(tcp) = self.tcp {
            let token: Arc<Option<String>> = Arc::new(self.token);
            let guarded = routes.layer(middleware::from_fn_with_state(token, require_token));
            tasks.push(spawn(tokio::net::TcpListener::from_std(tcp)?, guarded));
        }
        Ok(Running {
            tasks,
            _file: self.file,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn spawn<L>(listener: L, routes: Router) -> JoinHandle<()>
where
    L: Listener,
    L::Addr: std::fmt::Debug,
{
    tokio::spawn(async move {
        // Accept errors are retried inside; this ends with its task.
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::error!(%error, "the admin API stopped");
        }
    })
}

fn routes(appliance: Arc<dyn Appliance>) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/explain", get(explain))
        .route("/v1/reload", post(reload))
        .route("/v1/events", get(events))
        .route("/v1/latency", get(latency))
        .route(
            "/v1/overrides",
            get(overrides).post(set_override).delete(clear_overrides),
        )
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .fallback(|| async { fail(StatusCode::NOT_FOUND, "no such endpoint") })
        .with_state(appliance)
}

fn fail(status: StatusCode, error: impl Into<String>) -> Response {
    (status, Json(ErrorBody { error: error.into() })).into_response()
}

async fn status(State(appliance): State<Arc<dyn Appliance>>) -> Json<Status> {
    Json(appliance.status())
}

async fn explain(
    State(appliance): State<Arc<dyn Appliance>>,
    request: Result<Query<ExplainRequest>, QueryRejection>,
) -> Response {
    let request = match request {
        Ok(Query(request)) => request,
        Err(error) => return fail(StatusCode::BAD_REQUEST, error.body_text()),
    };
    match appliance.explain(&request) {
        Ok(explanation) => Json(explanation).into_response(),
        Err(error) => fail(StatusCode::BAD_REQUEST, error),
    }
}

async fn reload(State(appliance): State<Arc<dyn Appliance>>) -> Response {
    match appliance.reload().await {
        Ok(report) => Json(report).into_response(),
        Err(error) => fail(StatusCode::UNPROCESSABLE_ENTITY, error),
    }
}

async fn events(State(appliance): State<Arc<dyn Appliance>>) -> Json<Events> {
    Json(appliance.events())
}

async fn latency(State(appliance): State<Arc<dyn Appliance>>) -> Json<LatencyReport> {
    Json(appliance.latency())
}

async fn overrides(State(appliance): State<Arc<dyn Appliance>>) -> Json<Vec<Override>> {
    Json(appliance.overrides())
}

async fn set_override(
    State(appliance): State<Arc<dyn Appliance>>,
    request: Result<Query<OverrideRequest>, QueryRejection>,
) -> Response {
    let request = match request {
        Ok(Query(request)) => request,
        Err(error) => return fail(StatusCode::BAD_REQUEST, error.body_text()),
    };
    match appliance.set_override(&request) {
        Ok(report) => Json(report).into_response(),
        Err(error) => fail(StatusCode::UNPROCESSABLE_ENTITY, error),
    }
}

async fn clear_overrides(
    State(appliance): State<Arc<dyn Appliance>>,
    request: Result<Query<ClearRequest>, QueryRejection>,
) -> Response {
    let request = match request {
        Ok(Query(request)) => request,
        Err(error) => return fail(StatusCode::BAD_REQUEST, error.body_text()),
    };
    match appliance.clear_overrides(request.glob.as_deref()) {
        Ok(cleared) => Json(cleared).into_response(),
        Err(error) => fail(StatusCode::NOT_FOUND, error),
    }
}

async fn metrics(State(appliance): State<Arc<dyn Appliance>>) -> Response {
    let text = metrics::render(
        appliance.status(),
        appliance.worker_counters(),
        appliance.latency(),
    );
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

/// 200 while every worker moves and answers by a snapshot, else 503 with what is wrong.
async fn healthz(State(appliance): State<Arc<dyn Appliance>>) -> Response {
    let status = appliance.status();
    let ill: Vec<String> = status
        .workers
        .iter()
        .filter_map(|worker| match worker {
            w if w.stalled => Some(format!("worker {} is stalled", w.index)),
            w if w.generation == 0 => Some(format!("worker {} has no snapshot yet", w.index)),
            _ => None,
        })
        .collect();
    if ill.is_empty() {
        "ok\n".into_response()
    } else {
        fail(StatusCode::SERVICE_UNAVAILABLE, ill.join(", "))
    }
}

/// Lets `/metrics` and the token's bearer pass.
async fn require_token(State(token): State<Arc<Option<String>>>, request: Request, next: Next) -> Response {
    let bearer = request.headers().get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, credentials) = value.to_str().ok()?.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then_some(credentials.trim_start())
    });
    let allowed = match (bearer, token.as_deref()) {
        (Some(bearer), Some(token)) => bool::from(bearer.as_bytes().ct_eq(token.as_bytes())),
        _ => false,
    };
    if allowed || request.uri().path() == "/metrics" {
        return next.run(request).await;
    }
    let mut refusal = fail(
        StatusCode::UNAUTHORIZED,
        "needs `Authorization: Bearer TOKEN`, the token of [admin]",
    );
    refusal.headers_mut().insert(
        header::WWW_AUTHENTICATE,
        header::HeaderValue::from_static("Bearer"),
    );
    refusal
}

#[cfg(test)]
#[path = "server_tests.rs"]
pub(crate) mod tests;
