//! Requests of opendal over our transport: a page of a listing is read whole and checked, an object
//! as it comes. A future of these does its work when it is first asked, on the thread that waits.
//!
//! One of two files that know opendal. Errors leave as its errors with a `Refusal` as their source.

use crate::refusal::Refusal;
use crate::transport::{ANSWER_BYTES_MAX, Incoming, Transport};
use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, header};
use opendal::raw::Operation;
use opendal::{Buffer, Error, HttpBody, HttpTransport};
use std::time::SystemTime;

/// Bytes of an object that are handed on at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Carries requests of one service.
pub struct OpendalTransport {
    transport: Transport,
    /// What stands in each page of a listing.
    page_words: &'static [&'static str],
}

impl OpendalTransport {
    pub fn new(transport: Transport, page_words: &'static [&'static str]) -> OpendalTransport {
        OpendalTransport {
            transport,
            page_words,
        }
    }

    fn carry(&self, request: Request<Buffer>) -> Result<Response<HttpBody>, Refusal> {
        let operation = request.extensions().get::<Operation>().copied();
        let is_head = request.method() == Method::HEAD;
        let request = request.map(|body| body.into_iter().collect::<Vec<Bytes>>());
        let Some(operation) = operation else {
            let answer = self.transport.look_for_credentials(request)?;
            return Ok(answer.map(|body| whole(Buffer::from(body))));
        };
        let answer = self.transport.send(request)?;
        let mut head = Response::new(());
        *head.status_mut() = answer.status;
        if operation == Operation::List {
            let page = answer.read_page(self.page_words)?;
            return Ok(head.map(|()| whole(Buffer::from(page))));
        }
        head.headers_mut().clone_from(&answer.headers);
        if is_head {
            return Ok(head.map(|()| HttpBody::new(stream::empty(), None)));
        }
        if operation != Operation::Read {
            let body = answer.read_all(ANSWER_BYTES_MAX)?;
            return Ok(head.map(|()| whole(Buffer::from(body))));
        }
        Ok(head.map(|()| as_it_comes(answer)))
    }
}

impl HttpTransport for OpendalTransport {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        self.carry(request).map_err(to_opendal)
    }
}

fn whole(body: Buffer) -> HttpBody {
    HttpBody::new(stream::iter([Ok(body)]), None)
}

/// opendal takes the length that is said for a promise.
fn as_it_comes(answer: Incoming) -> HttpBody {
    let len = answer.headers.get(header::CONTENT_LENGTH);
    let len = len.and_then(|len| len.to_str().ok()?.parse().ok());
    let pieces = stream::try_unfold(answer, |mut answer| async move {
        let mut piece = vec![0; PIECE_BYTES];
        let read = answer.read(&mut piece).map_err(to_opendal)?;
        piece.truncate(read);
        Ok((read > 0).then(|| (Buffer::from(piece), answer)))
    });
    HttpBody::new(Box::pin(pieces), len)
}

fn to_opendal(refusal: Refusal) -> Error {
    Error::new(opendal::ErrorKind::Unexpected, "request").set_source(refusal)
}

/// When an answer says that it was made.
pub fn system_time(time: opendal::raw::Timestamp) -> SystemTime {
    time.into()
}
