//! A server of HTTP that answers what a script says, right or wrong.

use bale_remote::HttpOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Answers one connection after the other with what the script says, then ends.
pub struct ScriptServer {
    /// Of the repository on it.
    pub url: String,
    requests: Arc<Mutex<Vec<String>>>,
    server: JoinHandle<()>,
}

impl ScriptServer {
    pub fn new(answers: Vec<Vec<u8>>) -> ScriptServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/r/", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let seen = requests.clone();
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut connection, _) = listener.accept().unwrap();
                seen.lock().unwrap().push(read_request(&mut connection));
                // The client may have enough of it before the end.
                let _ = connection.write_all(&answer);
            }
        });
        ScriptServer {
            url,
            requests,
            server,
        }
    }

    /// Every answer was fetched; the heads of the requests.
    pub fn end(self) -> Vec<String> {
        self.server.join().unwrap();
        self.requests.lock().unwrap().clone()
    }
}

pub fn options() -> HttpOptions {
    HttpOptions {
        uses_proxy: false,
        ..HttpOptions::default()
    }
}

/// The head of a request; its body is read.
fn read_request(connection: &mut TcpStream) -> String {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "cut: {head}");
    }
    let lower = head.to_ascii_lowercase();
    let len = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let len = len.map_or(0, |len| len.parse().unwrap());
    std::io::copy(&mut reader.take(len), &mut std::io::sink()).unwrap();
    head
}

/// A head and a body; the connection ends with it.
pub fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    let head = head.replace('\n', "\r\n");
    let head = format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// A body with its right length.
pub fn whole(status: &str, body: &str) -> Vec<u8> {
    let head = format!("{status}\nContent-Length: {}", body.len());
    answer(&head, body.as_bytes())
}
