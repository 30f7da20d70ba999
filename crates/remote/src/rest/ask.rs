//! What a request of the REST protocol carries.

use crate::http::{Answer, HttpTransport};
use http::{HeaderName, Method, header};
use std::io;

/// What servers say of a listing with sizes.
const LISTING_TYPE: &str = "application/vnd.x.restic.rest.v2";

const OBJECT_TYPE: &str = "application/octet-stream";

/// What a request carries.
pub enum Ask<'a> {
    Nothing,
    /// Bytes from the first to the last, both of them included.
    Range(u64, u64),
    Listing,
    Body(&'a [u8]),
}

impl Ask<'_> {
    /// Makes the request.
    pub fn make(
        self,
        transport: &dyn HttpTransport,
        method: &Method,
        url: &str,
    ) -> io::Result<Answer> {
        let with = |name: HeaderName, value: &str, body: Option<&[u8]>| {
            transport.request(method, url, &[(name, value)], body)
        };
        match self {
            Ask::Nothing => transport.request(method, url, &[], None),
            Ask::Range(first, last) => with(header::RANGE, &format!("bytes={first}-{last}"), None),
            Ask::Listing => with(header::ACCEPT, LISTING_TYPE, None),
            Ask::Body(bytes) => with(header::CONTENT_TYPE, OBJECT_TYPE, Some(bytes)),
        }
    }
}
