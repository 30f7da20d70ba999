//! How clouds are reached, as whoever opens a store says it.

use crate::client::ConnectionOptions;
use crate::pace::Pace;
use crate::variables::Variables;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How clouds are reached.
#[derive(Clone, Debug)]
pub struct CloudOptions {
    /// Where keys, regions and the like come from.
    pub environment: Variables,
    /// Certificates (PEM) that are believed instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Until a connection stands.
    pub connect_timeout: Duration,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    /// Go through the proxy that `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` name, but for hosts in
    /// `NO_PROXY`.
    pub uses_proxy: bool,
    /// A bound on bytes a second.
    pub pace: Option<Arc<dyn Pace>>,
    /// Where B2 says which host speaks S3.
    pub b2_api: String,
    /// Class of storage of packs of data in S3, where it is not the bucket's.
    pub data_class: Option<String>,
}

impl Default for CloudOptions {
    fn default() -> Self {
        CloudOptions {
            environment: Variables::default(),
            ca_file: None,
            connect_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            uses_proxy: true,
            pace: None,
            b2_api: "https://api.backblazeb2.com".to_owned(),
            data_class: None,
        }
    }
}

impl CloudOptions {
    /// Those of the connections. Hosts that give credentials are encrypted even where the bucket's
    /// is not.
    pub(crate) fn connections(&self) -> ConnectionOptions {
        ConnectionOptions {
            ca_file: self.ca_file.clone(),
            connect_timeout: self.connect_timeout,
            idle_timeout: self.idle_timeout,
            uses_proxy: self.uses_proxy,
            is_encrypted: true,
        }
    }
}
