//! What this machine is called in snapshots.

use crate::exit::Usage;
use crate::variables;

/// The name that was given, or else what the environment or the system says.
pub fn name(given: Option<&str>) -> Result<String, Usage> {
    let name = match given {
        Some(name) => Some(name.to_owned()),
        None => variables::read_text("BALE_HOST")?,
    };
    Ok(name.unwrap_or_else(of_system))
}

fn of_system() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
