//! `DavFiles`: files on a WebDAV server (RFC 4918), for `FileStore`.
//!
//! `PUT` writes a temporary file, `MOVE` with `Overwrite: F` gives it its name: 412 says that the
//! name is taken. `PUT` with a condition is not used, since servers ignore it. `PROPFIND` lists,
//! one level at a time, and says how long a file is. A range that a server does not know is read
//! out of the whole file. No collection is deleted where others may put something into it: `DELETE`
//! takes what is in it as well. That of a run that has ended is moved away first, and looked at.
//! Why a file could not be written servers seldom say; some say how much room is left (RFC 4331).
//!
//! Servers answer 200, 201 or 204 for the same success; 207 to anything but `PROPFIND` holds
//! errors.

mod multistatus;

use crate::files::{FileInfo, RemoteFiles};
use crate::http::answer::{
    RangeAnswer, expect_success, invalid, promised_length, range_answer, read_to_vec, read_whole,
    unexpected,
};
use crate::http::url::HttpUrl;
use crate::http::{Answer, HttpClient, HttpOptions, HttpTransport, from_body};
use crate::login::unescape;
use crate::room::Room;
use crate::shown::shown;
use bale_repository::limits::UPLOADS_MAX;
use bale_repository::store::{ObjectName, ends_early};
use http::{HeaderName, Method, StatusCode, header};
use std::io::{self, ErrorKind, Read};

pub use multistatus::{DavResource, read_multistatus};

/// Bytes of a file that are read and thrown away for a range in it: no object is longer.
const SKIPPED_BYTES_MAX: u64 = 1 << 30;

/// Collections that are listed, or made, at the same time.
const DIRS_AT_ONCE: usize = 8;

/// What is wanted of each resource.
const PROPFIND: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/><D:getcontentlength/>\
    <D:getlastmodified/></D:prop></D:propfind>\n";

/// How much room is left.
const PROPFIND_AVAILABLE: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <D:propfind xmlns:D=\"DAV:\"><D:prop><D:quota-available-bytes/></D:prop></D:propfind>\n";

/// Files of a run that are put back at most: it has fewer, and each goes when it is not needed.
const PUT_BACK_MAX: usize = 1 << 12;

const DEPTH: HeaderName = HeaderName::from_static("depth");
const DESTINATION: HeaderName = HeaderName::from_static("destination");
const OVERWRITE: HeaderName = HeaderName::from_static("overwrite");

/// Files below a URL.
pub struct DavFiles {
    url: HttpUrl,
    client: HttpClient,
    room: Room,
    /// Methods that HTTP itself does not have.
    propfind: Method,
    make_collection: Method,
    move_: Method,
}

impl DavFiles {
    /// Reads certificates; makes no connection.
    pub fn new(url: HttpUrl, options: &HttpOptions) -> io::Result<DavFiles> {
        let method = |name: &[u8]| Method::from_bytes(name).map_err(io::Error::other);
        Ok(DavFiles {
            client: HttpClient::new(&url, options)?.without_private_places(),
            url,
            room: Room::for_uploads(UPLOADS_MAX),
            propfind: method(b"PROPFIND")?,
            make_collection: method(b"MKCOL")?,
            move_: method(b"MOVE")?,
        })
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: Option<&[u8]>,
    ) -> io::Result<Answer> {
        self.client
            .request(method, &self.url.of(path), headers, body)
    }

    /// `None` if nothing is there.
    fn find(&self, path: &str) -> io::Result<Option<DavResource>> {
        let mut first = None;
        let mut others = 0_u64;
        let listed = self.propfind(path, "0", PROPFIND, &mut |resource| {
            match first {
                None => first = Some(resource.clone()),
                Some(_) => others += 1,
            };
        });
        match listed {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            listed => listed?,
        }
        let name = path.trim_end_matches('/').rsplit('/').next();
        let is_it = |found: &DavResource| {
            others == 0 && name.is_some_and(|name| name.is_empty() || last_part(found) == name)
        };
        match first {
            Some(found) if is_it(&found) => Ok(Some(found)),
            Some(_) => Err(invalid(format!(
                "the server says what {path} is by something else"
            ))),
            // It was found and is not there any more.
            None => Ok(None),
        }
    }

