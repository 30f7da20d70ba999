//! What a server answers before the first request.

use super::Served;
use crate::export::NbdExport;
use crate::stream::{ReadHalf, WriteHalf};
use crate::wire::negotiation::{
    BlockSizes, Greeting, OPTION_HEAD_BYTES, decode_client_flags, decode_contexts,
    decode_export_choice, decode_option_head, encode_block_sizes, encode_context, encode_export,
    encode_export_name_answer, encode_greeting, encode_listed, encode_option_reply, option,
    option_reply,
};
use crate::wire::{ALLOCATION_CONTEXT, HeaderStyle, REQUEST_BYTES_MAX, export_flags};
use std::io;
use std::sync::Arc;

/// Options of one client at most.
const OPTIONS_MAX: usize = 256;

/// Number of the only context.
pub(super) const ALLOCATION_ID: u32 = 1;

/// Any place and length can be read and written; these go best.
const BLOCKS: BlockSizes = BlockSizes {
    minimum: 1,
    preferred: 64 << 10,
    maximum: REQUEST_BYTES_MAX,
};

/// What a client and the server have agreed on.
pub(super) struct Session {
    pub export: Arc<dyn NbdExport>,
    pub style: HeaderStyle,
    pub has_allocation: bool,
}

struct Talk<'a> {
    served: &'a Served,
    writer: &'a mut WriteHalf,
    greeting: Greeting,
    style: HeaderStyle,
    /// The export of which it is to be said what is allocated.
    allocation_of: Option<String>,
}

/// Answers options until an export is chosen; `None` if the client wants none.
pub(super) fn negotiate(
    served: &Served,
    reader: &mut ReadHalf,
    writer: &mut WriteHalf,
) -> io::Result<Option<Session>> {
    writer.send(&encode_greeting(), &[])?;
    let mut flags = [0; 4];
    reader.fill(&mut flags)?;
    let mut talk = Talk {
        served,
        writer,
        greeting: decode_client_flags(flags).map_err(io::Error::other)?,
        style: HeaderStyle::Simple,
        allocation_of: None,
    };
    for _ in 0..OPTIONS_MAX {
        let mut head = [0; OPTION_HEAD_BYTES];
        reader.fill(&mut head)?;
        let (option, len) = decode_option_head(&head).map_err(io::Error::other)?;
        let mut payload = vec![0; len];
        reader.fill(&mut payload)?;
        match option {
            option::EXPORT_NAME => return talk.export_name(&payload),
            option::ABORT => {
                talk.say(option, option_reply::ACK, &[])?;
                return Ok(None);
            }
            option::GO | option::INFO => {
                if let Some(session) = talk.go(option, &payload)? {
                    return Ok(Some(session));
                }
            }
            option => talk.answer(option, &payload)?,
        }
    }
    Err(io::Error::other("options without end"))
}

impl Talk<'_> {
    fn say(&mut self, option: u32, kind: u32, payload: &[u8]) -> io::Result<()> {
        let reply = encode_option_reply(option, kind, payload);
        self.writer.send(&reply, &[])
    }

    fn session(&self, name: &str, export: &Arc<dyn NbdExport>) -> Session {
        Session {
            export: export.clone(),
            style: self.style,
            has_allocation: self.allocation_of.as_deref() == Some(name),
        }
    }

    /// The oldest option: there is no way to say no but to close the connection.
    fn export_name(&mut self, payload: &[u8]) -> io::Result<Option<Session>> {
        let name = std::str::from_utf8(payload).map_err(io::Error::other)?;
        let Some(export) = self.served.find(name) else {
            return Ok(None);
        };
        let flags = flags_of(export.as_ref(), self.style);
        let answer = encode_export_name_answer(export.len(), flags, self.greeting);
        self.writer.send(&answer, &[])?;
        Ok(Some(self.session(name, export)))
    }

    fn go(&mut self, option: u32, payload: &[u8]) -> io::Result<Option<Session>> {
        let Ok((name, _)) = decode_export_choice(payload) else {
            self.say(option, option_reply::INVALID, b"not understood")?;
            return Ok(None);
        };
        let Some(export) = self.served.find(&name) else {
            self.say(option, option_reply::UNKNOWN, b"there is no such export")?;
            return Ok(None);
        };
        let flags = flags_of(export.as_ref(), self.style);
        let facts = [
            encode_export(export.len(), flags),
            encode_block_sizes(BLOCKS),
        ];
        for fact in facts {
            self.say(option, option_reply::INFO, &fact)?;
        }
        self.say(option, option_reply::ACK, &[])?;
        Ok((option == option::GO).then(|| self.session(&name, export)))
    }

    fn answer(&mut self, option: u32, payload: &[u8]) -> io::Result<()> {
        match option {
            option::LIST if payload.is_empty() => {
                let served = self.served;
                for (name, _) in &served.exports {
                    self.say(option, option_reply::SERVER, &encode_listed(name))?;
                }
                self.say(option, option_reply::ACK, &[])
            }
            option::STRUCTURED_REPLY if payload.is_empty() => {
                self.style = self.style.max(HeaderStyle::Structured);
                self.say(option, option_reply::ACK, &[])
            }
            option::EXTENDED_HEADERS if payload.is_empty() => {
                self.style = HeaderStyle::Extended;
                self.say(option, option_reply::ACK, &[])
            }
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => {
                self.say(option, option_reply::INVALID, b"it takes nothing")
            }
            option::SET_META_CONTEXT | option::LIST_META_CONTEXT => self.contexts(option, payload),
            option::STARTTLS => {
                self.say(option, option_reply::POLICY, b"nothing is encrypted here")
            }
            option => self.say(option, option_reply::UNSUPPORTED, b"not known"),
        }
    }

    fn contexts(&mut self, option: u32, payload: &[u8]) -> io::Result<()> {
        let is_choice = option == option::SET_META_CONTEXT;
        let Ok((export, queries)) = decode_contexts(payload) else {
            return self.say(option, option_reply::INVALID, b"not understood");
        };
        if is_choice {
            self.allocation_of = None;
        }
        if is_choice && self.style == HeaderStyle::Simple {
            return self.say(
                option,
                option_reply::INVALID,
                b"structured replies come first",
            );
        }
        if self.served.find(&export).is_none() {
            return self.say(option, option_reply::UNKNOWN, b"there is no such export");
        }
        let is_wanted = |query: &String| match is_choice {
            true => query == ALLOCATION_CONTEXT,
            false => query == ALLOCATION_CONTEXT || query == "base:",
        };
        let lists_all = !is_choice && queries.is_empty();
        if lists_all || queries.iter().any(is_wanted) {
            let context = encode_context(ALLOCATION_ID, ALLOCATION_CONTEXT);
            self.say(option, option_reply::META_CONTEXT, &context)?;
            if is_choice {
                self.allocation_of = Some(export);
            }
        }
        self.say(option, option_reply::ACK, &[])
    }
}

/// Several connections are no trouble: a flush of one is a flush of all.
fn flags_of(export: &dyn NbdExport, style: HeaderStyle) -> u16 {
    let common = export_flags::HAS_FLAGS | export_flags::CAN_MULTI_CONN | export_flags::SEND_FLUSH;
    let structured = match style {
        HeaderStyle::Simple => 0,
        _ => export_flags::SEND_DF,
    };
    let access = match export.is_writable() {
        true => export_flags::SEND_FUA | export_flags::SEND_TRIM | export_flags::SEND_WRITE_ZEROES,
        false => export_flags::READ_ONLY,
    };
    common | structured | access
}
