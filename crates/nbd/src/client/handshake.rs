//! What is said before the first request: encryption, how replies look, contexts, the export.
//!
//! Everything is answered before a deadline. A server may answer an option in several messages;
//! they are counted.

use super::NbdClientOptions;
use crate::error::NbdFault;
use crate::shown::shown;
use crate::socket::Socket;
use crate::stream::{ReadHalf, WriteHalf, encrypt, halves};
use crate::uri::{NbdTransport, NbdUri};
use crate::wire::negotiation::{
    BLOCK_SIZES_UNSAID, BlockSizes, ChosenContexts, ExportFact, OPTION_REPLY_HEAD_BYTES,
    decode_export_fact, decode_greeting, decode_listed, decode_option_reply_head,
    encode_client_flags, encode_contexts, encode_export_choice, encode_option, option,
    option_reply,
};
use crate::wire::{
    ALLOCATION_CONTEXT, DIRTY_BITMAP_PREFIX, GREETING_BYTES, HeaderStyle, NbdWireError,
};
use std::time::Instant;

/// Messages that answer one option at most, and names in a list.
const REPLIES_MAX: usize = 64;
const LISTED_MAX: usize = 10_000;

/// Numbers of the contexts that were chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contexts {
    pub allocation: Option<u32>,
    pub dirty: Option<u32>,
}

/// What both sides know of each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Negotiated {
    pub style: HeaderStyle,
    pub len: u64,
    pub flags: u16,
    pub blocks: BlockSizes,
    pub contexts: Contexts,
}

impl Negotiated {
    /// Of two connections.
    pub(super) fn is_of_same_export(&self, other: &Negotiated) -> bool {
        self.len == other.len && self.flags == other.flags && self.blocks == other.blocks
    }
}

/// Connects and opens the export.
pub(super) fn open(
    uri: &NbdUri,
    options: &NbdClientOptions,
    deadline: Instant,
) -> Result<(ReadHalf, WriteHalf, Negotiated), NbdFault> {
    let socket = Socket::connect(&uri.transport, deadline)?;
    open_on(socket, uri, options, deadline)
}

/// Opens the export over a connection.
pub(super) fn open_on(
    socket: Socket,
    uri: &NbdUri,
    options: &NbdClientOptions,
    deadline: Instant,
) -> Result<(ReadHalf, WriteHalf, Negotiated), NbdFault> {
    let mut talk = Talk::begin(socket, uri, options, deadline)?;
    let style = talk.choose_style()?;
    let contexts = talk.choose_contexts(&uri.export, style, options)?;
    let (len, flags, blocks) = talk.go(&uri.export)?;
    let Talk { mut reader, writer } = talk;
    reader.deadline = None;
    let negotiated = Negotiated {
        style,
        len,
        flags,
        blocks,
        contexts,
    };
    Ok((reader, writer, negotiated))
}

/// Connects and lists what there is.
pub(super) fn list(
    uri: &NbdUri,
    options: &NbdClientOptions,
    deadline: Instant,
) -> Result<Vec<String>, NbdFault> {
    let socket = Socket::connect(&uri.transport, deadline)?;
    let mut talk = Talk::begin(socket, uri, options, deadline)?;
    let mut names = Vec::new();
    talk.say(option::LIST, &[])?;
    loop {
        let (kind, payload) = talk.reply(option::LIST)?;
        match kind {
            option_reply::ACK => break,
            option_reply::SERVER if names.len() < LISTED_MAX => {
                names.push(decode_listed(&payload)?)
            }
            option_reply::SERVER => return Err(NbdFault::Endless),
            kind => return Err(refused("to list its exports", kind, &payload)),
        }
    }
    // What it answers to a farewell is of no interest.
    talk.say(option::ABORT, &[])?;
    Ok(names)
}

struct Talk {
    reader: ReadHalf,
    writer: WriteHalf,
}

impl Talk {
    fn begin(
        socket: Socket,
        uri: &NbdUri,
        options: &NbdClientOptions,
        deadline: Instant,
    ) -> Result<Talk, NbdFault> {
        socket.set_write_timeout(options.idle_max)?;
        let (mut reader, writer) = halves(socket)?;
        reader.deadline = Some(deadline);
        let mut talk = Talk { reader, writer };
        let mut greeting = [0; GREETING_BYTES];
        talk.reader.fill(&mut greeting)?;
        let greeting = decode_greeting(&greeting)?;
        talk.writer.send(&encode_client_flags(greeting), &[])?;
        if uri.is_encrypted {
            talk.encrypt(uri)?;
        }
        Ok(talk)
    }

    fn encrypt(&mut self, uri: &NbdUri) -> Result<(), NbdFault> {
        self.say(option::STARTTLS, &[])?;
        match self.reply(option::STARTTLS)? {
            (option_reply::ACK, _) => {}
            (option_reply::UNSUPPORTED | option_reply::POLICY, _) => {
                return Err(NbdFault::TlsMissing);
            }
            (kind, payload) => return Err(refused("encryption", kind, &payload)),
        }
        let host = match &uri.transport {
            NbdTransport::Tcp { host, .. } => host,
            NbdTransport::Unix(_) => "localhost",
        };
        let certificates = uri.certificates.as_deref();
        let encrypted = encrypt(&mut self.reader, &mut self.writer, host, certificates);
        encrypted.map_err(|error| match error.kind() {
            std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => NbdFault::Io(error),
            _ => NbdFault::Tls(error.to_string()),
        })
    }

