//! A gate before a server of HTTP: each request is shown to a test, which lets it pass or answers
//! it in the server's place.
//!
//! Every request has a line of its own to the server and ends that to the client, so that an
//! answer needs no reading to its end. Bytes that go wrong on their way are `FaultProxy`'s.

use crate::open_lines::OpenLines;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Of a request or an answer.
const HEAD_BYTES_MAX: u64 = 64 << 10;

/// Of a request.
const BODY_BYTES_MAX: u64 = 256 << 20;

/// A request, whole.
#[derive(Clone, Debug)]
pub struct GateRequest {
    pub method: String,
    /// Decoded.
    pub path: String,
    /// Names and values after the question mark, decoded.
    pub query: Vec<(String, String)>,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Its first line.
    pub line: String,
}

impl GateRequest {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The value of a parameter, empty for one without.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// An answer that the server does not know of.
#[derive(Clone, Debug)]
pub struct GateAnswer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

impl GateAnswer {
    /// As servers of S3 refuse; `more` are further elements.
    pub fn s3_error(status: u16, code: &str, more: &str) -> GateAnswer {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code>\
             <Message>said by a gate</Message>{more}</Error>"
        );
        GateAnswer {
            status,
            headers: Vec::new(),
            body,
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Passage {
    Open,
    /// The server does not see it.
    Refused(GateAnswer),
    /// The server answers, but this comes in the place of a 404.
    HidingWhatIsMissing(GateAnswer),
}

type Guard = dyn Fn(&GateRequest) -> Passage + Send + Sync;

struct Gate {
    server: SocketAddr,
    guard: Box<Guard>,
    is_over: AtomicBool,
    lines: OpenLines,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Listens until it is dropped.
pub struct HttpGate {
    address: SocketAddr,
    gate: Arc<Gate>,
    listening: Option<JoinHandle<()>>,
}

impl HttpGate {
    /// In front of a server; `guard` decides.
    pub fn new(
        server: SocketAddr,
        guard: impl Fn(&GateRequest) -> Passage + Send + Sync + 'static,
    ) -> HttpGate {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of this machine");
        let address = listener.local_addr().expect("it listens");
        let gate = Arc::new(Gate {
            server,
            guard: Box::new(guard),
            is_over: AtomicBool::new(false),
            lines: OpenLines::default(),
            threads: Mutex::default(),
        });
        let listens = gate.clone();
        let listening = std::thread::spawn(move || listens.listen(&listener));
        HttpGate {
            address,
            gate,
            listening: Some(listening),
        }
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpGate {
    fn drop(&mut self) {
        self.gate.is_over.store(true, Ordering::SeqCst);
        // Wakes who waits for a connection.
        let _it_may_listen = TcpStream::connect(self.address);
        if let Some(listening) = self.listening.take() {
            let _ended = listening.join();
        }
        self.gate.lines.cut();
        for thread in std::mem::take(&mut *self.gate.threads()) {
            let _ended = thread.join();
        }
    }
}

impl Gate {
    fn threads(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(self: &Arc<Gate>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let Ok(client) = client else { continue };
            let (gate, client) = (self.clone(), self.lines.add(client));
            let thread = std::thread::spawn(move || {
                let _either_end_is_gone = gate.serve(&client);
                let _it_was_shut = client.shutdown(Shutdown::Write);
            });
            let mut threads = self.threads();
            threads.retain(|thread| !thread.is_finished());
            threads.push(thread);
        }
    }

    /// One request.
    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        let request = read_request(client)?;
        let is_head = request.method == "HEAD";
        let passage = (self.guard)(&request);
        if let Passage::Refused(answer) = passage {
            return send(client, &answer, is_head);
        }
        let server = self.lines.add(TcpStream::connect(self.server)?);
        pass_on(&request, &server)?;
        let mut answer = BufReader::new(&*server);
        let head = read_head(&mut answer)?;
        if let Passage::HidingWhatIsMissing(instead) = passage
            && head.starts_with("HTTP/1.1 404")
        {
            return send(client, &instead, is_head);
        }
        let mut client = client;
        client.write_all(closing(&head).as_bytes())?;
        // Said to be the last on this line, it ends with it.
        io::copy(&mut answer, &mut client).map(drop)
    }
}

fn read_request(client: &TcpStream) -> io::Result<GateRequest> {
    let mut from = BufReader::new(client);
    let head = read_head(&mut from)?;
    let mut lines = head.lines();
    let line = lines.next().unwrap_or_default().to_owned();
    let mut words = line.split(' ');
    let (method, target) = (words.next(), words.next());
    let (Some(method), Some(target)) = (method, target) else {
        return Err(ErrorKind::InvalidData.into());
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    let parameters = query.split('&').filter(|pair| !pair.is_empty());
    let parameters = parameters.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut request = GateRequest {
        method: method.to_owned(),
        path: decoded(path),
        query: parameters
            .map(|(name, value)| (decoded(name), decoded(value)))
            .collect(),
        headers: headers.collect(),
        body: Vec::new(),
        line: line.clone(),
    };
    let encoding = request.header("transfer-encoding");
    assert_eq!(encoding, None, "a body without a length");
    let len = request.header("content-length");
    let len: u64 = len.map_or(0, |len| len.parse().expect("a length"));
    assert!(len <= BODY_BYTES_MAX, "a body of {len} bytes");
    if request.header("expect").is_some() {
        let mut client = client;
        client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    (&mut from).take(len).read_to_end(&mut request.body)?;
    match request.body.len() as u64 == len {
        true => Ok(request),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// With the empty line at its end.
fn read_head(from: &mut impl BufRead) -> io::Result<String> {
    let mut from = from.take(HEAD_BYTES_MAX);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

fn pass_on(request: &GateRequest, mut server: &TcpStream) -> io::Result<()> {
    let of_the_line = ["connection", "expect"];
    let headers = request.headers.iter();
    let headers = headers.filter(|(name, _)| !of_the_line.contains(&name.as_str()));
    let mut head = format!("{}\r\n", request.line);
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "connection: close\r\n\r\n";
    server.write_all(&[head.as_bytes(), &request.body].concat())
}

/// A head that says that nothing follows on the line.
fn closing(head: &str) -> String {
    let lines = head.trim_end().split("\r\n");
    let is_other = |line: &&str| !line.to_ascii_lowercase().starts_with("connection:");
    let lines: Vec<_> = lines.filter(is_other).collect();
    format!("{}\r\nconnection: close\r\n\r\n", lines.join("\r\n"))
}

fn send(mut client: &TcpStream, answer: &GateAnswer, is_head: bool) -> io::Result<()> {
    let body = if is_head { "" } else { &answer.body };
    let mut head = format!("HTTP/1.1 {} X\r\n", answer.status);
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!(
        "Content-Type: application/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    client.write_all(head.as_bytes())
}

/// Without what `%` stands for.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let two = rest.clone().take(2).collect::<Vec<_>>();
        let coded = str::from_utf8(&two).ok();
        let coded = coded.and_then(|two| u8::from_str_radix(two, 16).ok());
        match coded.filter(|_| byte == b'%') {
            Some(coded) => {
                rest.nth(1);
                bytes.push(coded);
            }
            None => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
