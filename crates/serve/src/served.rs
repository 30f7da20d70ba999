//! What all connections share, and the answers that say no.
//!
//! Where something fails here, the client learns that it failed; why is written to the log of
//! whoever runs the server, since it names places on this machine. Of what the server's own user
//! may not do, the client learns the path below the directory that is served: he is often the one
//! who put it there.

use crate::body::AnswerBody;
use crate::metrics::Metrics;
use crate::quota::Quota;
use crate::repositories::Repositories;
use crate::users::Users;
use bale_repository::store::{ForeignEntry, LocalStore, Store, StoreError};
use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Response, StatusCode, header};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Foreign things that are remembered, so that each is written to the log once.
const FOREIGN_NAMED_MAX: usize = 1 << 10;

/// Why a request is not done, beside the same in the body: an answer to a HEAD has none.
const WHY_HEADER: HeaderName = HeaderName::from_static("bale-refused");

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
    /// What was named in the log and is no object.
    pub foreign: Mutex<BTreeSet<String>>,
    pub log: Log,
}

impl Served {
    /// A listing has met what is no object. It is named once, and counted each time.
    pub fn met_foreign(&self, store: &LocalStore, entry: &ForeignEntry) {
        self.metrics.foreign_entries.fetch_add(1, Ordering::Relaxed);
        let line = format!(
            "not an object of this repository: {}/{entry}",
            store.place()
        );
        let mut named = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() >= FOREIGN_NAMED_MAX {
            return;
        }
        if named.insert(line.clone()) {
            drop(named);
            (self.log)(&line);
        }
    }

    /// The answer to a request that the store failed at. What would fail again is no failure of the
    /// server, which clients would wait for.
    pub fn failed(&self, error: &StoreError) -> Refused {
        if error.is_not_found() {
            return Refused::new(StatusCode::NOT_FOUND, "not found");
        }
        if error.is_missing_area() {
            (self.log)(&error.to_string());
            return Refused::new(StatusCode::NOT_FOUND, "this directory is not there");
        }
        if error.is_storage_full() {
            (self.log)(&error.to_string());
            return Refused::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "the server's disk is full",
            );
        }
        if let Some(refused) = self.refused_by_system(error) {
            return refused;
        }
        (self.log)(&error.to_string());
        match error.kind() {
            // What is an object is kept, and no error: it is something else.
            ErrorKind::AlreadyExists => {
                return Refused::new(StatusCode::CONFLICT, "something else is there");
            }
            ErrorKind::NotADirectory => {
                let why = "a link or a file is there instead of a directory; the server's log \
                    names it";
                return Refused::new(StatusCode::UNPROCESSABLE_ENTITY, why);
            }
            _ => {}
        }
        let why = "the server failed; its log says why";
        Refused::new(StatusCode::INTERNAL_SERVER_ERROR, why)
    }

    /// What the user that the server runs as may not do stays so until somebody changes it.
    fn refused_by_system(&self, error: &StoreError) -> Option<Refused> {
        let what_to_do = match error.kind() {
            ErrorKind::PermissionDenied => {
                "the user that the server runs as has no right to: change the owner or the rights"
            }
            ErrorKind::ReadOnlyFilesystem => "the server's file system is mounted read-only",
            _ => return None,
        };
        (self.log)(&format!("{error}; {what_to_do}"));
        let object = self.repositories.without_dir(&error.object);
        let action = error.action;
        let why = format!("the server cannot {action} {object}: {what_to_do}");
        Some(Refused::new(StatusCode::FORBIDDEN, why))
    }
}

/// A request that is not done.
#[derive(Debug)]
pub struct Refused {
    status: StatusCode,
    why: Cow<'static, str>,
}

impl Refused {
    /// With a line for the client.
    pub fn new(status: StatusCode, why: impl Into<Cow<'static, str>>) -> Refused {
        Refused {
            status,
            why: why.into(),
        }
    }

    /// An object that is longer than any of its kind.
    pub fn too_long() -> Refused {
        Refused::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "no object is as long as that",
        )
    }

    /// Nobody came in: nothing more is read from him.
    pub fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    /// The answer that says so.
    pub fn answer(&self) -> Response<AnswerBody> {
        let text = Bytes::from(self.why.clone().into_owned());
        let mut answer = Response::new(AnswerBody::Whole(text));
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        // A path may have letters that no header has.
        if let Ok(why) = HeaderValue::from_str(&self.why) {
            headers.insert(WHY_HEADER, why);
        }
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
            headers.insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}