    fn say(&mut self, option: u32, payload: &[u8]) -> Result<(), NbdFault> {
        Ok(self.writer.send(&encode_option(option, payload), &[])?)
    }

    /// One message of the answer to an option.
    fn reply(&mut self, option: u32) -> Result<(u32, Vec<u8>), NbdFault> {
        let mut head = [0; OPTION_REPLY_HEAD_BYTES];
        self.reader.fill(&mut head)?;
        let head = decode_option_reply_head(&head)?;
        if head.option != option {
            return Err(NbdWireError::Unrequested(head.option.into()).into());
        }
        let mut payload = vec![0; head.len];
        self.reader.fill(&mut payload)?;
        match head.kind {
            option_reply::TLS_REQUIRED => Err(NbdFault::TlsRequired),
            kind => Ok((kind, payload)),
        }
    }

    /// The best that the server has.
    fn choose_style(&mut self) -> Result<HeaderStyle, NbdFault> {
        let styles = [
            (option::EXTENDED_HEADERS, HeaderStyle::Extended),
            (option::STRUCTURED_REPLY, HeaderStyle::Structured),
        ];
        for (option, style) in styles {
            self.say(option, &[])?;
            match self.reply(option)? {
                (option_reply::ACK, _) => return Ok(style),
                (kind, _) if kind & option_reply::ERROR != 0 => {}
                (kind, payload) => return Err(refused("the form of replies", kind, &payload)),
            }
        }
        Ok(HeaderStyle::Simple)
    }

    fn choose_contexts(
        &mut self,
        export: &str,
        style: HeaderStyle,
        options: &NbdClientOptions,
    ) -> Result<Contexts, NbdFault> {
        let dirty = options.dirty_bitmap.as_ref();
        let dirty = dirty.map(|name| format!("{DIRTY_BITMAP_PREFIX}{name}"));
        let allocation = options.wants_allocation.then_some(ALLOCATION_CONTEXT);
        let wanted: Vec<&str> = allocation.into_iter().chain(dirty.as_deref()).collect();
        if wanted.is_empty() {
            return Ok(Contexts::default());
        }
        if style == HeaderStyle::Simple {
            return match dirty {
                Some(_) => Err(NbdFault::NoStructure),
                None => Ok(Contexts::default()),
            };
        }
        let payload = encode_contexts(export, &wanted);
        self.say(option::SET_META_CONTEXT, &payload)?;
        let mut chosen = ChosenContexts::default();
        loop {
            let (kind, payload) = self.reply(option::SET_META_CONTEXT)?;
            match kind {
                option_reply::META_CONTEXT => chosen.push(&payload, &wanted)?,
                option_reply::ACK => break,
                option_reply::UNSUPPORTED => break,
                option_reply::UNKNOWN => {
                    return Err(refused(&words_of(export), option_reply::UNKNOWN, &payload));
                }
                kind => return Err(refused("extents of this export", kind, &payload)),
            }
        }
        let number = |name: &str| {
            let mut found = chosen.found.iter();
            found.find(|(_, named)| named == name).map(|(id, _)| *id)
        };
        let contexts = Contexts {
            allocation: number(ALLOCATION_CONTEXT),
            dirty: dirty.as_deref().and_then(number),
        };
        match dirty {
            Some(dirty) if contexts.dirty.is_none() => Err(NbdFault::NoContext(dirty)),
            _ => Ok(contexts),
        }
    }

    /// Opens the export: length, flags and sizes of blocks.
    fn go(&mut self, export: &str) -> Result<(u64, u16, BlockSizes), NbdFault> {
        self.say(option::GO, &encode_export_choice(export))?;
        let (mut facts, mut blocks) = (None, BLOCK_SIZES_UNSAID);
        for _ in 0..REPLIES_MAX {
            let (kind, payload) = self.reply(option::GO)?;
            match kind {
                option_reply::INFO => match decode_export_fact(&payload)? {
                    ExportFact::Export { len, flags } => facts = Some((len, flags)),
                    ExportFact::BlockSizes(sizes) => blocks = sizes,
                    ExportFact::Other => {}
                },
                option_reply::ACK => {
                    let (len, flags) = facts.ok_or(NbdFault::NoExport)?;
                    return Ok((len, flags, blocks));
                }
                kind => return Err(refused(&words_of(export), kind, &payload)),
            }
        }
        Err(NbdFault::Endless)
    }
}

fn words_of(export: &str) -> String {
    match export {
        "" => "its default export".to_owned(),
        name => format!("the export {}", shown(name.as_bytes())),
    }
}

/// Why, in the server's words and ours.
fn refused(what: &str, kind: u32, payload: &[u8]) -> NbdFault {
    let words = match kind {
        option_reply::UNKNOWN => ", as it does not exist",
        option_reply::UNSUPPORTED => ", as it does not know that",
        option_reply::POLICY => ", as it is forbidden",
        _ => "",
    };
    let said = shown(payload);
    let said = if said.is_empty() {
        said
    } else {
        format!(" ({said})")
    };
    let message = match words {
        "" if said.is_empty() => format!(" (answer {kind:#x})"),
        words => format!("{words}{said}"),
    };
    let what = what.to_owned();
    NbdFault::Refused { what, message }
}
