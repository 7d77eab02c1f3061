//! `lab-origin --site NAME ADDR:PORT...`: a small HTTP origin for the lab. Started by `windrose_tests::origin`.
//!
//! `GET /` and `GET /healthz` are answered with 200 and the site's name, anything else with 404. The body of a POST, one line
//! of JSON from a webhook, is printed after "posted ". One thread a connection, one request a connection.

use anyhow::{Context, Result};
use clap::Parser;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// A small HTTP origin.
#[derive(Parser)]
struct Args {
    /// What `GET /` and `GET /healthz` answer.
    #[arg(long)]
    site: String,
    /// Where to listen.
    #[arg(required = true)]
    listen: Vec<SocketAddr>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let listeners: Vec<TcpListener> = args
        .listen
        .iter()
        .map(|address| TcpListener::bind(address).with_context(|| format!("listen on {address}")))
        .collect::<Result<_>>()?;
    println!("listening");
    let threads: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            let site = args.site.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let site = site.clone();
                    std::thread::spawn(move || drop(serve(stream, &site)));
                }
            })
        })
        .collect();
    for thread in threads {
        let _ = thread.join();
    }
    Ok(())
}

/// Reads one request and answers it.
fn serve(stream: TcpStream, site: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut lines = reader.by_ref().lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let mut length = 0;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    if request.starts_with("POST ") {
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        // One write: lines of several threads stay whole.
        println!("posted {}", String::from_utf8_lossy(&body));
        return write!(&stream, "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
    }
    let (status, body) = match request.split(' ').nth(1) {
        Some("/" | "/healthz") => ("200 OK", site),
        _ => ("404 Not Found", "not here"),
    };
    let length = body.len() + 1;
    write!(
        &stream,
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}\n"
    )
}
