//! From a location to its store: one line for each scheme, and the same decorators around all.

use crate::location::Scheme;
use crate::rest::{RestOptions, RestStore, RestUrl, RestUrlError};
use crate::retry::{Retried, RetryRules, Waiting};
use bale_repository::store::{Store, StoreError};
use std::path::PathBuf;
use std::sync::Arc;

/// What all remote stores can be told.
#[derive(Clone, Debug, Default)]
pub struct RemoteOptions {
    /// When a request is made again.
    pub retry: RetryRules,
    /// Certificates (PEM) that are believed instead of the system's.
    pub ca_file: Option<PathBuf>,
}

/// Why there is no store at a place.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// What stands after `rest:` is no URL of a server.
    #[error("the repository's name is no rest:https://USER:PASSWORD@HOST:PORT/NAME: {0}")]
    Url(#[from] RestUrlError),
    /// It cannot be reached, or a repository made there.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The store of a repository at `place`, which is what stands after the scheme. Whether one is
/// there is not asked.
pub fn open(
    scheme: Scheme,
    place: &str,
    options: &RemoteOptions,
    waiting: Arc<dyn Waiting>,
) -> Result<Arc<dyn Store>, OpenError> {
    let store = match scheme {
        Scheme::Rest => RestStore::open(RestUrl::parse(place)?, &rest_options(options))?,
    };
    Ok(Arc::new(Retried::new(
        Arc::new(store),
        options.retry,
        waiting,
    )))
}

/// The same where there is none yet: whatever its store needs before the first object is made.
pub fn create(
    scheme: Scheme,
    place: &str,
    options: &RemoteOptions,
    waiting: Arc<dyn Waiting>,
) -> Result<Arc<dyn Store>, OpenError> {
    let store = match scheme {
        Scheme::Rest => RestStore::create(RestUrl::parse(place)?, &rest_options(options))?,
    };
    Ok(Arc::new(Retried::new(
        Arc::new(store),
        options.retry,
        waiting,
    )))
}

fn rest_options(options: &RemoteOptions) -> RestOptions {
    RestOptions {
        ca_file: options.ca_file.clone(),
        ..RestOptions::default()
    }
}
