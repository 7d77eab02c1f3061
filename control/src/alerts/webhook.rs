//! One webhook: a bounded queue and a task that sends each event by POST, in order, with retries. Started by
//! [`super::Alerts`]; dropping it ends the task.

use super::{Event, WebhookStatus};
use crate::config::model::Alert;
use crate::health::probe::client_tls;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Events that wait at most: beyond, new ones are dropped.
const QUEUE: usize = 256;
/// Tries of one event.
const TRIES: u32 = 6;
/// Wait after the first failed try; doubled after each, so that six tries take about a minute.
const BACKOFF: Duration = Duration::from_secs(2);
/// Bytes of an answer's body that are read, to leave the connection clean.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A webhook.
#[derive(Debug)]
pub(super) struct Webhook {
    alert: Alert,
    queue: Sender<Bytes>,
    status: Arc<Mutex<WebhookStatus>>,
    task: JoinHandle<()>,
}

fn lock(status: &Mutex<WebhookStatus>) -> MutexGuard<'_, WebhookStatus> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Webhook {
    /// Starts it.
    pub(super) fn start(alert: Alert) -> Self {
        let (queue, events) = channel(QUEUE);
        let status = Arc::new(Mutex::new(WebhookStatus {
            url: public(&alert.url),
            ..WebhookStatus::default()
        }));
        let task = tokio::spawn(run(alert.clone(), events, status.clone()));
        Self {
            alert,
            queue,
            status,
            task,
        }
    }

    pub(super) fn alert(&self) -> &Alert {
        &self.alert
    }

    /// Takes an event, if it is of a kind that is wanted.
    pub(super) fn tell(&self, event: &Event) {
        if !self.alert.events.is_empty() && !self.alert.events.contains(&event.event) {
            return;
        }
        let Ok(body) = serde_json::to_vec(event) else {
            return;
        };
        let mut status = lock(&self.status);
        match self.queue.try_send(body.into()) {
            Ok(()) => status.waiting += 1,
            Err(_) => status.dropped += 1,
        }
    }

    pub(super) fn status(&self) -> WebhookStatus {
        lock(&self.status).clone()
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A URL without what may be secret in it: user, query, and the path, which is the secret of many services.
fn public(url: &str) -> String {
    let uri: Option<Uri> = url.parse().ok();
    let parts = uri
        .as_ref()
        .and_then(|uri| Some((uri.scheme_str()?, uri.host()?, uri.port_u16())));
    match parts {
        Some((scheme, host, Some(port))) => format!("{scheme}://{host}:{port}"),
        Some((scheme, host, None)) => format!("{scheme}://{host}"),
        None => String::new(),
    }
}

async fn run(alert: Alert, mut events: Receiver<Bytes>, status: Arc<Mutex<WebhookStatus>>) {
    while let Some(body) = events.recv().await {
        let delivered = deliver(&alert, &body, &status).await;
        let mut status = lock(&status);
        status.waiting -= 1;
        if delivered {
            status.delivered += 1;
        } else {
            status.dropped += 1;
            tracing::error!(
                url = status.url,
                error = status.last_error,
                "an event could not be delivered to a webhook"
            );
        }
    }
}

/// Tries until it is taken, refused for good, or tried often enough.
async fn deliver(alert: &Alert, body: &Bytes, status: &Mutex<WebhookStatus>) -> bool {
    let mut wait = BACKOFF;
    for turn in 1..=TRIES {
        let sent = tokio::time::timeout(alert.timeout, send(alert, body.clone())).await;
        // The receiver does not want it: asking again says the same.
        let retried = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
        let refused = matches!(&sent, Ok(Ok(code)) if code.is_client_error() && !retried.contains(code));
        let error = match sent {
            Ok(Ok(code)) if code.is_success() => return true,
            Ok(Ok(code)) => format!("status {}", code.as_u16()),
            Ok(Err(error)) => error,
            Err(_) => format!("no answer within {:?}", alert.timeout),
        };
        {
            let mut status = lock(status);
            status.failed_tries += 1;
            status.last_error = Some(error);
        }
        if refused {
            return false;
        }
        if turn < TRIES {
            tokio::time::sleep(wait.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
            wait *= 2;
        }
    }
    false
}

async fn send(alert: &Alert, body: Bytes) -> Result<StatusCode, String> {
    let uri: Uri = alert.url.parse().map_err(|e| format!("{e}"))?;
    let host = uri.host().ok_or("the URL has no host")?;
    let tls = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, port))
        .await
        .map_err(|e| format!("connecting to {host}: {e}"))?;
    if !tls {
        return exchange(stream, alert, &uri, body).await;
    }
    let name = ServerName::try_from(bare.to_owned()).map_err(|e| e.to_string())?;
    let stream = TlsConnector::from(client_tls())
        .connect(name, stream)
        .await
        .map_err(|e| format!("TLS with {host}: {e}"))?;
    exchange(stream, alert, &uri, body).await
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    alert: &Alert,
    uri: &Uri,
    body: Bytes,
) -> Result<StatusCode, String> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| {
        let whole = authority.as_str();
        whole.rsplit_once('@').map_or(whole, |(_, host)| host)
    });
    let mut request = Request::post(path)
        .header(header::HOST, host)
        .header(
            header::USER_AGENT,
            concat!("windrose/", env!("CARGO_PKG_VERSION")),
        )
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close");
    if let Some(token) = &alert.token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.0));
    }
    let request = request.body(Full::new(body)).map_err(|e| e.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| e.to_string())?;
    let connection = AbortOnDrop(tokio::spawn(async {
        let _ = connection.await;
    }));
    let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let code = response.status();
    // What the answer says does not matter, nor whether it ends well.
    let _ = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await;
    drop(connection);
    Ok(code)
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Alerts, Kind};
    use super::*;
    use crate::config::model::Token;
    use axum::Router;
    use axum::extract::State;
    use axum::http::HeaderMap;
    use axum::routing::post;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::UnboundedSender;
    use tokio::sync::mpsc::unbounded_channel;

    type Got = (Option<String>, serde_json::Value);

    /// A receiver that refuses the first `refuse` requests by 503.
    async fn receiver(refuse: usize) -> (String, tokio::sync::mpsc::UnboundedReceiver<Got>) {
        let (sender, got) = unbounded_channel::<Got>();
        let count = Arc::new(AtomicUsize::new(0));
        let take = move |State(sender): State<UnboundedSender<Got>>, headers: HeaderMap, body: String| {
            let nth = count.fetch_add(1, Ordering::Relaxed);
            async move {
                if nth < refuse {
                    return StatusCode::SERVICE_UNAVAILABLE;
                }
                let token = headers
                    .get("authorization")
                    .map(|v| v.to_str().unwrap().to_owned());
                sender
                    .send((token, serde_json::from_str(&body).unwrap()))
                    .unwrap();
                StatusCode::NO_CONTENT
            }
        };
        let routes = Router::new().route("/hook", post(take)).with_state(sender);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?key=1", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (url, got)
    }

    fn alert(url: &str, events: &[Kind]) -> Alert {
        Alert {
            url: url.to_owned(),
            events: events.to_vec(),
            token: Some(Token("t0ken".into())),
            timeout: Duration::from_secs(5),
        }
    }

    #[tokio::test]
    async fn what_is_wanted_arrives_in_order_also_after_a_refusal() {
        let (url, mut got) = receiver(1).await;
        let alerts = Alerts::new("edge-1");
        alerts.configure("edge-1", &[alert(&url, &[Kind::Failover, Kind::Failback])]);
        for kind in [Kind::Failover, Kind::Reload, Kind::Failback] {
            let event = Event::new(kind, "vod.example.com", "5xx", "moved");
            alerts.tell(event.with("to", "busan"));
        }
        let (token, first) = got.recv().await.unwrap();
        assert_eq!(token.as_deref(), Some("Bearer t0ken"));
        for (key, value) in [
            ("event", "failover"),
            ("appliance", "edge-1"),
            ("subject", "vod.example.com"),
            ("seen", "5xx"),
            ("done", "moved"),
        ] {
            assert_eq!(first[key], value, "{first}");
        }
        assert_eq!(
            (&first["number"], &first["details"]["to"]),
            (&1.into(), &"busan".into())
        );
        let (_, second) = got.recv().await.unwrap();
        assert_eq!(second["event"], "failback");
        settled(&alerts).await;
        let status = &alerts.webhooks()[0];
        assert_eq!((status.delivered, status.failed_tries, status.dropped), (2, 1, 0));
        assert_eq!(status.last_error.as_deref(), Some("status 503"));
        assert!(!status.url.contains("hook"), "{}", status.url);
    }

    async fn settled(alerts: &Alerts) {
        while alerts.webhooks()[0].waiting > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_dead_receiver_holds_nobody_up() {
        // Accepts and never answers.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let alerts = Alerts::new("edge-1");
        alerts.configure("edge-1", &[alert(&url, &[])]);
        let count = QUEUE + 50;
        for _ in 0..count {
            alerts.tell(Event::new(Kind::MemberDown, "a/b", "x", "y"));
        }
        let status = &alerts.webhooks()[0];
        assert_eq!(status.waiting + status.dropped, count as u64);
        assert!(status.dropped >= 49, "{status:?}");
        // Configured anew as it is, it goes on; without it, it ends.
        alerts.configure("edge-1", &[alert(&url, &[])]);
        assert_eq!(alerts.webhooks()[0].dropped, status.dropped);
        alerts.configure("edge-1", &[]);
        assert!(alerts.webhooks().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_nobody_takes_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        drop(listener);
        let alerts = Alerts::new("edge-1");
        alerts.configure("edge-1", &[alert(&url, &[])]);
        alerts.tell(Event::new(Kind::MemberDown, "a/b", "x", "y"));
        settled(&alerts).await;
        let status = &alerts.webhooks()[0];
        assert_eq!((status.failed_tries, status.dropped), (u64::from(TRIES), 1));
        assert!(status.last_error.as_deref().unwrap().contains("refused"));
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, shown) in [
            (
                "https://hooks.example.com/services/T0/B0/secret",
                "https://hooks.example.com",
            ),
            ("http://me:pass@192.0.2.9:8080/x?y", "http://192.0.2.9:8080"),
            ("http://[2001:db8::1]/", "http://[2001:db8::1]"),
        ] {
            assert_eq!(public(url), shown);
        }
    }
}
