//! A server whose answers take as long as the request says: HTTP/1.1, pipelined requests worked on side by side.
//!
//! `GET /MICROSECONDS/BYTES`, or POST with a body. Stands alone, or behind nginx.

use crate::timer::Timer;
use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use windrose_tests::lab::Host;
use windrose_tests::stream::inside;

/// A running server; takes no more connections when dropped. Those that there are end with their clients.
#[derive(Debug)]
pub struct Origin(Arc<AtomicBool>);

impl Drop for Origin {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Origin {
    /// Listens on `address` in `host`. `slower`: added to what each request asks for.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start(host: &Host, address: SocketAddr, slower: Duration) -> Result<Self> {
        let listener = inside(host, move || {
            TcpListener::bind(address).with_context(|| format!("listen on {address}"))
        })?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let over = stop.clone();
        std::thread::spawn(move || {
            let timer = Timer::default();
            while !over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let timer = timer.clone();
                        // A connection that breaks is its client's to report.
                        std::thread::spawn(move || drop(serve(stream, &timer, slower)));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        Ok(Self(stop))
    }
}

fn serve(stream: TcpStream, timer: &Timer, slower: Duration) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let out = Arc::new(Mutex::new(stream.try_clone()?));
    let (mut stream, mut buffer, mut piece) = (stream, Vec::new(), vec![0; 65_536]);
    loop {
        let got = stream.read(&mut piece)?;
        if got == 0 {
            return Ok(());
        }
        buffer.extend_from_slice(&piece[..got]);
        while let Some((head, whole)) = message(&buffer) {
            let mut parts = head
                .split(['/', ' '])
                .skip(2)
                .map(|part| part.parse::<u64>().unwrap_or(0));
            let (micros, bytes) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
            buffer.drain(..whole);
            let out = out.clone();
            timer.after(slower + Duration::from_micros(micros), move || {
                let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
                answer.resize(answer.len() + bytes as usize, b'x');
                // The client has gone: nobody waits.
                let _ = out
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .write_all(&answer);
            });
        }
    }
}

/// The head of the HTTP message at the start of `buffer`, and the length of all of it, when all is there.
pub fn message(buffer: &[u8]) -> Option<(String, usize)> {
    let end = buffer.windows(4).position(|at| at == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    let whole = end + length.unwrap_or(0);
    (buffer.len() >= whole).then_some((head, whole))
}

#[cfg(test)]
mod tests {
    #[test]
    fn messages_are_whole_or_none() {
        let text = b"GET /5/9 HTTP/1.1\r\ncontent-length: 3\r\n\r\nabcGET";
        let (head, whole) = super::message(text).unwrap();
        assert!(head.starts_with("GET /5/9"));
        assert_eq!(whole, text.len() - 3);
        assert!(super::message(&text[..whole - 1]).is_none());
    }
}
