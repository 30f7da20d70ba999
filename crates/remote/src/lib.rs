//! Stores on a wire. Each protocol is one implementation of `Store` in a file or directory of its
//! name and does every request once; what all of them need on top (retries, limits, counting) are
//! decorators over `Store`. Nothing else in the workspace knows a network.

mod address;
mod areas;
mod cloud;
mod files;
pub mod ftp;
mod http;
mod location;
mod login;
mod open;
mod ping;
mod process;
pub mod rclone;
pub mod rest;
mod retry;
mod room;
pub mod sftp;
mod shown;
mod throttle;
mod waiting;
pub mod webdav;

pub use bale_cloud::{CLIENT, Variables};
pub use files::{FileInfo, FileStore, RemoteFiles, RemoteUpload};
pub use http::HttpOptions;
pub use http::url::{HttpUrl, HttpUrlError};
pub use location::{Location, LocationError, Scheme};
pub use login::{StoreLogin, StoreLoginError};
pub use open::{OpenError, Opening, RemoteOptions, caveat, open, put_only_policy};
pub use ping::ping;
pub use rest::RestStore;
pub use retry::{Retried, RetryRules};
pub use throttle::{Throttle, Throttled};
pub use waiting::{RealWaiting, Waiting};
