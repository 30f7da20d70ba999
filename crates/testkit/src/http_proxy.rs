//! A proxy of HTTP that reaches one server under whatever name a client gives: requests with an
//! absolute target are passed on as they are, `CONNECT` is a tunnel. Tests see what it was asked
//! for.

use crate::open_lines::OpenLines;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Of a first request.
const HEAD_BYTES_MAX: usize = 64 << 10;

struct Shared {
    server: SocketAddr,
    /// Method and target of the first request of each line.
    asked: Mutex<Vec<String>>,
    is_over: AtomicBool,
    lines: OpenLines,
}

/// Listens until it is dropped.
pub struct HttpProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

impl HttpProxy {
    /// In front of a server.
    pub fn to(server: SocketAddr) -> HttpProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of this machine");
        let address = listener.local_addr().expect("it listens");
        let shared = Arc::new(Shared {
            server,
            asked: Mutex::default(),
            is_over: AtomicBool::new(false),
            lines: OpenLines::default(),
        });
        let listens = shared.clone();
        let listening = std::thread::spawn(move || listens.listen(&listener));
        HttpProxy {
            address,
            shared,
            listening: Some(listening),
        }
    }

    /// `http://HOST:PORT`, for the environment.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Method and target of the first request of each line, so far.
    pub fn asked(&self) -> Vec<String> {
        let asked = self.shared.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for HttpProxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes who waits for a connection.
        let _it_may_listen = TcpStream::connect(self.address);
        if let Some(listening) = self.listening.take() {
            let _ended = listening.join();
        }
        self.shared.lines.cut();
    }
}

impl Shared {
    fn listen(self: &Arc<Shared>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let Ok(client) = client else { continue };
            let (shared, client) = (self.clone(), self.lines.add(client));
            std::thread::spawn(move || {
                let _either_end_is_gone = shared.serve(&client);
                let _it_was_shut = client.shutdown(Shutdown::Both);
            });
        }
    }

    fn serve(&self, client: &Arc<TcpStream>) -> io::Result<()> {
        let head = read_head(client)?;
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        let asked = line.rsplit_once(' ').map_or(&*line, |(asked, _)| asked);
        (self.asked.lock().unwrap_or_else(PoisonError::into_inner)).push(asked.to_owned());
        let server = self.lines.add(TcpStream::connect(self.server)?);
        match line.starts_with("CONNECT ") {
            true => (&**client).write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?,
            false => (&*server).write_all(&head)?,
        }
        let (back_from, back_to) = (server.clone(), client.clone());
        let back = std::thread::spawn(move || carry(&back_from, &back_to));
        carry(client, &server);
        let _either_end_is_gone = back.join();
        Ok(())
    }
}

fn carry(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from, to);
    let _either_end_is_gone = io::copy(&mut from, &mut to);
    let _it_was_shut = to.shutdown(Shutdown::Write);
}

/// Up to the empty line, byte by byte: what follows is the server's.
fn read_head(client: &TcpStream) -> io::Result<Vec<u8>> {
    let (mut client, mut head) = (client, Vec::new());
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.extend(byte);
        if head.len() > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(head)
}
