//! From a location to its store: one line for each scheme, and the same decorators around all.

use crate::cloud;
use crate::files::{FileStore, RemoteFiles};
use crate::ftp::{FTP_CAVEAT, FtpFiles, FtpOptions, FtpPlace, FtpPlaceError};
use crate::http::HttpOptions;
use crate::http::url::{HttpUrl, HttpUrlError};
use crate::location::Scheme;
use crate::login::StoreLogin;
use crate::rclone::{self, RcloneOptions, RclonePlace, RclonePlaceError};
use crate::rest::RestStore;
use crate::retry::{Retried, RetryRules};
use crate::sftp::{SftpOptions, SftpPlace, SftpPlaceError, SftpServer, SftpStore};
use crate::throttle::Throttle;
use crate::waiting::Waiting;
use crate::webdav::DavFiles;
use bale_cloud::{CloudPlace, CloudPlaceError, Variables};
use bale_repository::store::{Result as StoreResult, Store, StoreError};
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What all remote stores can be told; each takes what it has a use for.
#[derive(Clone, Debug, Default)]
pub struct RemoteOptions {
    /// When a request is made again.
    pub retry: RetryRules,
    /// Bytes a second.
    pub throttle: Throttle,
    /// Who we are, where the location does not say it.
    pub login: Option<StoreLogin>,
    /// How a login is given, for the message of a server that wants one.
    pub login_advice: Option<String>,
    /// Certificates (PEM) that are believed instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Until a connection stands, where it is not the usual time.
    pub connect_timeout: Option<Duration>,
    /// Without a byte or an answer, where it is not the usual time.
    pub idle_timeout: Option<Duration>,
    /// A program and its arguments, run in place of `ssh`.
    pub sftp_command: Option<Vec<String>>,
    /// A program and its first arguments, run in place of `rclone serve restic --stdio`.
    pub rclone_command: Option<Vec<String>>,
    /// Where keys of clouds, their regions and the like come from.
    pub environment: Variables,
    /// Class of storage of packs of data, in S3.
    pub data_class: Option<String>,
}

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Nothing in it changes.
    Read,
    /// Objects are written or deleted: what dead processes left half written is removed.
    Write,
    /// There is none yet: whatever is needed before the first object is made.
    Create,
}

