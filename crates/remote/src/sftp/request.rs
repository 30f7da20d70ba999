//! Packets of SFTP version 3 that go to a server: values to bytes. Paths in them are ours.

use super::wire::VERSION;

/// Only the owner reads a repository, as in a local one.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

const OPEN_READ: u32 = 1;
/// Write, create, and only if it is new.
const OPEN_NEW: u32 = 2 | 8 | 0x20;

/// Attributes follow, and the permissions are all there is.
const HAS_MODE: u32 = 4;

/// What a server is asked for.
#[derive(Clone, Copy)]
pub(super) enum Request<'a> {
    Open(&'a str),
    OpenNew(&'a str),
    Close(&'a [u8]),
    Read(&'a [u8], u64, usize),
    Write(&'a [u8], u64, &'a [u8]),
    /// Does not follow a link at the end.
    Lstat(&'a str),
    Stat(&'a str),
    Opendir(&'a str),
    Readdir(&'a [u8]),
    Remove(&'a str),
    Mkdir(&'a str),
    Rmdir(&'a str),
    Rename(&'a str, &'a str),
    Hardlink(&'a str, &'a str),
    Fsync(&'a [u8]),
    Limits,
    Statvfs(&'a str),
}

/// The first packet of a client.
pub(super) fn encode_init() -> Vec<u8> {
    let version = VERSION.to_be_bytes();
    [&[0, 0, 0, 5, 1][..], &version].concat()
}

impl Request<'_> {
    /// As documents call it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Request::Open(_) | Request::OpenNew(_) => "OPEN",
            Request::Close(_) => "CLOSE",
            Request::Read(..) => "READ",
            Request::Write(..) => "WRITE",
            Request::Lstat(_) => "LSTAT",
            Request::Stat(_) => "STAT",
            Request::Opendir(_) => "OPENDIR",
            Request::Readdir(_) => "READDIR",
            Request::Remove(_) => "REMOVE",
            Request::Mkdir(_) => "MKDIR",
            Request::Rmdir(_) => "RMDIR",
            Request::Rename(..) => "RENAME",
            Request::Hardlink(..) => "hardlink@openssh.com",
            Request::Fsync(_) => "fsync@openssh.com",
            Request::Limits => "limits@openssh.com",
            Request::Statvfs(_) => "statvfs@openssh.com",
        }
    }

    /// The packet with its length.
    pub(super) fn encode(&self, id: u32) -> Vec<u8> {
        let mut packet = Packet::begin(self.kind(), id);
        match *self {
            Request::Open(path) => packet.text(path).u32(OPEN_READ).u32(0),
            Request::OpenNew(path) => (packet.text(path).u32(OPEN_NEW))
                .u32(HAS_MODE)
                .u32(FILE_MODE),
            Request::Close(handle) | Request::Readdir(handle) => packet.string(handle),
            Request::Read(handle, offset, len) => {
                packet.string(handle).u64(offset).u32(len_u32(len))
            }
            Request::Write(handle, offset, bytes) => {
                packet.string(handle).u64(offset).string(bytes)
            }
            Request::Lstat(path)
            | Request::Stat(path)
            | Request::Opendir(path)
            | Request::Remove(path)
            | Request::Rmdir(path) => packet.text(path),
            Request::Mkdir(path) => packet.text(path).u32(HAS_MODE).u32(DIR_MODE),
            Request::Rename(from, to) => packet.text(from).text(to),
            Request::Hardlink(from, to) => packet.text(self.name()).text(from).text(to),
            Request::Fsync(handle) => packet.text(self.name()).string(handle),
            Request::Limits => packet.text(self.name()),
            Request::Statvfs(path) => packet.text(self.name()).text(path),
        };
        packet.finish()
    }

    fn kind(&self) -> u8 {
        match self {
            Request::Open(_) | Request::OpenNew(_) => 3,
            Request::Close(_) => 4,
            Request::Read(..) => 5,
            Request::Write(..) => 6,
            Request::Lstat(_) => 7,
            Request::Opendir(_) => 11,
            Request::Readdir(_) => 12,
            Request::Remove(_) => 13,
            Request::Mkdir(_) => 14,
            Request::Rmdir(_) => 15,
            Request::Stat(_) => 17,
            Request::Rename(..) => 18,
            Request::Hardlink(..) | Request::Fsync(_) | Request::Limits | Request::Statvfs(_) => {
                200
            }
        }
    }
}

fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("no request is longer than a packet")
}

struct Packet {
    bytes: Vec<u8>,
}

impl Packet {
    fn begin(kind: u8, id: u32) -> Packet {
        let mut packet = Packet {
            bytes: vec![0, 0, 0, 0, kind],
        };
        packet.u32(id);
        packet
    }

    fn u32(&mut self, number: u32) -> &mut Packet {
        self.bytes.extend(number.to_be_bytes());
        self
    }

    fn u64(&mut self, number: u64) -> &mut Packet {
        self.bytes.extend(number.to_be_bytes());
        self
    }

    fn string(&mut self, bytes: &[u8]) -> &mut Packet {
        self.u32(len_u32(bytes.len()));
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, text: &str) -> &mut Packet {
        self.string(text.as_bytes())
    }

    fn finish(mut self) -> Vec<u8> {
        let len = len_u32(self.bytes.len() - 4);
        self.bytes[..4].copy_from_slice(&len.to_be_bytes());
        self.bytes
    }
}
