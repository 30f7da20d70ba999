//! HTTP/2 on two pipes, as a client; the only file that knows the libraries for it.
//!
//! Any thread makes requests; they share the connection, and each waits for its own answer. A body
//! leaves in pieces as the other side takes them, and is read as it is wanted: what is in memory is
//! bounded by the windows. Silence in the middle of anything ends with a time-out.

use crate::http::Answer;
use crate::throttle::Throttle;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use http::{HeaderName, Method, Request, Response, header};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Bytes of a body that are sent at once, and pieces that wait.
const PIECE_BYTES: usize = 256 << 10;
const PIECES_AHEAD: usize = 2;

/// Bytes of one answer, and of all, that may come before they are read.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// Bytes of the head of an answer at most.
const HEAD_BYTES_MAX: u32 = 32 << 10;

type Outgoing = Channel<Bytes, Infallible>;

/// A connection that is open, or has ended.
pub struct Http2Connection {
    runtime: Arc<Runtime>,
    sender: SendRequest<Outgoing>,
    /// Ends with the connection.
    open: Receiver<Infallible>,
    idle_timeout: Duration,
    throttle: Throttle,
}

impl Http2Connection {
    /// Says hello; what the other side is shows with the first answer.
    pub fn open(
        stdin: ChildStdin,
        stdout: ChildStdout,
        idle_timeout: Duration,
        throttle: Throttle,
    ) -> io::Result<Http2Connection> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("rclone-http2")
            .enable_io()
            .enable_time()
            .build()?;
        let begun = runtime.block_on(async {
            let to = pipe::Sender::from_owned_fd(OwnedFd::from(stdin))?;
            let from = pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))?;
            let io = TokioIo::new(tokio::io::join(from, to));
            let handshake = http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_header_list_size(HEAD_BYTES_MAX)
                .handshake(io);
            let (sender, connection) = handshake.await.map_err(|error| from_library(&error))?;
            let (ending, open) = bounded(0);
            // Why it ends is told to whoever waits for an answer.
            tokio::spawn(async move {
                drop(connection.await);
                drop(ending);
            });
            Ok::<_, io::Error>((sender, open))
        });
        let (sender, open) = begun?;
        Ok(Http2Connection {
            sender,
            open,
            runtime: Arc::new(runtime),
            idle_timeout,
            throttle,
        })
    }

    /// Can no more requests be made?
    pub fn has_ended(&self) -> bool {
        self.sender.is_closed()
    }

    /// The same, where a request failed: it is told before the connection is seen to be over.
    pub fn ends_within(&self, wait: Duration) -> bool {
        self.open.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected)
    }

    /// Makes one request, whatever its status.
    pub fn request(
        &self,
        method: &Method,
        url: &str,
        headers: &[(HeaderName, &str)],
        body: Option<&[u8]>,
    ) -> io::Result<Answer> {
        let (feed, outgoing) = Channel::new(PIECES_AHEAD);
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        if let Some(bytes) = body {
            request = request.header(header::CONTENT_LENGTH, bytes.len());
        }
        let request = request.body(outgoing).map_err(io::Error::other)?;
        let mut sender = self.sender.clone();
        let answer = self.runtime.block_on(async {
            let answer = pin!(sender.send_request(request));
            self.exchange(answer, feed, body.unwrap_or_default()).await
        })?;
        Ok(answer.map(|body| {
            let body = Http2Body {
                body,
                piece: Bytes::new(),
                runtime: self.runtime.clone(),
                idle_timeout: self.idle_timeout,
            };
            Box::new(self.throttle.downloaded(body)) as Box<dyn Read>
        }))
    }

    /// Sends the body until all of it is taken, or there is an answer before.
    async fn exchange(
        &self,
        mut answer: Pin<&mut impl Future<Output = hyper::Result<Response<Incoming>>>>,
        mut feed: Sender<Bytes, Infallible>,
        bytes: &[u8],
    ) -> io::Result<Response<Incoming>> {
        let mut early = None;
        let piece_bytes = PIECE_BYTES.min(self.throttle.upload_piece());
        for (number, piece) in bytes.chunks(piece_bytes).enumerate() {
            (self.throttle).upload(number * piece_bytes, piece.len())?;
            let piece = Bytes::copy_from_slice(piece);
            let mut sending = pin!(feed.send_data(piece));
            let sent = timeout(
                self.idle_timeout,
                poll_fn(|context| {
                    if early.is_none()
                        && let Poll::Ready(answer) = answer.as_mut().poll(context)
                    {
                        early = Some(answer);
                    }
                    match &early {
                        Some(_) => Poll::Ready(Err(())),
                        None => sending.as_mut().poll(context).map_err(drop),
                    }
                }),
            );
            match sent.await {
                Ok(Ok(())) => {}
                // It answered, or nobody takes the rest: the answer says why.
                Ok(Err(())) => break,
                Err(_) => return Err(silent()),
            }
        }
        // The end of the body.
        drop(feed);
        let answer = match early {
            Some(answer) => answer,
            None => (timeout(self.idle_timeout, answer).await).map_err(|_| silent())?,
        };
        answer.map_err(|error| from_library(&error))
    }
}

/// The body of an answer, read as it comes.
struct Http2Body {
    body: Incoming,
    piece: Bytes,
    runtime: Arc<Runtime>,
    idle_timeout: Duration,
}

impl Read for Http2Body {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let frame = self.body.frame();
            let frame = (self.runtime).block_on(async { timeout(self.idle_timeout, frame).await });
            match frame.map_err(|_| silent())? {
                None => return Ok(0),
                Some(Err(error)) => return Err(from_library(&error)),
                Some(Ok(frame)) => self.piece = frame.into_data().unwrap_or_default(),
            }
        }
        let len = buf.len().min(self.piece.len());
        buf[..len].copy_from_slice(&self.piece.split_to(len));
        Ok(len)
    }
}

fn silent() -> io::Error {
    let why = "the server is silent for too long (time-out)";
    io::Error::new(ErrorKind::TimedOut, why)
}

/// Whatever goes wrong below an answer is the connection's matter.
fn from_library(error: &hyper::Error) -> io::Error {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    let text = crate::shown::shown(text.as_bytes());
    let why = format!("the connection ended ({text})");
    io::Error::new(ErrorKind::ConnectionAborted, why)
}
