//! Packets of SFTP version 3 that come from a server: bytes to values, nothing believed.
//!
//! Pure, so that a fuzzer can try it. A length is checked before anything of that length is
//! allocated, and what does not fill its packet exactly is an error. Layout:
//! draft-ietf-secsh-filexfer-02; extensions: OpenSSH's PROTOCOL, section 4.

pub use crate::shown::shown;
/// Bytes of one packet at most, without its length: 256 KiB as OpenSSH has it, and a header.
pub const PACKET_BYTES_MAX: usize = (256 << 10) + (1 << 10);

/// Bytes of a handle at most; the protocol says so.
const HANDLE_BYTES_MAX: usize = 256;

/// The version that is spoken here.
pub const VERSION: u32 = 3;

/// Bytes of a name in a listing at least: two strings and the flags of its attributes.
const NAME_BYTES_MIN: usize = 12;

const TYPE_VERSION: u8 = 2;

/// Codes of `SftpReply::Status`.
pub mod status {
    pub const OK: u32 = 0;
    pub const EOF: u32 = 1;
    pub const NO_SUCH_FILE: u32 = 2;
    pub const PERMISSION_DENIED: u32 = 3;
    /// Says nothing but that it did not work.
    pub const FAILURE: u32 = 4;
    pub const BAD_MESSAGE: u32 = 5;
    pub const NO_CONNECTION: u32 = 6;
    pub const CONNECTION_LOST: u32 = 7;
    pub const OP_UNSUPPORTED: u32 = 8;
    // Of later versions; some servers send them anyway.
    pub const FILE_ALREADY_EXISTS: u32 = 11;
    pub const NO_SPACE: u32 = 14;
    pub const QUOTA_EXCEEDED: u32 = 15;
}

/// Why bytes are no answer.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SftpPacketError {
    #[error("a packet of {0} bytes, and none has more than {PACKET_BYTES_MAX}")]
    TooLong(u32),
    #[error("a packet that ends in the middle of its {0}")]
    EndsEarly(&'static str),
    #[error("a packet with {0} bytes too many")]
    Trailing(usize),
    #[error("a packet of type {0}, which is no answer")]
    Type(u8),
    #[error("a handle of {0} bytes")]
    Handle(usize),
}

type Result<T> = std::result::Result<T, SftpPacketError>;

/// What a server answers to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum SftpReply {
    /// Of `status`, with the server's words, which are safe to show.
    Status {
        code: u32,
        message: String,
    },
    Handle(Vec<u8>),
    Data(Vec<u8>),
    Names(Vec<SftpName>),
    Attributes(SftpAttributes),
    /// Of an extension: `decode_limits`, `decode_file_system`.
    Extended(Vec<u8>),
}

/// A name in a listing.
#[derive(Debug, PartialEq, Eq)]
pub struct SftpName {
    pub name: Vec<u8>,
    pub attributes: SftpAttributes,
}

/// What a server says of a file; it may leave out anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SftpAttributes {
    /// Length in bytes.
    pub len: Option<u64>,
    /// Kind and permissions, as `st_mode` has them.
    pub mode: Option<u32>,
    /// Seconds since 1970, by the server's clock.
    pub modified: Option<u32>,
}

/// First packet of a server: what it can do of what we use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SftpVersion {
    pub version: u32,
    pub has_fsync: bool,
    pub has_hardlink: bool,
    pub has_limits: bool,
    pub has_statvfs: bool,
}

/// Answer to `limits@openssh.com`; 0 where the server does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SftpLimits {
    pub packet_bytes_max: u64,
    pub read_bytes_max: u64,
    pub write_bytes_max: u64,
    pub handles_max: u64,
}

/// Answer to `statvfs@openssh.com`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SftpFileSystem {
    pub block_bytes: u64,
    pub blocks_available: u64,
    /// 0 where the file system does not count inodes.
    pub inodes: u64,
    pub inodes_available: u64,
}

/// Reads the length that stands before a packet.
pub fn decode_len(prefix: [u8; 4]) -> Result<usize> {
    let len = u32::from_be_bytes(prefix);
    match usize::try_from(len) {
        Ok(len) if len <= PACKET_BYTES_MAX => Ok(len),
        _ => Err(SftpPacketError::TooLong(len)),
    }
}

