//! Live file systems: barriers, what may be scanned from its device, opening by handle, under writers. Needs root.

#[path = "live/barrier.rs"]
mod barrier;
#[path = "live/freezer_faults.rs"]
mod freezer_faults;
#[path = "live/mounts.rs"]
mod mounts;