    fn propfind(
        &self,
        path: &str,
        depth: &str,
        wanted: &[u8],
        found: &mut dyn FnMut(&DavResource),
    ) -> io::Result<()> {
        let headers = [
            (DEPTH, depth),
            (header::CONTENT_TYPE, "application/xml; charset=utf-8"),
        ];
        let answer = self.request(&self.propfind, path, &headers, Some(wanted))?;
        match answer.status() {
            StatusCode::MULTI_STATUS => {
                read_multistatus(answer.into_body(), found).map_err(from_body)
            }
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                let why = "the server does not know PROPFIND here: is this the URL of a WebDAV \
                           collection?";
                Err(io::Error::new(ErrorKind::Unsupported, why))
            }
            _ => Err(unexpected(answer)),
        }
    }

    /// Is a file refused since there is no room for it?
    fn or_full(&self, error: io::Error) -> io::Error {
        if ![ErrorKind::ResourceBusy, ErrorKind::Other].contains(&error.kind()) {
            return error;
        }
        let mut available = None;
        let looked = self.propfind("", "0", PROPFIND_AVAILABLE, &mut |found| {
            available = available.or(found.available);
        });
        self.room.full_or(error, looked.ok().and(available))
    }

    /// Moves a collection away if it is empty, deletes it if it still is, and else puts back what
    /// came into it meanwhile.
    fn remove_if_empty(&self, dir: &str, aside: &str) -> io::Result<()> {
        if !self.members(dir)?.is_empty() {
            return Ok(());
        }
        self.rename(&format!("{dir}/"), &format!("{aside}/"))?;
        for name in self.members(aside)? {
            let path = format!("{dir}/{name}");
            if ObjectName::parse(&path).is_none() {
                return Err(invalid(format!("something foreign is in {aside}")));
            }
            self.make_dir(dir)?;
            self.rename(&format!("{aside}/{name}"), &path)?;
        }
        self.remove(&format!("{aside}/"))
    }

    /// Names in a collection.
    fn members(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let own = path.rsplit('/').next().unwrap_or_default();
        self.list(path, &mut |name, info| {
            let is_itself = info.len.is_none() && name == own;
            if !is_itself && names.len() <= PUT_BACK_MAX {
                names.push(name.to_owned());
            }
        })?;
        match names.len() > PUT_BACK_MAX {
            true => Err(invalid(format!("there is too much in {path}"))),
            false => Ok(names),
        }
    }

    fn is_collection(&self, path: &str) -> io::Result<bool> {
        let found = self.find(&format!("{path}/"))?;
        Ok(found.is_some_and(|found| found.is_collection))
    }

    /// `url` ends with a slash.
    fn make_collection_at(&self, url: &str) -> io::Result<Made> {
        let answer = self.client.request(&self.make_collection, url, &[], None)?;
        match answer.status() {
            StatusCode::METHOD_NOT_ALLOWED => Ok(Made::MayBeThere),
            StatusCode::CONFLICT => Err(ErrorKind::NotFound.into()),
            _ => expect_success(answer).map(|()| Made::Now),
        }
    }

    /// Reads a whole body to the range, since the server does not know ranges.
    fn read_out_of(&self, answer: Answer, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(buf.len() as u64);
        if let Some(len) = promised_length(&answer)?
            && len < end
        {
            return Err(ends_early(offset, buf.len(), len));
        }
        if offset > SKIPPED_BYTES_MAX {
            let why = "the server knows no ranges, and this one is too far from the beginning";
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        let mut body = answer.into_body();
        let skipped = io::copy(&mut (&mut body).take(offset), &mut io::sink());
        let skipped = skipped.map_err(from_body)?;
        if skipped < offset {
            return Err(ends_early(offset, buf.len(), skipped));
        }
        body.read_exact(buf).map_err(from_body)
    }

    fn too_short(&self, path: &str, offset: u64, len: usize) -> io::Error {
        match self.stat(path) {
            Ok(Some(FileInfo {
                len: Some(there), ..
            })) if there < offset.saturating_add(len as u64) => ends_early(offset, len, there),
            Ok(Some(_)) => invalid("the server does not give a range that is there".to_owned()),
            Ok(None) => ErrorKind::NotFound.into(),
            Err(error) => error,
        }
    }
}

/// Whether a collection was made.
enum Made {
    Now,
    MayBeThere,
}

