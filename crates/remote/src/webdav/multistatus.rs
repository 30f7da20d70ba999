//! What a WebDAV server answers to PROPFIND, a `multistatus` of RFC 4918, read while it comes.
//!
//! Nothing of it is kept: each response goes to the caller. What a hostile server can make this
//! take is bounded: bytes of one response, depth of elements, bytes of a whole listing. A document
//! type is refused, so no entity is ever expanded but those that XML has and characters by number.

use crate::shown::shown;
use quick_xml::events::{BytesRef, Event};
use quick_xml::{Reader, XmlVersion};
use std::cell::Cell;
use std::io::{self, BufReader, ErrorKind, Read};
use std::rc::Rc;
use std::time::SystemTime;

/// Bytes of one response at most, with what stands around it.
pub const RESPONSE_BYTES_MAX: u64 = 64 << 10;

/// Bytes of a listing at most: tens of millions of objects, as far as servers can list at all.
pub const LISTING_BYTES_MAX: u64 = 32 << 30;

/// Elements inside of each other at most.
const DEPTH_MAX: usize = 32;

/// Bytes asked of the connection at once.
const BUFFER_BYTES: usize = 32 << 10;

/// What a server says of one resource. A property that it does not have is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DavResource {
    /// Its URL or path, escaped as it came.
    pub href: String,
    pub is_collection: bool,
    pub len: Option<u64>,
    pub modified: Option<SystemTime>,
    /// Bytes that may still be written there (RFC 4331).
    pub available: Option<u64>,
}

/// Calls `found` with each resource, until the listing is over.
pub fn read_multistatus(listing: impl Read, found: &mut dyn FnMut(&DavResource)) -> io::Result<()> {
    let left_of_response = Rc::new(Cell::new(RESPONSE_BYTES_MAX));
    let bounded = BoundedReader {
        inner: listing,
        left_of_response: left_of_response.clone(),
        left: LISTING_BYTES_MAX,
    };
    let mut reader = Reader::from_reader(BufReader::with_capacity(BUFFER_BYTES, bounded));
    reader.config_mut().expand_empty_elements = true;
    let mut state = Listing::default();
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let event = reader.read_event_into(&mut buffer).map_err(from_library)?;
        match event {
            Event::Start(element) => state.begin(element.local_name().as_ref())?,
            Event::End(_) => {
                if state.end()? {
                    found(&state.resource);
                    left_of_response.set(RESPONSE_BYTES_MAX);
                }
            }
            Event::Text(text) => state.add(&text.xml_content(XmlVersion::Implicit1_0)),
            Event::CData(text) => state.add(&text.xml_content(XmlVersion::Implicit1_0)),
            Event::GeneralRef(reference) => state.add_reference(&reference)?,
            Event::DocType(_) => return Err(invalid("it has a document type")),
            Event::Eof => break,
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
    match state.is_over {
        true => Ok(()),
        false => Err(io::Error::new(
            ErrorKind::ConnectionAborted,
            "the listing is cut short",
        )),
    }
}

/// Elements that matter, by where they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Multistatus,
    Response,
    Href,
    ResponseStatus,
    Propstat,
    PropstatStatus,
    Prop,
    Len,
    Modified,
    Available,
    Kind,
    Collection,
    Other,
}

fn element_in(parent: Option<Element>, name: &[u8]) -> Element {
    match (parent, name) {
        (None, b"multistatus") => Element::Multistatus,
        (Some(Element::Multistatus), b"response") => Element::Response,
        (Some(Element::Response), b"href") => Element::Href,
        (Some(Element::Response), b"status") => Element::ResponseStatus,
        (Some(Element::Response), b"propstat") => Element::Propstat,
        (Some(Element::Propstat), b"status") => Element::PropstatStatus,
        (Some(Element::Propstat), b"prop") => Element::Prop,
        (Some(Element::Prop), b"getcontentlength") => Element::Len,
        (Some(Element::Prop), b"getlastmodified") => Element::Modified,
        (Some(Element::Prop), b"quota-available-bytes") => Element::Available,
        (Some(Element::Prop), b"resourcetype") => Element::Kind,
        (Some(Element::Kind), b"collection") => Element::Collection,
        _ => Element::Other,
    }
}

#[derive(Default)]
struct Listing {
    open: Vec<Element>,
    /// Text of the element that is read.
    text: String,
    resource: DavResource,
    /// What a `propstat` holds counts once its status is known.
    properties: DavResource,
    is_good: bool,
    is_gone: bool,
    is_over: bool,
}

