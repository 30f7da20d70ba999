//! What is sent: objects, ranges of them, and listings, made by a thread while they are sent.
//!
//! A client that takes nothing stops the thread, and is given up by the connection's time-out.

use crate::body::AnswerBody;
use crate::limits::{PIECE_BYTES, PIECES_QUEUED};
use crate::range::WantedPart;
use crate::served::{Refused, Served};
use bale_repository::store::{Area, LocalStore, ObjectInfo, ObjectName, Store, StoreError};
use bytes::{BufMut, Bytes, BytesMut};
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, oneshot};

/// What restic's clients request listings with sizes as.
const LISTING_TYPE: &str = "application/vnd.x.restic.rest.v2";

/// An object or a part of it. Blocks.
pub fn object(
    served: &Arc<Served>,
    store: LocalStore,
    name: ObjectName,
    range: Option<&str>,
) -> Result<Response<AnswerBody>, Refused> {
    // Another program may have replaced it since the last request.
    store.close_object(&name);
    let info = store.stat(&name).map_err(|error| served.failed(&error))?;
    let object_len = info.ok_or_else(not_found)?.len;
    let mut answer = Response::new(AnswerBody::empty());
    answer
        .headers_mut()
        .insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let content_range = |range: String| {
        HeaderValue::try_from(format!("bytes {range}/{object_len}")).expect("digits are a header")
    };
    let (offset, len) = match WantedPart::parse(range, object_len) {
        WantedPart::Whole => (0, object_len),
        WantedPart::Part { offset, len } => {
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
            let range = content_range(format!("{offset}-{}", offset + len - 1));
            answer.headers_mut().insert(header::CONTENT_RANGE, range);
            (offset, len)
        }
        WantedPart::Beyond => {
            *answer.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            let range = content_range("*".to_owned());
            answer.headers_mut().insert(header::CONTENT_RANGE, range);
            return Ok(answer);
        }
    };
    let part = Part {
        store,
        name,
        offset,
        end: offset + len,
    };
    *answer.body_mut() = match len <= PIECE_BYTES as u64 {
        true => {
            let bytes = part.read(offset).map_err(|error| served.failed(&error))?;
            served.metrics.sent_bytes.fetch_add(len, Ordering::Relaxed);
            AnswerBody::Whole(bytes)
        }
        false => {
            // What may not be opened is refused by a status, not by the end of the connection.
            let opens = part.store.read_at(&part.name, offset, &mut [0]);
            opens.map_err(|error| served.failed(&error))?;
            let (send, pieces) = mpsc::channel(PIECES_QUEUED);
            let served = served.clone();
            tokio::task::spawn_blocking(move || part.send(&served, &send));
            AnswerBody::Pieces {
                pieces,
                len: Some(len),
            }
        }
    };
    Ok(answer)
}

/// Its length alone. Blocks.
pub fn head(
    served: &Served,
    store: &LocalStore,
    name: &ObjectName,
) -> Result<Response<AnswerBody>, Refused> {
    let info = store.stat(name).map_err(|error| served.failed(&error))?;
    let len = info.ok_or_else(not_found)?.len;
    let mut answer = Response::new(AnswerBody::empty());
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    Ok(answer)
}

fn not_found() -> Refused {
    Refused::new(StatusCode::NOT_FOUND, "not found")
}

/// Bytes of an object that are on their way.
struct Part {
    store: LocalStore,
    name: ObjectName,
    offset: u64,
    end: u64,
}

impl Part {
    /// The piece at `at`.
    fn read(&self, at: u64) -> Result<Bytes, StoreError> {
        let len = (self.end - at).min(PIECE_BYTES as u64) as usize;
        let mut piece = vec![0; len];
        self.store.read_at(&self.name, at, &mut piece)?;
        Ok(piece.into())
    }

    fn send(&self, served: &Served, pieces: &mpsc::Sender<io::Result<Bytes>>) {
        let mut at = self.offset;
        while at < self.end {
            let piece = self.read(at);
            if let Err(error) = &piece {
                (served.log)(&error.to_string());
            }
            let len = piece.as_ref().map_or(0, Bytes::len) as u64;
            let is_over = piece.is_err();
            let piece = piece.map_err(|_| io::Error::other("the object cannot be read"));
            if pieces.blocking_send(piece).is_err() || is_over {
                break;
            }
            served.metrics.sent_bytes.fetch_add(len, Ordering::Relaxed);
            at += len;
        }
        // Who deletes it gets its space back.
        self.store.close_object(&self.name);
    }
}

