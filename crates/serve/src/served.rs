//! What all connections share, and the answers that say no.
//!
//! Where something fails here, the client learns that it failed; why is written to the log of
//! whoever runs the server, since it names places on this machine.

use crate::body::AnswerBody;
use crate::metrics::Metrics;
use crate::quota::Quota;
use crate::repositories::Repositories;
use crate::users::Users;
use bale_repository::store::StoreError;
use bytes::Bytes;
use hyper::{Response, StatusCode, header};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Takes a line of what went wrong.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// The state behind all requests.
pub struct Served {
    pub repositories: Repositories,
    pub quota: Quota,
    pub metrics: Metrics,
    /// `None`: nobody is asked for a password.
    pub users: Option<Users>,
    pub is_append_only: bool,
    /// A user reaches only repositories whose name begins with his.
    pub is_private: bool,
    /// The hash of a body is compared with its name.
    pub checks_hashes: bool,
    /// Places for uploads.
    pub uploads: Arc<Semaphore>,
    /// Places for checks of passwords.
    pub login_checks: Semaphore,
    pub log: Log,
}

impl Served {
    /// The answer to a request that the store failed at.
    pub fn failed(&self, error: &StoreError) -> Refused {
        if error.is_not_found() {
            return Refused::new(StatusCode::NOT_FOUND, "not found");
        }
        if error.is_storage_full() {
            (self.log)(&error.to_string());
            return Refused::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "the server's disk is full",
            );
        }
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            return Refused::new(StatusCode::CONFLICT, "there is one already");
        }
        (self.log)(&error.to_string());
        let why = "the server failed; its log says why";
        Refused::new(StatusCode::INTERNAL_SERVER_ERROR, why)
    }
}

/// A request that is not done.
#[derive(Debug)]
pub struct Refused {
    status: StatusCode,
    why: &'static str,
}

impl Refused {
    /// With a line for the client.
    pub fn new(status: StatusCode, why: &'static str) -> Refused {
        Refused { status, why }
    }

    /// Nobody came in: nothing more is read from him.
    pub fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    /// The answer that says so.
    pub fn answer(&self) -> Response<AnswerBody> {
        let text = Bytes::from_static(self.why.as_bytes());
        let mut answer = Response::new(AnswerBody::Whole(text));
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            header::HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        let more = match self.status {
            StatusCode::UNAUTHORIZED => Some((
                header::WWW_AUTHENTICATE,
                "Basic realm=\"bale\", charset=\"UTF-8\"",
            )),
            StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, "5")),
            StatusCode::METHOD_NOT_ALLOWED => Some((header::ALLOW, "GET, HEAD, POST, DELETE")),
            _ => None,
        };
        if let Some((name, value)) = more {
            headers.insert(name, header::HeaderValue::from_static(value));
        }
        answer
    }
}
