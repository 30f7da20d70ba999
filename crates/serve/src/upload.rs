//! An object that arrives: from the connection to a thread that writes it, a piece at a time.
//!
//! It gets its name only when all its bytes came, have the hash that the name says, and are
//! durable. `config` and its copy have no hash in their names: the first that comes stays, and one
//! with other bytes is a conflict. A body that ends early, comes too slowly or is refused leaves
//! nothing.

use crate::limits::{
    BODY_BYTES_PER_SECOND_MIN, IDLE_TIMEOUT, PIECES_QUEUED, SMALL_OBJECT_BYTES, UPLOAD_WAIT,
};
use crate::served::{Refused, Served};
use bale_repository::store::{LocalStore, ObjectName, ObjectWriter, Store, StoreError};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::Incoming;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

const OTHER_IS_THERE: &str = "there is one already, with other bytes: the first one stays";

/// What the writing thread is given.
enum Piece {
    Bytes(Bytes),
    /// All of the body came.
    End,
}

/// Where an object is going.
pub struct Upload {
    pub store: LocalStore,
    pub name: ObjectName,
    /// As the client says.
    pub len: u64,
}

/// Stores a body; on return it is durable.
pub async fn receive(
    served: &Arc<Served>,
    upload: Upload,
    body: &mut Incoming,
) -> Result<(), Refused> {
    let place = timeout(UPLOAD_WAIT, served.uploads.clone().acquire_owned()).await;
    let Ok(Ok(place)) = place else {
        let why = "too many uploads at once; try again later";
        return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, why));
    };
    let longest = IDLE_TIMEOUT + Duration::from_secs(upload.len / BODY_BYTES_PER_SECOND_MIN);
    let (pieces, received) = channel(PIECES_QUEUED);
    let state = served.clone();
    let writer = tokio::task::spawn_blocking(move || {
        let _place = place;
        write(&state, &upload, received)
    });
    let copied = match timeout(longest, copy(body, &pieces)).await {
        Ok(copied) => copied,
        Err(_) => Err(Refused::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body comes too slowly",
        )),
    };
    drop(pieces);
    let written = writer.await.unwrap_or_else(|_| {
        let why = "the server failed";
        Err(Refused::new(StatusCode::INTERNAL_SERVER_ERROR, why))
    });
    copied.and(written)
}

/// Hands over what comes. Ends early, and well, if nobody takes it any more: he says why.
async fn copy(body: &mut Incoming, pieces: &Sender<Piece>) -> Result<(), Refused> {
    loop {
        let frame = match timeout(IDLE_TIMEOUT, body.frame()).await {
            Err(_) => {
                let why = "nothing came for too long";
                return Err(Refused::new(StatusCode::REQUEST_TIMEOUT, why));
            }
            Ok(Some(Err(_))) => return Err(cut_short()),
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => {
                let _writer_is_gone = pieces.send(Piece::End).await;
                return Ok(());
            }
        };
        let Ok(bytes) = frame.into_data() else {
            continue; // Trailers.
        };
        if pieces.send(Piece::Bytes(bytes)).await.is_err() {
            return Ok(());
        }
    }
}

fn cut_short() -> Refused {
    Refused::new(StatusCode::BAD_REQUEST, "the body ended before its length")
}

/// An object that comes: small ones whole in memory, others to the disk.
enum Sink {
    Memory(Vec<u8>),
    Disk(Box<dyn ObjectWriter>),
    /// There is no room for it, and it is there already.
    Nowhere,
}

fn write(served: &Served, upload: &Upload, mut received: Receiver<Piece>) -> Result<(), Refused> {
    let Upload { store, name, len } = upload;
    let failed = |error| served.failed(&error);
    let has_hash = name.id().is_some();
    if !has_hash && *len > SMALL_OBJECT_BYTES as u64 {
        return Err(Refused::too_long());
    }
    let reserved = served.quota.reserve(*len);
    let mut sink = match &reserved {
        None if store.stat(name).map_err(failed)?.is_some() => Sink::Nowhere,
        None => {
            let why = "the server's quota is used up";
            return Err(Refused::new(StatusCode::INSUFFICIENT_STORAGE, why));
        }
        Some(_) if *len <= SMALL_OBJECT_BYTES as u64 => {
            Sink::Memory(Vec::with_capacity(*len as usize))
        }
        Some(_) => Sink::Disk(store.begin().map_err(failed)?),
    };
    let mut hasher = blake3::Hasher::new();
    let mut came = 0_u64;
    loop {
        let bytes = match received.blocking_recv() {
            Some(Piece::Bytes(bytes)) => bytes,
            Some(Piece::End) if came == *len => break,
            _ => return Err(cut_short()),
        };
        came += bytes.len() as u64;
        if came > *len {
            return Err(Refused::new(
                StatusCode::BAD_REQUEST,
                "the body is longer than its length",
            ));
        }
        hasher.update(&bytes);
        match &mut sink {
            Sink::Memory(gathered) => gathered.extend_from_slice(&bytes),
            Sink::Disk(writer) => writer.append(&bytes).map_err(failed)?,
            Sink::Nowhere => {}
        }
    }
    let hash = hasher.finalize();
    check_hash(served, name, &hash)?;
    // Two uploads of one name at once are both counted, until the server starts anew.
    let is_present = store.stat(name).map_err(failed)?.is_some();
    match sink {
        Sink::Memory(bytes) => store.put(name, &bytes),
        Sink::Disk(writer) => writer.publish(name),
        Sink::Nowhere => Ok(()),
    }
    .map_err(failed)?;
    // Two may have come at once: whose bytes are there is seen only now.
    if !has_hash && !has_bytes_of(store, name, &hash).map_err(failed)? {
        return Err(Refused::new(StatusCode::CONFLICT, OTHER_IS_THERE));
    }
    if let Some(reserved) = reserved.filter(|_| !is_present) {
        reserved.keep();
        served
            .metrics
            .stored_bytes
            .fetch_add(*len, Ordering::Relaxed);
    }
    Ok(())
}

fn check_hash(served: &Served, name: &ObjectName, hash: &blake3::Hash) -> Result<(), Refused> {
    if !served.checks_hashes || name.id().is_none_or(|id| id.0 == *hash.as_bytes()) {
        return Ok(());
    }
    let refused = &served.metrics.refused_hashes;
    refused.fetch_add(1, Ordering::Relaxed);
    let why = "the body does not have the hash that its name says";
    Err(Refused::new(StatusCode::BAD_REQUEST, why))
}

/// Of a name that says nothing of the bytes: are those of this hash there?
fn has_bytes_of(
    store: &LocalStore,
    name: &ObjectName,
    hash: &blake3::Hash,
) -> Result<bool, StoreError> {
    match store.get(name, SMALL_OBJECT_BYTES as u64) {
        Ok(there) => Ok(blake3::hash(&there) == *hash),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => Ok(false),
        Err(error) => Err(error),
    }
}