/// The objects of an area, as JSON: names of packs by their last part, as other servers of this
/// protocol have them, and records of runs with the run before them.
pub async fn listing(
    served: &Arc<Served>,
    store: LocalStore,
    area: Area,
) -> Result<Response<AnswerBody>, Refused> {
    let (send, pieces) = mpsc::channel(PIECES_QUEUED);
    let (begin, began) = oneshot::channel();
    let mut listing = Listing {
        text: BytesMut::new(),
        is_first: true,
        begin: Some(begin),
        send,
    };
    let state = served.clone();
    tokio::task::spawn_blocking(move || {
        listing.text.put_slice(b"[");
        let foreign = &mut |entry| state.met_foreign(&store, &entry);
        let listed = store.list_and_name(area, &mut |info| listing.push(&info), foreign);
        if let (Err(error), true) = (&listed, listing.has_begun()) {
            (state.log)(&error.to_string());
        }
        let is_new = matches!(&listed, Err(error) if error.is_missing_area() && is_new(&store));
        listing.end(listed.map_err(|error| (error, is_new)));
    });
    match began.await {
        Ok(Ok(())) => {}
        // Whoever is to make a repository looks first whether anything is there.
        Ok(Err((_, true))) => return Err(not_found()),
        Ok(Err((error, false))) => return Err(served.failed(&error)),
        Err(_) => {
            let why = "the server failed";
            return Err(Refused::new(StatusCode::INTERNAL_SERVER_ERROR, why));
        }
    }
    let mut answer = Response::new(AnswerBody::Pieces { pieces, len: None });
    let kind = HeaderValue::from_static(LISTING_TYPE);
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(answer)
}

/// Is no repository there? What fails is found out by who looks for one.
fn is_new(store: &LocalStore) -> bool {
    let is_missing = |name| matches!(store.stat(&name), Ok(None));
    ObjectName::configs().into_iter().all(is_missing)
}

/// Why nothing is listed, and whether it is because nothing is there at all.
type NotListed = (StoreError, bool);

/// A listing on its way. It begins with its first piece: what fails before is an error by its
/// status, what fails after ends the connection.
struct Listing {
    text: BytesMut,
    is_first: bool,
    begin: Option<oneshot::Sender<Result<(), NotListed>>>,
    send: mpsc::Sender<io::Result<Bytes>>,
}

impl Listing {
    fn push(&mut self, info: &ObjectInfo) {
        let comma = if self.is_first { "" } else { "," };
        self.is_first = false;
        let path = info.name.path();
        let name = match info.name.area {
            // The run and the id.
            Area::Runs => path.split_once('/').map_or(path.as_str(), |(_, name)| name),
            _ => path
                .rsplit_once('/')
                .map_or(path.as_str(), |(_, name)| name),
        };
        let entry = format!("{comma}{{\"name\":\"{name}\",\"size\":{}}}", info.len);
        self.text.put_slice(entry.as_bytes());
        if self.text.len() >= PIECE_BYTES / 2 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Some(begin) = self.begin.take() {
            let _client_is_gone = begin.send(Ok(()));
        }
        let text = std::mem::take(&mut self.text);
        // The store lists on to its end, for nobody.
        let _client_is_gone = self.send.blocking_send(Ok(text.freeze()));
    }

    fn has_begun(&self) -> bool {
        self.begin.is_none()
    }

    fn end(mut self, listed: Result<(), NotListed>) {
        match (listed, self.begin.take()) {
            (Ok(()), begin) => {
                self.begin = begin;
                self.text.put_slice(b"]");
                self.flush();
            }
            (Err(error), Some(begin)) => {
                let _client_is_gone = begin.send(Err(error));
            }
            (Err(_), None) => {
                let error = io::Error::other("the listing cannot be completed");
                let _client_is_gone = self.send.blocking_send(Err(error));
            }
        }
    }
}
