//! Options of commands about a repository that is reached over a network. A variable of the
//! environment stands for each; `place/remote.rs` looks them up.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Which repository options are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// The one that the command works with.
    #[default]
    Own,
    /// That a copy reads from.
    Source,
    /// That a mirror is kept in.
    Mirror,
    /// The cold store of the one that the command works with.
    Cold,
}

/// Options of every command about repositories that are no directories of this machine.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Repositories over a network")]
pub struct Remote {
    /// Send at most this many bytes a second [env: BALE_LIMIT_UPLOAD]
    #[arg(long, global = true, value_name = "SIZE")]
    pub limit_upload: Option<String>,
    /// Receive at most this many bytes a second [env: BALE_LIMIT_DOWNLOAD]
    #[arg(long, global = true, value_name = "SIZE")]
    pub limit_download: Option<String>,
    /// Try a request that failed for a reason that passes again for so long; after that a backup
    /// keeps what it has, and the next one goes on from there [env: BALE_RETRY_FOR] [default: 15m]
    #[arg(long, global = true, value_name = "DURATION")]
    pub retry_for: Option<String>,
    /// Give up a connection that does not stand after so long [env: BALE_CONNECT_TIMEOUT] [default:
    /// 30s]
    #[arg(long, global = true, value_name = "DURATION")]
    pub connect_timeout: Option<String>,
    /// Give up a request without a sign of life for so long [env: BALE_IDLE_TIMEOUT] [default: 2m,
    /// SFTP 5m]
    #[arg(long, global = true, value_name = "DURATION")]
    pub idle_timeout: Option<String>,
    /// Trust the certificates in this file (PEM) instead of the system's [env: BALE_CA_FILE]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ca_file: Option<PathBuf>,
    /// Log in with the first line of this file, USER:PASSWORD [env: BALE_LOGIN_FILE]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub login_file: Option<PathBuf>,
    /// Store packs of data in this class of S3 (GLACIER, DEEP_ARCHIVE, STANDARD_IA ...); all else
    /// is in the bucket's own [env: BALE_STORAGE_CLASS]
    #[arg(long, global = true, value_name = "CLASS")]
    pub storage_class: Option<String>,
    /// Of a command with two repositories the other one, which has a login of its own.
    #[arg(skip)]
    pub whose: Whose,
    /// The place is that of the cold store, whoever's login it has.
    #[arg(skip)]
    pub is_cold: bool,
    /// Cache at most this much of what describes backups (snapshots, index, catalogs) on this
    /// machine; 0 for nothing [env: BALE_CACHE_SIZE] [default: 1G]
    #[arg(long, global = true, value_name = "SIZE")]
    pub cache_size: Option<String>,
}
