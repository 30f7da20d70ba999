//! Signed requests to a bucket: addresses, the signature, and where keys are looked for. One of two
//! files that know the signer.

use super::access::S3Access;
use crate::credentials::{self, S3Credentials};
use crate::place::{Cloud, CloudPlace};
use crate::refusal::Refusal;
use crate::transport::{Incoming, Transport};
use crate::wait::wait_for;
use bytes::Bytes;
use http::{Request, Response};
use reqsign_aws_v4::{
    Credential, DefaultCredentialProvider, RequestSigner, StaticCredentialProvider,
};
use reqsign_core::{
    Context, Error, FileRead, HttpSend, OsEnv, ProvideCredentialChain, Result, Signer,
};
use std::io::{self, ErrorKind};

/// Makes requests to a bucket.
pub struct SignedRequests {
    transport: Transport,
    cloud: Cloud,
    /// None: requests without a signature.
    signer: Option<Signer<Credential>>,
    /// With a slash at its end.
    bucket_url: String,
    /// Of the repository in the bucket: empty, or with a slash at its end.
    prefix: String,
}

impl SignedRequests {
    /// For the place of a repository.
    pub fn new(
        place: &CloudPlace,
        access: &S3Access,
        transport: &Transport,
    ) -> io::Result<SignedRequests> {
        let prefix = match place.prefix.is_empty() {
            true => String::new(),
            false => format!("{}/", place.prefix),
        };
        Ok(SignedRequests {
            transport: transport.clone(),
            cloud: place.cloud,
            signer: signer(access, transport),
            bucket_url: access.bucket_url(),
            prefix,
        })
    }

    /// What stands before the paths of the repository in the bucket.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Where an object is.
    pub fn address(&self, path: &str, query: &str) -> String {
        let (bucket, prefix) = (&self.bucket_url, encoded(&self.prefix));
        format!("{bucket}{prefix}{}{query}", encoded(path))
    }

    /// Where the bucket itself is.
    pub fn bucket_address(&self, query: &str) -> String {
        format!("{}{query}", self.bucket_url.trim_end_matches('/'))
    }

    /// Signs a request and makes it once.
    pub fn send(&self, request: http::request::Builder, body: Bytes) -> io::Result<Incoming> {
        let request = request.body(vec![body]);
        let request =
            request.map_err(|error| io::Error::new(ErrorKind::InvalidInput, error.to_string()))?;
        let (mut parts, body) = request.into_parts();
        if let Some(signer) = &self.signer {
            wait_for(signer.sign(&mut parts, None))
                .map_err(|_| credentials::not_found(self.cloud, &self.transport))?;
        }
        let answer = self.transport.send(Request::from_parts(parts, body));
        answer.map_err(Refusal::into_error)
    }
}

/// Keys that are given, or found in `~/.aws` or on the machine.
fn signer(access: &S3Access, transport: &Transport) -> Option<Signer<Credential>> {
    let context = Context::new()
        .with_file_read(CredentialFiles)
        .with_http_send(CredentialRequests(transport.clone()))
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

/// Files with keys, read by the thread that signs.
#[derive(Debug)]
struct CredentialFiles;

impl FileRead for CredentialFiles {
    async fn file_read(&self, path: &str) -> Result<Vec<u8>> {
        let read = std::fs::read(path);
        read.map_err(|error| Error::config_invalid("read a file with keys").with_source(error))
    }
}

/// Requests to services that give keys, made by the thread that signs.
#[derive(Debug)]
struct CredentialRequests(Transport);

impl HttpSend for CredentialRequests {
    async fn http_send(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        let answer = self.0.look_for_credentials(request.map(|body| vec![body]));
        answer.map_err(|refusal| Error::unexpected("request keys").with_source(refusal))
    }
}

/// A path as it stands in an address: all but letters, digits, `-._~` and slashes is encoded.
pub fn encoded(path: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded_once() {
        assert_eq!(encoded("a b/ü%+&"), "a%20b/%C3%BC%25%2B%26");
    }
}
