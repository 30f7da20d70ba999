//! What clients can make the server take: memory, threads, time. Each has a name here, and the sum
//! of memory is proven.

use bale_repository::store::disk::{WRITER_BYTES_CACHED_MAX, WRITER_BYTES_MAX};
use std::time::Duration;

/// Connections at once; further ones wait in the kernel's queue.
pub const CONNECTIONS_MAX: usize = 256;

/// Uploads that are written at once; further ones wait, their bytes with the client.
pub const UPLOADS_MAX: usize = 32;

/// Passwords that are checked at once, each with the memory that its hash asks for.
pub const LOGIN_CHECKS_MAX: usize = 2;

/// Memory that the hash of a password may ask for, in KiB.
pub const LOGIN_CHECK_KIB_MAX: u32 = 64 << 10;

/// Bytes that one connection holds of what was received or is to be sent.
pub const CONNECTION_BUFFER_BYTES: usize = 64 << 10;

/// Bytes read of an object, or gathered of a listing, before they are sent.
pub const PIECE_BYTES: usize = 64 << 10;

/// Pieces of one answer or upload between two threads.
pub const PIECES_QUEUED: usize = 1;

/// Objects up to this are gathered in memory and written at one go.
pub const SMALL_OBJECT_BYTES: usize = 256 << 10;

/// Bytes of one object at most: more than the largest pack.
pub const OBJECT_BYTES_MAX: u64 = 16 << 30;

/// Repositories that stay open, each with a few files: with all connections far below the 1,024
/// descriptors that a process usually may have.
pub const REPOSITORIES_OPEN_MAX: usize = 16;

/// Logins that were right and are not checked again.
pub const LOGINS_CACHED_MAX: usize = 1024;

/// Until the head of a request is there, also on a connection that waits for its next request.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Until an encrypted connection stands.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// Without a byte from the client, or without one taken by him.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Until an upload finds a place among `UPLOADS_MAX`.
pub const UPLOAD_WAIT: Duration = Duration::from_secs(60);

/// A body that comes slower than this does not hold a place for ever.
pub const BODY_BYTES_PER_SECOND_MIN: u64 = 1 << 10;

/// For requests under way when the server is to end.
pub const END_TIMEOUT: Duration = Duration::from_secs(30);

/// How often it is looked whether the server is to end.
pub const TICK: Duration = Duration::from_millis(50);

/// Memory that all clients together can make the server take, beside what the allocator and
/// encryption need for each connection.
pub const MEMORY_BYTES_MAX: usize = 384 << 20;

/// A piece being filled, those in the queue, and the one being sent.
const CONNECTION_BYTES_MAX: usize = 2 * CONNECTION_BUFFER_BYTES + (PIECES_QUEUED + 2) * PIECE_BYTES;

/// The object itself, and the pieces that the disk is given.
const UPLOAD_BYTES_MAX: usize = SMALL_OBJECT_BYTES + WRITER_BYTES_MAX;

const LOGINS_BYTES_MAX: usize = LOGIN_CHECKS_MAX * ((LOGIN_CHECK_KIB_MAX as usize) << 10);

const _: () = assert!(
    CONNECTIONS_MAX * CONNECTION_BYTES_MAX
        + UPLOADS_MAX * UPLOAD_BYTES_MAX
        + REPOSITORIES_OPEN_MAX * WRITER_BYTES_CACHED_MAX
        + LOGINS_BYTES_MAX
        <= MEMORY_BYTES_MAX
);
