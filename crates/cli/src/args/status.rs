//! Options of `status`.

use super::{ProfileFiles, Select, StateDir};
use clap::Args;

/// `status`
#[derive(Debug, Args)]
pub struct Status {
    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
    /// A source whose last backup is older than this is late (26h, 8d)
    #[arg(long, value_name = "DURATION")]
    pub max_age: Option<String>,
    /// Look only at what this profile is about (repeat for several), in its repository [default:
    /// judge by all profiles of the repository]
    #[arg(long, value_name = "PROFILE")]
    pub profile: Vec<String>,
    /// Where profiles are.
    #[command(flatten)]
    pub files: ProfileFiles,
    /// Where the records of their runs are.
    #[command(flatten)]
    pub state: StateDir,
    /// Print one line for Nagios, Icinga and their kin, with performance data, and end with their
    /// codes: 0 OK, 1 warning, 2 critical, 3 unknown
    #[arg(long, conflicts_with = "json")]
    pub nagios: bool,
    /// With --nagios: warn if a last backup is older than this
    #[arg(long, value_name = "DURATION", requires = "nagios")]
    pub warning: Option<String>,
    /// With --nagios: a last backup that is older than this is critical [default: that of
    /// --max-age]
    #[arg(long, value_name = "DURATION", requires = "nagios")]
    pub critical: Option<String>,
}
