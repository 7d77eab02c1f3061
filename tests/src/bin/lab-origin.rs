//! `lab-origin --site NAME ADDR:PORT...`: a small HTTP origin for the lab. Started by `windrose_tests::origin`.
//!
//! `GET /` and `GET /healthz` are answered with 200 and the site's name, anything else with 404. One
//! thread a connection, one request a connection.

use anyhow::{Context, Result};
use clap::Parser;
use std::io::{BufRead, BufReader, Write};
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
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
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
