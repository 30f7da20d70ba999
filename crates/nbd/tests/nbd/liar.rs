//! A server that lies: it speaks the protocol as far as a test wants it to.

#![allow(dead_code, reason = "each test program uses some of it")]

use bale_nbd::NbdUri;
use bale_nbd::wire::negotiation::{
    OPTION_HEAD_BYTES, decode_contexts, decode_option_head, encode_context, encode_export,
    encode_greeting, encode_option_reply, option, option_reply,
};
use bale_nbd::wire::reply::{ChunkHead, ReplyHead, encode_head};
use bale_nbd::wire::request::{NbdRequest, decode_request, request_bytes};
use bale_nbd::wire::{HeaderStyle, export_flags};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tempfile::TempDir;

pub const LEN: u64 = 1 << 20;
pub const ALLOCATION: u32 = 7;
pub const DIRTY: u32 = 8;

/// Says whether it has answered an option.
pub type Answer<'a> = dyn FnMut(&mut Line, u32, &[u8]) -> io::Result<bool> + 'a;

/// A connection as a liar sees it: it may end in the middle of what is sent.
pub struct Line {
    stream: UnixStream,
    /// Bytes that are sent before the connection ends.
    pub sends_max: usize,
    /// The byte that is another one than it should be.
    pub flips: Option<usize>,
    pub sent: usize,
}

impl Line {
    pub fn read<const LEN: usize>(&mut self) -> io::Result<[u8; LEN]> {
        let mut bytes = [0; LEN];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub fn read_vec(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut bytes = bytes.to_vec();
        if let Some(place) = self.flips.and_then(|place| place.checked_sub(self.sent)) {
            bytes
                .get_mut(place)
                .into_iter()
                .for_each(|byte| *byte ^= 0xff);
        }
        let left = self.sends_max - self.sent;
        let len = bytes.len().min(left);
        self.stream.write_all(&bytes[..len])?;
        self.sent += len;
        match len == bytes.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// A request and its data.
    pub fn request(&mut self, style: HeaderStyle) -> io::Result<NbdRequest> {
        let head = self.read_vec(request_bytes(style))?;
        Ok(decode_request(&head, style).expect("our client sends requests"))
    }

    pub fn chunk(
        &mut self,
        request: &NbdRequest,
        style: HeaderStyle,
        is_last: bool,
        kind: u16,
        payload: &[u8],
    ) -> io::Result<()> {
        let head = encode_head(&ReplyHead::Chunk(ChunkHead {
            is_last,
            kind,
            cookie: request.cookie,
            offset: (style == HeaderStyle::Extended).then_some(request.offset),
            len: payload.len() as u64,
        }));
        self.send(&[&head, payload].concat())
    }

    /// Everything before the first request, without a lie.
    pub fn shake(&mut self, style: HeaderStyle) -> io::Result<()> {
        self.shake_with(style, &mut |line, option, _| {
            if option != option::GO {
                return Ok(false);
            }
            let flags = export_flags::HAS_FLAGS | export_flags::SEND_FLUSH;
            line.reply(option, option_reply::INFO, &encode_export(LEN, flags))?;
            line.reply(option, option_reply::ACK, &[])?;
            Ok(true)
        })
    }

    pub fn reply(&mut self, option: u32, kind: u32, payload: &[u8]) -> io::Result<()> {
        self.send(&encode_option_reply(option, kind, payload))
    }

    /// `answer` says whether it has answered an option; the export is open with `GO`.
    pub fn shake_with(&mut self, style: HeaderStyle, answer: &mut Answer<'_>) -> io::Result<()> {
        self.send(&encode_greeting())?;
        self.read::<4>()?;
        loop {
            let head = self.read::<OPTION_HEAD_BYTES>()?;
            let (option, len) = decode_option_head(&head).expect("our client sends options");
            let payload = self.read_vec(len)?;
            if !answer(self, option, &payload)? {
                match option {
                    option::EXTENDED_HEADERS if style == HeaderStyle::Extended => {
                        self.reply(option, option_reply::ACK, &[])?;
                    }
                    option::STRUCTURED_REPLY if style != HeaderStyle::Simple => {
                        self.reply(option, option_reply::ACK, &[])?;
                    }
                    option::SET_META_CONTEXT => {
                        let (_, names) = decode_contexts(&payload).expect("contexts");
                        for (name, id) in names.iter().zip([ALLOCATION, DIRTY]) {
                            let context = encode_context(id, name);
                            self.reply(option, option_reply::META_CONTEXT, &context)?;
                        }
                        self.reply(option, option_reply::ACK, &[])?;
                    }
                    option => self.reply(option, option_reply::UNSUPPORTED, &[])?,
                }
            }
            if option == option::GO {
                return Ok(());
            }
        }
    }
}

/// A server that lies; it ends with the value.
pub struct Liar {
    dir: TempDir,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Liar {
    /// Serves each connection by `serve`, one after the other.
    pub fn start(serve: impl Fn(&mut Line) -> io::Result<()> + Send + 'static) -> Liar {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let mut line = Line {
                    stream,
                    sends_max: usize::MAX,
                    flips: None,
                    sent: 0,
                };
                // The client may have gone.
                let _ = serve(&mut line);
            }
        });
        Liar {
            dir,
            is_over,
            thread: Some(thread),
        }
    }

    pub fn uri(&self) -> NbdUri {
        let socket = self.dir.path().join("socket");
        NbdUri::parse(&format!("nbd+unix:///?socket={}", socket.display())).unwrap()
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // It accepts this one, and looks whether it is over.
        let stream = UnixStream::connect(self.dir.path().join("socket"));
        if stream.is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}