/// Why there is no store at a place.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// What stands after `rest:` or `webdav:` is no URL of a server.
    #[error("the repository's name is no {0}: {1}")]
    Url(&'static str, HttpUrlError),
    /// What stands after `rclone:` is no place that rclone knows.
    #[error("the repository's name is no {0}: {1}")]
    Rclone(&'static str, RclonePlaceError),
    /// What stands after `ftp:` or `ftps:` is no directory of a server.
    #[error("the repository's name is no {0}: {1}")]
    Ftp(&'static str, FtpPlaceError),
    /// What stands after `sftp:` is no place on a host.
    #[error(transparent)]
    Sftp(#[from] SftpPlaceError),
    /// What stands after the scheme is no place in that cloud.
    #[error(transparent)]
    Cloud(#[from] CloudPlaceError),
    /// It cannot be reached, or a repository made there.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes what is needed before the store is used; done again, it completes what is there.
type Prepare = Box<dyn Fn() -> StoreResult<()>>;

/// The store of a repository at `place`, which is what stands after the scheme. Whether one is
/// there is not asked.
pub fn open(
    scheme: Scheme,
    place: &str,
    opening: Opening,
    options: &RemoteOptions,
    waiting: Arc<dyn Waiting>,
) -> Result<Arc<dyn Store>, OpenError> {
    let (store, prepare) = reach(scheme, place, opening, options)?;
    let store = Retried::new(store, options.retry, waiting);
    store.until_answered(prepare)?;
    Ok(Arc::new(store))
}

fn reach(
    scheme: Scheme,
    place: &str,
    opening: Opening,
    options: &RemoteOptions,
) -> Result<(Arc<dyn Store>, Prepare), OpenError> {
    Ok(match scheme {
        Scheme::Rest => {
            let url = HttpUrl::parse(place);
            let url = url.map_err(|error| OpenError::Url(scheme.example(), error))?;
            rest(RestStore::open(url, &options.http())?, opening)
        }
        Scheme::Rclone => {
            let place = RclonePlace::parse(place);
            let place = place.map_err(|error| OpenError::Rclone(scheme.example(), error))?;
            rest(rclone::open(&place, &options.rclone())?, opening)
        }
        Scheme::Webdav => {
            let url = HttpUrl::parse_escaped(place);
            let url = url.map_err(|error| OpenError::Url(scheme.example(), error))?;
            let shown = format!("{}:{url}", scheme.text());
            let opened = DavFiles::new(url, &options.http());
            let opened = opened.map_err(|error| cannot_open(shown, error))?;
            files(opened, opening)
        }
        Scheme::Ftp | Scheme::Ftps => {
            let place = FtpPlace::parse(place, scheme == Scheme::Ftps);
            let place = place.map_err(|error| OpenError::Ftp(scheme.example(), error))?;
            let shown = place.to_string();
            let opened = FtpFiles::new(place, &options.ftp());
            let opened = opened.map_err(|error| cannot_open(shown, error))?;
            files(opened, opening)
        }
        Scheme::Sftp => sftp(&SftpPlace::parse(place)?, opening, options),
        Scheme::Cloud(cloud) => {
            let store = cloud::open(CloudPlace::parse(cloud, place)?, options)?;
            // A bucket has no directories.
            (Arc::new(store), Box::new(|| Ok(())))
        }
    })
}

fn rest(store: RestStore, opening: Opening) -> (Arc<dyn Store>, Prepare) {
    let prepare = store.clone();
    (
        Arc::new(store),
        Box::new(move || match opening {
            Opening::Create => prepare.lay_out(),
            Opening::Read | Opening::Write => Ok(()),
        }),
    )
}

/// What dead processes left is removed before the first object is written.
fn files<F: RemoteFiles + 'static>(files: F, opening: Opening) -> (Arc<dyn Store>, Prepare) {
    let store = FileStore::open(files);
    let prepare = store.clone();
    (
        Arc::new(store),
        Box::new(move || match opening {
            Opening::Create => prepare.lay_out(),
            Opening::Read | Opening::Write => Ok(()),
        }),
    )
}

/// What is wrong with the command, the login or the key of the host is learned at once; nobody
/// waits for what dead processes left to be removed.
fn sftp(place: &SftpPlace, opening: Opening, options: &RemoteOptions) -> (Arc<dyn Store>, Prepare) {
    let usual = SftpOptions::default();
    let options = SftpOptions {
        command: options.sftp_command.clone(),
        timeout: options.idle_timeout.unwrap_or(usual.timeout),
        throttle: options.throttle.clone(),
    };
    let store = SftpStore::new(SftpServer::at(place, &options));
    let prepare = store.clone();
    (
        Arc::new(store),
        Box::new(move || match opening {
            Opening::Read => prepare.connect(),
            Opening::Write => prepare.connect().map(|()| prepare.sweep_beside()),
            Opening::Create => prepare.lay_out(),
        }),
    )
}

fn cannot_open(object: String, source: io::Error) -> StoreError {
    StoreError {
        action: "open",
        object,
        source,
    }
}

impl RemoteOptions {
    fn http(&self) -> HttpOptions {
        let usual = HttpOptions::default();
        HttpOptions {
            login: self.login.clone(),
            login_advice: self.login_advice.clone().unwrap_or(usual.login_advice),
            ca_file: self.ca_file.clone(),
            connect_timeout: self.connect_timeout.unwrap_or(usual.connect_timeout),
            idle_timeout: self.idle_timeout.unwrap_or(usual.idle_timeout),
            throttle: self.throttle.clone(),
            uses_proxy: usual.uses_proxy,
        }
    }

    fn rclone(&self) -> RcloneOptions {
        let usual = RcloneOptions::default();
        RcloneOptions {
            command: self.rclone_command.clone(),
            idle_timeout: self.idle_timeout.unwrap_or(usual.idle_timeout),
            throttle: self.throttle.clone(),
        }
    }

    fn ftp(&self) -> FtpOptions {
        let usual = FtpOptions::default();
        FtpOptions {
            login: self.login.clone(),
            ca_file: self.ca_file.clone(),
            connect_timeout: self.connect_timeout.unwrap_or(usual.connect_timeout),
            idle_timeout: self.idle_timeout.unwrap_or(usual.idle_timeout),
            throttle: self.throttle.clone(),
        }
    }
}

/// The policy by which a client of a bucket adds and never replaces or deletes; none where there is
/// no such.
pub fn put_only_policy(scheme: Scheme, place: &str) -> Result<Option<Value>, OpenError> {
    match scheme {
        Scheme::Cloud(cloud) => Ok(bale_cloud::put_only_policy(&CloudPlace::parse(
            cloud, place,
        )?)),
        _ => Ok(None),
    }
}

/// What a store of this kind cannot promise, to be said where a repository is made.
pub fn caveat(scheme: Scheme) -> Option<&'static str> {
    match scheme {
        Scheme::Rest | Scheme::Sftp | Scheme::Rclone | Scheme::Webdav | Scheme::Cloud(_) => None,
        Scheme::Ftp | Scheme::Ftps => Some(FTP_CAVEAT),
    }
}
