//! `serve`: who may come in is always said, by a file of users or by `--no-auth`.

use super::global::NoKey;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `serve`
#[derive(Debug, Args)]
pub struct Serve {
    /// Not for this command.
    #[command(flatten)]
    pub unused: NotForServers,
    /// Directory that holds the repositories
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath,
        required_unless_present = "hash_password")]
    pub dir: Option<PathBuf>,
    /// Address and port to listen on; other machines reach it only if it is not one of 127.0.0.0/8
    /// or [::1] [default: the socket that systemd hands over, else 127.0.0.1:8000]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Let in the users of this file: lines of USER:HASH, as --hash-password prints them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "no_auth")]
    pub password_file: Option<PathBuf>,
    /// Let in everybody who reaches the address, which must be of this machine alone
    #[arg(long)]
    pub no_auth: bool,
    /// Let nobody replace or delete anything but records of unfinished backups
    #[arg(long)]
    pub append_only: bool,
    /// Let a user reach only repositories below /USER/
    #[arg(long, conflicts_with = "no_auth")]
    pub private: bool,
    /// Certificate of the server (PEM, with those it is signed by): serve https
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Key of that certificate (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let all repositories together have at most this many bytes
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<String>,
    /// Print the line of a password file for this user, whose password is asked for or is the first
    /// line of standard input; serve nothing
    #[arg(long, value_name = "USER", exclusive = true)]
    pub hash_password: Option<String>,
}

/// Options of every command that mean nothing to a server: it has no key.
#[derive(Clone, Debug, Args)]
pub struct NotForServers {
    #[arg(short, long, hide = true)]
    pub repo: Option<OsString>,
    #[command(flatten)]
    pub rest: NoKey,
}