impl Listing {
    fn begin(&mut self, name: &str) -> io::Result<()> {
        if self.open.len() >= DEPTH_MAX {
            return Err(invalid("elements are inside of each other without end"));
        }
        let element = element_in(self.open.last().copied(), name.as_bytes());
        match element {
            Element::Other if self.open.is_empty() => {
                return Err(invalid("it is no multistatus of WebDAV"));
            }
            _ if self.is_over => return Err(invalid("something follows its end")),
            Element::Response => {
                self.resource = DavResource::default();
                self.is_gone = false;
            }
            Element::Propstat => {
                self.properties = DavResource::default();
                self.is_good = true;
            }
            Element::Collection => self.properties.is_collection = true,
            _ => {}
        }
        self.text.clear();
        self.open.push(element);
        Ok(())
    }

    fn add(&mut self, text: &str) {
        // Bounded by the bytes of a response.
        if self
            .open
            .last()
            .is_some_and(|element| *element != Element::Other)
        {
            self.text.push_str(text);
        }
    }

    fn add_reference(&mut self, reference: &BytesRef<'_>) -> io::Result<()> {
        let unknown = || invalid("it has an entity that XML does not have");
        let letter = match reference.resolve_char_ref().map_err(from_library)? {
            Some(letter) => letter,
            None => match reference.xml_content(XmlVersion::Implicit1_0).as_ref() {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                "apos" => '\'',
                _ => return Err(unknown()),
            },
        };
        self.add(letter.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    /// Is it the end of a resource that is there?
    fn end(&mut self) -> io::Result<bool> {
        let text = self.text.trim();
        match self.open.pop() {
            Some(Element::Href) => self.resource.href = text.to_owned(),
            Some(Element::ResponseStatus) => self.is_gone = !is_success(text),
            Some(Element::PropstatStatus) => self.is_good = is_success(text),
            Some(Element::Len) if !text.is_empty() => {
                let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
                let len = text.parse().ok().filter(|_| is_number);
                let len = len.ok_or_else(|| invalid("it has a length that is no number"))?;
                self.properties.len = Some(len);
            }
            Some(Element::Modified) => self.properties.modified = read_time(text),
            // Servers without a limit have their own ways to say so.
            Some(Element::Available) => self.properties.available = text.parse().ok(),
            Some(Element::Propstat) if self.is_good => {
                let properties = std::mem::take(&mut self.properties);
                self.resource.is_collection |= properties.is_collection;
                self.resource.len = self.resource.len.or(properties.len);
                self.resource.modified = self.resource.modified.or(properties.modified);
                self.resource.available = self.resource.available.or(properties.available);
            }
            Some(Element::Response) => {
                if self.resource.href.is_empty() {
                    return Err(invalid("it has a response that says not of what"));
                }
                return Ok(!self.is_gone);
            }
            Some(Element::Multistatus) => self.is_over = true,
            _ => {}
        }
        self.text.clear();
        Ok(false)
    }
}

/// `HTTP/1.1 200 OK`
fn is_success(status: &str) -> bool {
    let code = status.split_ascii_whitespace().nth(1);
    code.is_some_and(|code| code.len() == 3 && code.starts_with('2'))
}

/// A time that cannot be read is none: nothing depends on it alone.
fn read_time(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

fn invalid(why: &str) -> io::Error {
    let text = format!("the server's listing cannot be read: {why}");
    io::Error::new(ErrorKind::InvalidData, text)
}

fn from_library(error: impl Into<quick_xml::Error>) -> io::Error {
    match error.into() {
        quick_xml::Error::Io(error) => match std::sync::Arc::try_unwrap(error) {
            Ok(error) => error,
            Err(error) => io::Error::new(error.kind(), error.to_string()),
        },
        quick_xml::Error::Syntax(error) if is_cut(&error) => {
            io::Error::new(ErrorKind::ConnectionAborted, "the listing is cut short")
        }
        error => invalid(&shown(error.to_string().as_bytes())),
    }
}

fn is_cut(error: &quick_xml::errors::SyntaxError) -> bool {
    use quick_xml::errors::SyntaxError as Cut;
    !matches!(error, Cut::InvalidBangMarkup)
}

/// Ends with an error where a server sends more than any listing has.
struct BoundedReader<R> {
    inner: R,
    /// Set anew by each response.
    left_of_response: Rc<Cell<u64>>,
    left: u64,
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.left_of_response.get().min(self.left);
        if left == 0 {
            return Err(invalid("it is longer than any can be"));
        }
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut buf[..len])? as u64;
        self.left_of_response
            .set(self.left_of_response.get() - read);
        self.left -= read;
        Ok(read as usize)
    }
}