/// Reads a packet, without its length: the id of the request, and the answer.
pub fn decode_reply(packet: &[u8]) -> Result<(u32, SftpReply)> {
    let mut fields = Fields { rest: packet };
    let kind = fields.byte("type")?;
    if !matches!(kind, 101..=105 | 201) {
        return Err(SftpPacketError::Type(kind));
    }
    let id = fields.u32("id")?;
    let reply = match kind {
        101 => fields.status()?,
        102 => match fields.string("handle")? {
            handle if handle.len() > HANDLE_BYTES_MAX => {
                return Err(SftpPacketError::Handle(handle.len()));
            }
            handle => SftpReply::Handle(handle.to_vec()),
        },
        103 => SftpReply::Data(fields.string("data")?.to_vec()),
        104 => SftpReply::Names(fields.names()?),
        105 => SftpReply::Attributes(fields.attributes()?),
        _ => SftpReply::Extended(std::mem::take(&mut fields.rest).to_vec()),
    };
    fields.finish()?;
    Ok((id, reply))
}

/// Reads the first packet of a server, without its length.
pub fn decode_version(packet: &[u8]) -> Result<SftpVersion> {
    let mut fields = Fields { rest: packet };
    let kind = fields.byte("type")?;
    if kind != TYPE_VERSION {
        return Err(SftpPacketError::Type(kind));
    }
    let mut server = SftpVersion {
        version: fields.u32("version")?,
        ..SftpVersion::default()
    };
    while !fields.rest.is_empty() {
        let name = fields.string("extension")?;
        let revision = fields.string("extension")?;
        match (name, revision) {
            (b"fsync@openssh.com", b"1") => server.has_fsync = true,
            (b"hardlink@openssh.com", b"1") => server.has_hardlink = true,
            (b"limits@openssh.com", b"1") => server.has_limits = true,
            (b"statvfs@openssh.com", b"2") => server.has_statvfs = true,
            _ => {}
        }
    }
    Ok(server)
}

/// Reads an extended reply to `limits@openssh.com`.
pub fn decode_limits(bytes: &[u8]) -> Result<SftpLimits> {
    let mut fields = Fields { rest: bytes };
    let limits = SftpLimits {
        packet_bytes_max: fields.u64("limits")?,
        read_bytes_max: fields.u64("limits")?,
        write_bytes_max: fields.u64("limits")?,
        handles_max: fields.u64("limits")?,
    };
    fields.finish()?;
    Ok(limits)
}

/// Reads an extended reply to `statvfs@openssh.com`.
pub fn decode_file_system(bytes: &[u8]) -> Result<SftpFileSystem> {
    let mut fields = Fields { rest: bytes };
    let mut numbers = [0; 11];
    for number in &mut numbers {
        *number = fields.u64("file system")?;
    }
    fields.finish()?;
    Ok(SftpFileSystem {
        block_bytes: numbers[1],
        blocks_available: numbers[4],
        inodes: numbers[5],
        inodes_available: numbers[7],
    })
}