impl RemoteFiles for DavFiles {
    fn place(&self) -> String {
        format!("webdav:{}", self.url)
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.room.note(bytes.len() as u64);
        let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
        let answer = self.request(&Method::PUT, path, &kind, Some(bytes))?;
        match answer.status() {
            // The collection is not there.
            StatusCode::CONFLICT => Err(ErrorKind::NotFound.into()),
            _ => expect_success(answer).map_err(|error| self.or_full(error)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let to = self.url.of(to);
        let headers = [(DESTINATION, to.as_str()), (OVERWRITE, "F")];
        let answer = self.request(&self.move_, from, &headers, None)?;
        match answer.status() {
            StatusCode::PRECONDITION_FAILED => Err(ErrorKind::AlreadyExists.into()),
            StatusCode::CONFLICT => Err(ErrorKind::NotFound.into()),
            _ => expect_success(answer).map_err(not_moved),
        }
    }

    fn stat(&self, path: &str) -> io::Result<Option<FileInfo>> {
        match self.find(path)? {
            None => Ok(None),
            Some(found) if !found.is_collection && found.len.is_none() => Err(invalid(format!(
                "the server does not say how long {path} is"
            ))),
            Some(found) => Ok(Some(file_info(&found))),
        }
    }

    fn is_dir(&self, path: &str) -> io::Result<bool> {
        self.is_collection(path)
    }

    fn read(&self, path: &str, len_max: u64) -> io::Result<Vec<u8>> {
        let answer = self.request(&Method::GET, path, &[], None)?;
        if answer.status() != StatusCode::OK {
            return Err(unexpected(answer));
        }
        let len = match promised_length(&answer)? {
            Some(len) => len,
            // Its body would end without saying whether it is whole.
            None => match self.stat(path)?.and_then(|there| there.len) {
                Some(len) => len,
                None => return Err(ErrorKind::NotFound.into()),
            },
        };
        match len > len_max {
            true => Err(ErrorKind::FileTooLarge.into()),
            false => read_to_vec(answer, len),
        }
    }

    fn read_at(&self, path: &str, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let last = (buf.len() as u64).checked_sub(1);
        let Some(last) = last.and_then(|len| offset.checked_add(len)) else {
            let there = self.stat(path)?.and_then(|there| there.len);
            return match there {
                Some(len) if buf.is_empty() && offset <= len => Ok(()),
                Some(len) => Err(ends_early(offset, buf.len(), len)),
                None => Err(ErrorKind::NotFound.into()),
            };
        };
        let range = format!("bytes={offset}-{last}");
        let answer = self.request(&Method::GET, path, &[(header::RANGE, &range)], None)?;
        match range_answer(&answer, offset, last)? {
            RangeAnswer::Whole if answer.status() == StatusCode::OK => {
                self.read_out_of(answer, offset, buf)
            }
            RangeAnswer::Range => read_whole(answer, buf),
            RangeAnswer::EndsAt(len) => Err(ends_early(offset, buf.len(), len)),
            RangeAnswer::NotThere => Err(self.too_short(path, offset, buf.len())),
            RangeAnswer::Whole => Err(unexpected(answer)),
        }
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let answer = self.request(&Method::DELETE, path, &[], None)?;
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(()),
            _ => expect_success(answer),
        }
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        match self.make_collection_at(&self.url.of(&format!("{path}/")))? {
            Made::Now => Ok(()),
            Made::MayBeThere if self.is_collection(path)? => Ok(()),
            Made::MayBeThere => {
                let why = format!("{path} is there and is no collection");
                Err(io::Error::new(ErrorKind::NotADirectory, why))
            }
        }
    }

    fn make_root(&self) -> io::Result<()> {
        let urls = self.url.with_parents();
        // From the deepest that is there to that of the repository.
        let mut missing = Vec::new();
        for url in urls {
            match self.make_collection_at(&url) {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::NotFound => missing.push(url),
                Err(error) => return Err(error),
            }
        }
        for url in missing.into_iter().rev() {
            self.make_collection_at(&url)?;
        }
        Ok(())
    }

    fn remove_empty_dir(&self, path: &str, aside: &str) {
        // What stays is empty, or has something in it and is not to go.
        let _ = self.remove_if_empty(path, aside);
    }

    fn list(&self, path: &str, found: &mut dyn FnMut(&str, FileInfo)) -> io::Result<()> {
        let (mut any, mut without_length) = (false, None);
        self.propfind(&format!("{path}/"), "1", PROPFIND, &mut |resource| {
            any = true;
            if !resource.is_collection && resource.len.is_none() {
                without_length.get_or_insert_with(|| last_part(resource));
            }
            found(&last_part(resource), file_info(resource));
        })?;
        // It would be taken for none.
        if let Some(name) = without_length {
            let name = shown(name.as_bytes());
            let why = format!("the server does not say how long {name} in {path} is");
            return Err(invalid(why));
        }
        match any {
            true => Ok(()),
            // The collection itself is a part of it.
            false => Err(invalid("the server lists nothing at all".to_owned())),
        }
    }

    fn dirs_at_once(&self) -> usize {
        DIRS_AT_ONCE
    }
}

/// A file that was written is not given its name: nobody guesses that from the word of a status.
fn not_moved(error: io::Error) -> io::Error {
    let text = format!(
        "the server wrote a file and does not move it (MOVE): {error}. A proxy before it must hand \
         on MOVE, and name the server in the header Destination as it does in the URL"
    );
    io::Error::new(error.kind(), text)
}

fn file_info(resource: &DavResource) -> FileInfo {
    FileInfo {
        len: resource.len.filter(|_| !resource.is_collection),
        modified: resource.modified,
    }
}

/// The name of a resource in its collection; one that cannot be read is none of ours.
fn last_part(resource: &DavResource) -> String {
    let href = resource.href.trim_end_matches('/');
    let part = href.rsplit('/').next().unwrap_or_default();
    unescape(part).unwrap_or_default()
}
