//! Requests of S3 that opendal does not make: how an object is held, having it brought back from a
//! cold class, and locking it. Signed by opendal's signer, sent as its requests are.

use crate::credentials::{self, S3Credentials};
use crate::dates::utc;
use crate::place::{Cloud, CloudPlace};
use crate::s3_access::S3Access;
use crate::transport::Transport;
use bale_repository::store::Warmth;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use md5::{Digest, Md5};
use opendal::HttpTransporter;
use reqsign_aws_v4::{
    Credential, DefaultCredentialProvider, RequestSigner, StaticCredentialProvider,
};
use reqsign_core::time::Timestamp;
use reqsign_core::{Context, OsEnv, ProvideCredentialChain, Signer};
use reqsign_file_read_tokio::TokioFileRead;
use std::io::{self, ErrorKind};
use std::time::SystemTime;

/// Namespace of what is sent.
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// Of an object that has no lock yet: whoever has the right for it can take the lock away.
const MODE_OF_FIRST_LOCK: &str = "GOVERNANCE";

/// Makes requests.
pub struct SignedS3 {
    transport: Transport,
    cloud: Cloud,
    /// None: requests without a signature.
    signer: Option<Signer<Credential>>,
    /// Of the repository, with a slash at its end.
    url: String,
}

impl SignedS3 {
    /// For the place of a repository.
    pub fn new(
        place: &CloudPlace,
        access: &S3Access,
        transport: &Transport,
    ) -> io::Result<SignedS3> {
        let mut url = access.bucket_url()?;
        if !place.prefix.is_empty() {
            url += &format!("{}/", encoded(&place.prefix));
        }
        Ok(SignedS3 {
            transport: transport.clone(),
            cloud: place.cloud,
            signer: signer(access, transport),
            url,
        })
    }

    /// What the server says of an object.
    pub async fn head(&self, path: &str) -> io::Result<HeaderMap> {
        let request = Request::head(self.address(path, "")).body(Vec::new());
        self.send(request.map_err(no_request)?).await
    }

    /// Has an object that is cold brought back.
    pub async fn bring_back(&self, path: &str, days: u32, tier: &str) -> io::Result<Warmth> {
        let head = self.head(path).await?;
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
        let address = self.address(path, "?restore");
        match self.change(Method::POST, address, body).await {
            // Another one was quicker.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Warmth::Coming),
            Err(error) => Err(error),
            Ok(()) => Ok(Warmth::Coming),
        }
    }

    /// Locks an object until a time, unless it is locked long enough; true if it was not.
    pub async fn lock(&self, path: &str, least: SystemTime, until: SystemTime) -> io::Result<bool> {
        let lock = lock(&self.head(path).await?)?;
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
        let address = self.address(path, "?retention");
        self.change(Method::PUT, address, body).await?;
        Ok(true)
    }

    fn address(&self, path: &str, query: &str) -> String {
        format!("{}{}{query}", self.url, encoded(path))
    }

    async fn change(&self, method: Method, address: String, body: String) -> io::Result<()> {
        let digest = BASE64_STANDARD.encode(Md5::digest(&body));
        let request = Request::builder()
            .method(method)
            .uri(address)
            .header(header::CONTENT_TYPE, "application/xml")
            .header("content-md5", digest)
            .body(vec![Bytes::from(body)]);
        self.send(request.map_err(no_request)?).await?;
        Ok(())
    }

    async fn send(&self, request: Request<Vec<Bytes>>) -> io::Result<HeaderMap> {
        let (mut parts, body) = request.into_parts();
        if let Some(signer) = &self.signer {
            let signed = signer.sign(&mut parts, None).await;
            signed.map_err(|_| credentials::not_found(self.cloud, &self.transport))?;
            // The client writes its own.
            parts.headers.remove(header::HOST);
        }
        let answer = self.transport.send(Request::from_parts(parts, body)).await;
        let answer = answer.map_err(|refusal| refusal.into_error())?;
        Ok(answer.headers().clone())
    }
}

/// Looks for keys where opendal looks.
fn signer(access: &S3Access, transport: &Transport) -> Option<Signer<Credential>> {
    let context = Context::new()
        .with_file_read(TokioFileRead)
        .with_http_send(HttpTransporter::new(transport.clone()))
        .with_env(OsEnv);
    let mut found = DefaultCredentialProvider::builder();
    if let Some(profile) = &access.profile {
        found = found.with_profile(profile);
    }
    let found = ProvideCredentialChain::new().push(found.build());
    let provider = match &access.credentials {
        S3Credentials::Anonymous => return None,
        S3Credentials::Found => found,
        S3Credentials::Keys {
            id,
            secret,
            session,
        } => {
            let keys = StaticCredentialProvider::new(id, secret);
            found.push_front(match session {
                Some(session) => keys.with_session_token(session),
                None => keys,
            })
        }
    };
    let signer = RequestSigner::new("s3", &access.region);
    Some(Signer::new(context, provider, signer))
}

fn class(head: &HeaderMap) -> &str {
    text(head, "x-amz-storage-class").unwrap_or_default()
}

fn text<'a>(head: &'a HeaderMap, name: &str) -> Option<&'a str> {
    head.get(name)?.to_str().ok()
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

/// As opendal writes it: all but letters, digits, `-._~` and slashes.
fn encoded(path: &str) -> String {
    let mut encoded = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            byte => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

fn no_request(error: http::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, error.to_string())
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

    #[test]
    fn paths_are_encoded_once() {
        assert_eq!(encoded("a b/ü%+&"), "a%20b/%C3%BC%25%2B%26");
    }
}
