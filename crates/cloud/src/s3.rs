//! S3: requests of objects and pages of listings, as Amazon and those who speak its protocol take
//! them.
//!
//! An object is one PUT with the condition that nothing is there, and a checksum where the bucket
//! may lock objects. What a server answers is untrusted: lengths, ranges and names must fit what
//! was requested.

mod access;
mod holding;
mod list_page;
mod signed;

pub use access::S3Access;
pub use holding::warmth;
pub use list_page::fuzz_list_page;

use crate::place::CloudPlace;
use crate::refusal::{Refusal, is_out_of_range};
use crate::service::{BucketService, Stat, StoredAs};
use crate::transport::{Incoming, Transport, more_than_promised, too_little};
use bale_repository::store::ends_early;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use list_page::{ListPage, PAGE_WORDS, list_page};
use signed::{SignedRequests, encoded};
use std::io::{self, ErrorKind};

/// Room that an object gets before its first byte came, and each time when that is full.
const ROOM_BYTES: usize = 1 << 20;

/// Pages without a name, one after another, at most: versions that are deleted make some.
const EMPTY_PAGES_MAX: u32 = 10_000;

/// A repository's place in a bucket of S3.
pub struct S3Service {
    requests: SignedRequests,
    /// Class of storage of packs of data, where it is not the bucket's.
    data_class: Option<String>,
    has_checksums: bool,
}

impl S3Service {
    /// Nothing is requested yet.
    pub fn new(
        place: &CloudPlace,
        access: &S3Access,
        data_class: Option<String>,
        transport: &Transport,
    ) -> io::Result<S3Service> {
        Ok(S3Service {
            requests: SignedRequests::new(place, access, transport)?,
            data_class,
            has_checksums: access.has_checksums,
        })
    }

    fn get_range(&self, path: &str, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        let request = Request::get(self.requests.address(path, ""))
            .header(header::RANGE, format!("bytes={offset}-{}", end - 1));
        let mut answer = self.requests.send(request, Bytes::new())?;
        let len = object_len(&answer)?;
        if len < end {
            return Err(ends_early(offset, buf.len(), len));
        }
        let mut filled = 0;
        while filled < buf.len() {
            let read = answer
                .read(&mut buf[filled..])
                .map_err(Refusal::into_error)?;
            if read == 0 {
                return Err(too_little(buf.len() as u64, (buf.len() - filled) as u64));
            }
            filled += read;
        }
        expect_end(answer)
    }

    fn page(&self, prefix: &str, limit: Option<u32>, token: &str) -> io::Result<ListPage> {
        let mut query = "?list-type=2".to_owned();
        if !prefix.is_empty() {
            query += &format!("&prefix={}", encoded(prefix));
        }
        if let Some(limit) = limit {
            query += &format!("&max-keys={limit}");
        }
        if !token.is_empty() {
            query += &format!("&continuation-token={}", encoded(token));
        }
        let request = Request::get(self.requests.bucket_address(&query));
        let answer = self.requests.send(request, Bytes::new())?;
        let page = answer.read_page(&PAGE_WORDS);
        list_page(&page.map_err(Refusal::into_error)?)
    }
}

impl BucketService for S3Service {
    fn put(&self, path: &str, bytes: Bytes, stored: StoredAs, if_absent: bool) -> io::Result<()> {
        let mut request = Request::put(self.requests.address(path, ""));
        if if_absent {
            request = request.header(header::IF_NONE_MATCH, "*");
        }
        if self.has_checksums {
            let sum = crc32c::crc32c(&bytes).to_be_bytes();
            request = request.header("x-amz-checksum-crc32c", BASE64_STANDARD.encode(sum));
        }
        if let Some(class) = self
            .data_class
            .as_ref()
            .filter(|_| stored == StoredAs::DataPack)
        {
            request = request.header("x-amz-storage-class", class);
        }
        let answer = self.requests.send(request, bytes)?;
        expect(&answer, &[StatusCode::OK, StatusCode::CREATED])?;
        answer.skip();
        Ok(())
    }

    fn get(&self, path: &str, len_max: u64) -> io::Result<Vec<u8>> {
        let request = Request::get(self.requests.address(path, ""));
        let mut answer = self.requests.send(request, Bytes::new())?;
        expect(&answer, &[StatusCode::OK])?;
        let len = object_len(&answer)?;
        if len > len_max {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let len = usize::try_from(len).map_err(|_| io::Error::from(ErrorKind::FileTooLarge))?;
        let mut bytes = Vec::new();
        let mut filled = 0;
        while filled < len {
            if filled == bytes.len() {
                bytes.resize(len.min(filled + ROOM_BYTES), 0);
            }
            let read = answer
                .read(&mut bytes[filled..])
                .map_err(Refusal::into_error)?;
            if read == 0 {
                return Err(too_little(len as u64, (len - filled) as u64));
            }
            filled += read;
        }
        expect_end(answer)?;
        Ok(bytes)
    }

    fn read_at(&self, path: &str, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none() {
            return self.ends_early(path, offset, buf.len());
        }
        match self.get_range(path, offset, buf) {
            // Of an object that ends before the range, most servers do not say how long it is.
            Err(error) if is_out_of_range(&error) => self.ends_early(path, offset, buf.len()),
            read => read,
        }
    }

    fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
        let head = match self.head(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            head => head?,
        };
        let modified = text(&head, "last-modified");
        Ok(Some(Stat {
            len: length(&head, header::CONTENT_LENGTH.as_str())?,
            modified: modified.and_then(|text| httpdate::parse_http_date(text).ok()),
        }))
    }

