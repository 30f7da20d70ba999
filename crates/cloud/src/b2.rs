//! B2 speaks S3 under a host that its own protocol tells whoever has a key: one request, and from
//! then on it is S3 with that key. Its own protocol has no upload without a first request for an
//! address, and no condition.

use crate::refusal::Refusal;
use crate::transport::Transport;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{Request, header};
use std::io::{self, ErrorKind};

/// Bytes of the answer that are read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Where a key's buckets are.
#[derive(Debug, PartialEq, Eq)]
pub struct B2Host {
    pub endpoint: String,
    pub region: String,
}

/// Asks which host it is.
pub fn find_host(transport: &Transport, api: &str, id: &str, key: &str) -> io::Result<B2Host> {
    let login = BASE64_STANDARD.encode(format!("{id}:{key}"));
    let request = Request::get(format!("{api}/b2api/v2/b2_authorize_account"))
        .header(header::AUTHORIZATION, format!("Basic {login}"))
        .body(Vec::new())
        .map_err(|error| io::Error::other(error.to_string()))?;
    let from_refusal = |refusal: Refusal| io::Error::new(refusal.kind, refusal.text);
    let answer = transport.send(request).map_err(from_refusal)?;
    let body = answer.read_all(ANSWER_BYTES_MAX).map_err(from_refusal)?;
    read_host(&body, api)
}

/// The host is reached as the one that names it: with encryption, if that was.
fn read_host(body: &[u8], api: &str) -> io::Result<B2Host> {
    let json: serde_json::Value =
        serde_json::from_slice(body).map_err(|_| odd("its answer is no JSON"))?;
    let endpoint = json["s3ApiUrl"].as_str();
    let endpoint = endpoint.ok_or_else(|| odd("it names no host that speaks S3"))?;
    let scheme = if api.starts_with("http://") {
        "http://"
    } else {
        "https://"
    };
    let host = endpoint.strip_prefix(scheme).unwrap_or_default();
    // s3.us-west-004.backblazeb2.com
    let region = host.split('.').nth(1).unwrap_or_default();
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-.:".contains(letter);
    if region.is_empty() || !host.chars().all(is_letter) {
        return Err(odd("it names a host that is none"));
    }
    Ok(B2Host {
        endpoint: endpoint.to_owned(),
        region: region.to_owned(),
    })
}

fn odd(why: &str) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("B2 was asked for the host of S3: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_and_its_region_are_read() {
        let body = br#"{"s3ApiUrl":"https://s3.us-west-004.backblazeb2.com","accountId":"x"}"#;
        let host = read_host(body, "https://api").unwrap();
        assert_eq!(host.region, "us-west-004");
        assert_eq!(host.endpoint, "https://s3.us-west-004.backblazeb2.com");
        for odd in [
            &b""[..],
            b"{}",
            b"[]",
            br#"{"s3ApiUrl":"http://s3.x.y"}"#,
            br#"{"s3ApiUrl":"https://h"}"#,
            br#"{"s3ApiUrl":"https://a.b@evil.example/"}"#,
        ] {
            assert_eq!(
                read_host(odd, "https://api").unwrap_err().kind(),
                ErrorKind::InvalidData
            );
        }
    }
}
