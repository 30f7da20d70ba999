//! How S3 holds an object: its class of storage, having it brought back from a cold one, and its
//! lock.

use super::S3Service;
use super::text;
use crate::dates::utc;
use bale_repository::store::Warmth;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use md5::{Digest, Md5};
use reqsign_core::time::Timestamp;
use std::io::{self, ErrorKind};
use std::time::SystemTime;

/// Namespace of what is sent.
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// Of an object that has no lock yet: whoever has the right for it can take the lock away.
const MODE_OF_FIRST_LOCK: &str = "GOVERNANCE";

impl S3Service {
    /// What the server says of an object.
    pub fn head(&self, path: &str) -> io::Result<HeaderMap> {
        let request = Request::head(self.requests.address(path, ""));
        Ok(self.requests.send(request, Bytes::new())?.headers)
    }

    /// Has an object that is cold brought back.
    pub fn bring_back(&self, path: &str, days: u32, tier: &str) -> io::Result<Warmth> {
        let head = self.head(path)?;
        let warmth = warmth(&head);
        if warmth != Warmth::Cold {
            return Ok(warmth);
        }
        // What moves by itself comes back for good.
        let days = match class(&head) {
            "INTELLIGENT_TIERING" => String::new(),
            _ => format!("<Days>{days}</Days>"),
        };
        let body = format!(
            "<RestoreRequest xmlns=\"{NAMESPACE}\">{days}<GlacierJobParameters><Tier>{tier}</Tier>\
             </GlacierJobParameters></RestoreRequest>"
        );
        let address = self.requests.address(path, "?restore");
        match self.change(Method::POST, address, body) {
            // Another one was quicker.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Warmth::Coming),
            Err(error) => Err(error),
            Ok(()) => Ok(Warmth::Coming),
        }
    }

    /// Locks an object until a time, unless it is locked long enough; true if it was not.
    pub fn lock(&self, path: &str, least: SystemTime, until: SystemTime) -> io::Result<bool> {
        let lock = lock(&self.head(path)?)?;
        let mode = match lock {
            Some((_, end)) if end >= least => return Ok(false),
            Some((mode, _)) => mode,
            None => MODE_OF_FIRST_LOCK.to_owned(),
        };
        let body = format!(
            "<Retention xmlns=\"{NAMESPACE}\"><Mode>{mode}</Mode><RetainUntilDate>{}\
             </RetainUntilDate></Retention>",
            date(until)?
        );
        let address = self.requests.address(path, "?retention");
        self.change(Method::PUT, address, body)?;
        Ok(true)
    }

    fn change(&self, method: Method, address: String, body: String) -> io::Result<()> {
        let digest = BASE64_STANDARD.encode(Md5::digest(&body));
        let request = Request::builder()
            .method(method)
            .uri(address)
            .header(header::CONTENT_TYPE, "application/xml")
            .header("content-md5", digest);
        self.requests.send(request, Bytes::from(body))?.skip();
        Ok(())
    }
}

fn class(head: &HeaderMap) -> &str {
    text(head, "x-amz-storage-class").unwrap_or_default()
}

/// By what the server says of an object.
pub fn warmth(head: &HeaderMap) -> Warmth {
    let is_cold = match class(head) {
        "GLACIER" | "DEEP_ARCHIVE" => true,
        "INTELLIGENT_TIERING" => head.contains_key("x-amz-archive-status"),
        _ => false,
    };
    let restore = text(head, "x-amz-restore").unwrap_or_default();
    match restore {
        _ if restore.contains("ongoing-request=\"true\"") => Warmth::Coming,
        _ if restore.contains("ongoing-request=\"false\"") => Warmth::Readable,
        _ if is_cold => Warmth::Cold,
        _ => Warmth::Readable,
    }
}

/// Mode and end of an object's lock.
fn lock(head: &HeaderMap) -> io::Result<Option<(String, SystemTime)>> {
    let end = text(head, "x-amz-object-lock-retain-until-date");
    let mode = text(head, "x-amz-object-lock-mode");
    let (Some(mode), Some(end)) = (mode, end) else {
        return Ok(None);
    };
    let odd = || {
        let text = "the server says of an object's lock what is none";
        io::Error::new(ErrorKind::InvalidData, text)
    };
    if !["GOVERNANCE", "COMPLIANCE"].contains(&mode) {
        return Err(odd());
    }
    let end: Timestamp = end.parse().map_err(|_| odd())?;
    Ok(Some((mode.to_owned(), end.as_system_time())))
}

fn date(time: SystemTime) -> io::Result<String> {
    utc(time).ok_or_else(|| {
        let text = "a lock until a time that no calendar has";
        io::Error::new(ErrorKind::InvalidInput, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn head(headers: &[(&'static str, &str)]) -> HeaderMap {
        let value = |text: &str| http::HeaderValue::from_str(text).unwrap();
        let pairs = headers.iter();
        pairs
            .map(|(name, text)| (http::HeaderName::from_static(name), value(text)))
            .collect()
    }

    #[test]
    fn an_object_is_cold_by_its_class_until_a_copy_is_there() {
        let class = "x-amz-storage-class";
        let restore = "x-amz-restore";
        let done = "ongoing-request=\"false\", expiry-date=\"Fri, 21 Dec 2029 00:00:00 GMT\"";
        for (headers, expected) in [
            (&[][..], Warmth::Readable),
            (&[(class, "STANDARD_IA")], Warmth::Readable),
            (&[(class, "GLACIER_IR")], Warmth::Readable),
            (&[(class, "INTELLIGENT_TIERING")], Warmth::Readable),
            (&[(class, "GLACIER")], Warmth::Cold),
            (&[(class, "DEEP_ARCHIVE"), (restore, "odd")], Warmth::Cold),
            (
                &[
                    (class, "INTELLIGENT_TIERING"),
                    ("x-amz-archive-status", "ARCHIVE_ACCESS"),
                ],
                Warmth::Cold,
            ),
            (
                &[(class, "GLACIER"), (restore, "ongoing-request=\"true\"")],
                Warmth::Coming,
            ),
            (&[(class, "GLACIER"), (restore, done)], Warmth::Readable),
        ] {
            assert_eq!(warmth(&head(headers)), expected, "{headers:?}");
        }
    }

    #[test]
    fn a_lock_is_read_as_it_is_written_and_what_is_odd_is_refused() {
        let mode = "x-amz-object-lock-mode";
        let until = "x-amz-object-lock-retain-until-date";
        let time = UNIX_EPOCH + std::time::Duration::from_secs(2_000_000_000);
        let text = date(time).unwrap();
        assert_eq!(text, "2033-05-18T03:33:20Z");
        for text in [text.as_str(), "2033-05-18T03:33:20.000Z"] {
            let read = lock(&head(&[(mode, "COMPLIANCE"), (until, text)]));
            assert_eq!(read.unwrap(), Some(("COMPLIANCE".to_owned(), time)));
        }
        assert_eq!(lock(&head(&[])).unwrap(), None);
        for (mode_text, text) in [("<x>", text.as_str()), ("GOVERNANCE", "tomorrow")] {
            lock(&head(&[(mode, mode_text), (until, text)])).unwrap_err();
        }
        let never = UNIX_EPOCH + std::time::Duration::from_secs(u64::MAX / 4);
        assert!(date(never).is_err());
    }
}