    fn list(&self, dir: &str, found: &mut dyn FnMut(&str, Stat)) -> io::Result<()> {
        let root = self.requests.prefix();
        let prefix = format!("{root}{dir}");
        let mut circles = Circles::default();
        let (mut token, mut empty) = (String::new(), 0);
        loop {
            let page = self.page(&prefix, None, &token)?;
            empty = if page.objects.is_empty() {
                empty + 1
            } else {
                0
            };
            if empty > EMPTY_PAGES_MAX {
                return Err(odd("the server lists without end, and names nothing"));
            }
            circles.check(&page)?;
            for object in &page.objects {
                if !object.key.starts_with(&prefix) {
                    return Err(odd(
                        "the server lists what is not below the prefix requested",
                    ));
                }
            }
            for object in page.objects {
                // Consoles make markers of directories.
                if !object.key.ends_with('/') {
                    let stat = Stat {
                        len: object.len,
                        modified: object.modified,
                    };
                    found(&object.key[root.len()..], stat);
                }
            }
            match page.next {
                Some(next) => token = next,
                None => return Ok(()),
            }
        }
    }

    fn look_at_bucket(&self) -> io::Result<()> {
        let prefix = format!("{}keys/", self.requests.prefix());
        self.page(&prefix, Some(1), "").map(drop)
    }

    fn delete(&self, path: &str) -> io::Result<()> {
        let request = Request::delete(self.requests.address(path, ""));
        match self.requests.send(request, Bytes::new()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(answer) => {
                expect(&answer, &[StatusCode::NO_CONTENT])?;
                answer.skip();
                Ok(())
            }
        }
    }

    fn as_s3(&self) -> Option<&S3Service> {
        Some(self)
    }
}

/// Finds a listing that comes back to where it was: each page is compared with one before it, and
/// these are further and further apart, so that every circle is found within twice its length.
#[derive(Default)]
struct Circles {
    pages: u64,
    mark: Option<String>,
    mark_token: Option<String>,
}

impl Circles {
    fn check(&mut self, page: &ListPage) -> io::Result<()> {
        let is_mark = |key: &str| self.mark.as_deref() == Some(key);
        let is_again = page.objects.iter().any(|object| is_mark(&object.key));
        let is_same_token = page.next.is_some() && page.next == self.mark_token;
        if is_again || is_same_token {
            return Err(odd("the server lists in circles"));
        }
        self.pages += 1;
        if self.pages.is_power_of_two() {
            let first = page.objects.first();
            self.mark = first.map(|object| object.key.clone());
            self.mark_token.clone_from(&page.next);
        }
        Ok(())
    }
}

fn expect(answer: &Incoming, statuses: &[StatusCode]) -> io::Result<()> {
    if statuses.contains(&answer.status) {
        return Ok(());
    }
    let status = answer.status;
    Err(odd(&format!(
        "the server answers {status}, which fits no such request"
    )))
}

/// The whole object's: of a range it is said beside it.
fn object_len(answer: &Incoming) -> io::Result<u64> {
    let range = text(&answer.headers, header::CONTENT_RANGE.as_str());
    let whole = range.and_then(|range| range.rsplit_once('/'));
    if let Some(len) = whole.and_then(|(_, len)| len.parse().ok()) {
        return Ok(len);
    }
    length(&answer.headers, header::CONTENT_LENGTH.as_str())
}

fn length(head: &HeaderMap, name: &str) -> io::Result<u64> {
    let len = text(head, name).and_then(|text| text.parse().ok());
    len.ok_or_else(|| odd("the server does not say how long an object is"))
}

/// Reading on to the end also gives the connection back.
fn expect_end(mut answer: Incoming) -> io::Result<()> {
    match answer.read(&mut [0]).map_err(Refusal::into_error)? {
        0 => Ok(()),
        _ => Err(more_than_promised()),
    }
}

fn text<'a>(head: &'a HeaderMap, name: &str) -> Option<&'a str> {
    head.get(name)?.to_str().ok()
}

fn odd(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use list_page::ListedObject;

    fn page(key: &str, next: &str) -> ListPage {
        ListPage {
            objects: vec![ListedObject {
                key: key.to_owned(),
                len: 1,
                modified: None,
            }],
            next: Some(next.to_owned()),
        }
    }

    /// A circle of any length after a beginning of any length, by its keys or by its tokens.
    #[test]
    fn a_listing_in_circles_is_found_wherever_the_circle_begins() {
        for before in [0, 1, 2, 5] {
            for length in 1..10 {
                for by_key in [false, true] {
                    let mut circles = Circles::default();
                    let ended = (0..100).find(|number| {
                        let place = match number < &before {
                            true => *number,
                            false => before + (number - before) % length,
                        };
                        let (key, token) = match by_key {
                            true => (place, *number),
                            false => (*number, place),
                        };
                        let page = page(&format!("k{key}"), &format!("t{token}"));
                        circles.check(&page).is_err()
                    });
                    assert!(ended.is_some(), "{before} {length} {by_key}");
                }
            }
        }
        let mut circles = Circles::default();
        for number in 0..1000 {
            circles
                .check(&page(&format!("k{number}"), &format!("t{number}")))
                .unwrap();
        }
    }
}
