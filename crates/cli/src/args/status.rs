//! Options of `status`.

use super::Select;
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
