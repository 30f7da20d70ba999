//! `export`

use super::cold::ColdReads;
use super::snapshots::Pick;
use clap::Args;
use std::ffi::OsString;

/// `export`
#[derive(Debug, Args)]
pub struct Export {
    /// Snapshot, or snapshot:/image
    pub address: OsString,
    /// Where to listen: unix:SOCKET, which this user alone may connect to, or HOST:PORT of this
    /// machine (localhost:10809; port 0 takes a free one)
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: OsString,
    /// Listen on an address that other machines reach: nothing is encrypted and nobody is asked for
    /// a password, so whoever reaches it reads the images
    #[arg(long)]
    pub allow_network: bool,
    /// End when the last client has gone
    #[arg(long)]
    pub once: bool,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Pick,
    /// What is not readable at once.
    #[command(flatten)]
    pub cold: ColdReads,
}