/// Bytes of a packet that are not read yet.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8]> {
        let split = self.rest.split_at_checked(len);
        let (taken, rest) = split.ok_or(SftpPacketError::EndsEarly(what))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let taken = self.take(N, what)?;
        taken
            .try_into()
            .map_err(|_| SftpPacketError::EndsEarly(what))
    }

    fn byte(&mut self, what: &'static str) -> Result<u8> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32> {
        self.array(what).map(u32::from_be_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64> {
        self.array(what).map(u64::from_be_bytes)
    }

    fn string(&mut self, what: &'static str) -> Result<&'a [u8]> {
        let len = self.u32(what)?;
        let len = usize::try_from(len).map_err(|_| SftpPacketError::EndsEarly(what))?;
        self.take(len, what)
    }

    /// Old servers leave out the words, or only their language.
    fn status(&mut self) -> Result<SftpReply> {
        let code = self.u32("status")?;
        let mut message = String::new();
        if !self.rest.is_empty() {
            message = shown(self.string("message")?);
        }
        if !self.rest.is_empty() {
            self.string("language")?;
        }
        Ok(SftpReply::Status { code, message })
    }

    fn names(&mut self) -> Result<Vec<SftpName>> {
        let count = self.u32("names")?;
        let count_max = self.rest.len() / NAME_BYTES_MIN;
        let mut names = Vec::with_capacity((count as usize).min(count_max));
        for _ in 0..count {
            let name = self.string("name")?.to_vec();
            self.string("long name")?;
            let attributes = self.attributes()?;
            names.push(SftpName { name, attributes });
        }
        Ok(names)
    }

    fn attributes(&mut self) -> Result<SftpAttributes> {
        const WHAT: &str = "attributes";
        let flags = self.u32(WHAT)?;
        let has = |flag: u32| flags & flag != 0;
        let mut attributes = SftpAttributes::default();
        if has(1) {
            attributes.len = Some(self.u64(WHAT)?);
        }
        if has(2) {
            self.u64(WHAT)?; // User and group.
        }
        if has(4) {
            attributes.mode = Some(self.u32(WHAT)?);
        }
        if has(8) {
            self.u32(WHAT)?; // Read last.
            attributes.modified = Some(self.u32(WHAT)?);
        }
        if has(1 << 31) {
            for _ in 0..self.u32(WHAT)? {
                self.string(WHAT)?;
                self.string(WHAT)?;
            }
        }
        Ok(attributes)
    }

    fn finish(&self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            len => Err(SftpPacketError::Trailing(len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
    }

    fn packet(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
        [&[kind, 0, 0, 0, 7][..], &fields.concat()].concat()
    }

    fn replies() -> Vec<Vec<u8>> {
        let file = [
            &[0, 0, 0, 15][..],
            &9u64.to_be_bytes(),
            &[0; 16],
            &[0, 0, 0, 5],
        ]
        .concat();
        let odd = [
            &[0x80, 0, 0, 0, 0, 0, 0, 1][..],
            &string(b"a@b"),
            &string(b"c"),
        ]
        .concat();
        let name = [string(b"name"), string(b"-rw name"), file.clone()].concat();
        vec![
            packet(101, &[&[0, 0, 0, 4], &string(b"Failure"), &string(b"en")]),
            packet(102, &[&string(b"\0\0\0\x01")]),
            packet(103, &[&string(b"some bytes")]),
            packet(104, &[&[0, 0, 0, 2], &name, &name]),
            packet(105, &[&file]),
            packet(105, &[&odd]),
        ]
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        let read: Vec<_> = (replies().iter())
            .map(|packet| decode_reply(packet).unwrap())
            .collect();
        assert!(read.iter().all(|(id, _)| *id == 7));
        let attributes = SftpAttributes {
            len: Some(9),
            mode: Some(0),
            modified: Some(5),
        };
        let name = || SftpName {
            name: b"name".to_vec(),
            attributes,
        };
        let expected = [
            SftpReply::Status {
                code: status::FAILURE,
                message: "Failure".to_owned(),
            },
            SftpReply::Handle(vec![0, 0, 0, 1]),
            SftpReply::Data(b"some bytes".to_vec()),
            SftpReply::Names(vec![name(), name()]),
            SftpReply::Attributes(attributes),
            SftpReply::Attributes(SftpAttributes::default()),
        ];
        assert!(read.into_iter().map(|(_, reply)| reply).eq(expected));
    }

    #[test]
    fn an_answer_cut_anywhere_or_too_long_is_refused() {
        for packet in replies() {
            // Old servers end a status behind its code or its message.
            let allowed: &[usize] = if packet[0] == 101 { &[9, 20] } else { &[] };
            for len in 0..packet.len() {
                let read = decode_reply(&packet[..len]);
                assert_eq!(read.is_ok(), allowed.contains(&len), "{packet:?} {len}");
            }
            assert!(decode_reply(&[&packet[..], b"x"].concat()).is_err());
        }
    }

    #[test]
    fn lengths_that_are_not_there_are_refused_before_they_are_believed() {
        let huge = u32::MAX.to_be_bytes();
        for kind in [102, 103, 104] {
            assert!(decode_reply(&packet(kind, &[&huge])).is_err());
        }
        let extended = [0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        assert!(decode_reply(&packet(105, &[&extended])).is_err());
        let handle = packet(102, &[&string(&[0; 257])]);
        assert_eq!(decode_reply(&handle), Err(SftpPacketError::Handle(257)));
        assert_eq!(decode_len(huge), Err(SftpPacketError::TooLong(u32::MAX)));
        assert_eq!(
            decode_len(*b"Welc").map_err(|error| error.to_string().len() > 20),
            Err(true)
        );
    }

    #[test]
    fn what_a_server_can_do_is_in_its_first_packet() {
        let extension = |name: &[u8], revision: &[u8]| [string(name), string(revision)].concat();
        let packet = [
            vec![2, 0, 0, 0, 3],
            extension(b"fsync@openssh.com", b"1"),
            extension(b"hardlink@openssh.com", b"2"),
            extension(b"statvfs@openssh.com", b"2"),
            extension(b"of@nobody", b"1"),
        ];
        let server = decode_version(&packet.concat()).unwrap();
        assert_eq!(
            (server.version, server.has_fsync, server.has_statvfs),
            (3, true, true)
        );
        assert!(!server.has_hardlink, "of a revision that is not known");
        assert!(decode_version(b"Welcome to this machine").is_err());
    }
}
