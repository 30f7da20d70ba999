//! `export`

use super::cold::ColdReads;
use super::snapshots::Pick;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

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
    /// Let clients write: what they write goes to this file, sparse and on this machine, and the
    /// snapshot stays as it is. Made if it is not there; named again, the export goes on from it
    ///
    /// A guest can run from the image at once, while nothing is restored. What it flushed stays,
    /// also if this command is killed. Of one image, and only of that of this snapshot: keep the
    /// snapshot as long as the file is of use.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub overlay: Option<PathBuf>,
    /// Which snapshots.
    #[command(flatten)]
    pub select: Pick,
    /// What is not readable at once.
    #[command(flatten)]
    pub cold: ColdReads,
}
