//! Options of `track`: what changes on devices of this machine.

use super::NoRepository;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `track`
#[derive(Debug, Subcommand)]
pub enum Track {
    /// Begin to track a disk or a partition: from now on, until it is stopped or the machine is
    #[command(after_help = "Examples:\n  bale track start /dev/sda\n  \
            bale track start /dev/nvme0n1p2 && bale backup --image /dev/nvme0n1p2 --allow-fuzzy\n\n\
A device that is tracked already goes on, so this may be run at every start of the machine.")]
    Start(TrackedDevice),
    /// Show what is tracked; exit 1 if a device that is named is not, or not to be relied on
    #[command(after_help = "Examples:\n  bale track status\n  \
            bale track status /dev/sda --json")]
    Status {
        /// Not for this command.
        #[command(flatten)]
        unused: NoRepository,
        /// Devices [default: all that are tracked]
        #[arg(value_name = "DEVICE", value_hint = ValueHint::FilePath)]
        devices: Vec<PathBuf>,
    },
    /// Stop tracking; the next backup reads everything
    #[command(after_help = "Example:\n  bale track stop /dev/sda")]
    Stop(TrackedDevice),
}

/// `track start` and `track stop`
#[derive(Debug, Args)]
pub struct TrackedDevice {
    /// Not for this command.
    #[command(flatten)]
    pub unused: NoRepository,
    /// Disk or partition. What is made of other devices (LVM, dm-crypt, RAID) is tracked by the
    /// disk that it is on
    #[arg(value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    pub device: PathBuf,
}
