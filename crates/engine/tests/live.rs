//! Live file systems: barriers, what may be scanned from its device, opening by handle, under
//! writers. Needs root.

#[path = "live/atimes.rs"]
mod atimes;
#[path = "live/backup.rs"]
mod backup;
#[path = "live/barrier.rs"]
mod barrier;
#[path = "live/by_inode.rs"]
mod by_inode;
#[path = "live/freezer_faults.rs"]
mod freezer_faults;
#[path = "live/half_changed.rs"]
mod half_changed;
#[path = "live/hooks.rs"]
mod hooks;
#[path = "live/image_mounted.rs"]
mod image_mounted;
#[path = "live/incomplete.rs"]
mod incomplete;
#[path = "live/linked.rs"]
mod linked;
#[path = "live/loads.rs"]
mod loads;
#[path = "live/mounts.rs"]
mod mounts;
#[path = "live/moved.rs"]
mod moved;
#[path = "live/parts.rs"]
mod parts;
#[path = "live/same.rs"]
mod same;
#[path = "live/skipped.rs"]
mod skipped;
#[path = "live/snapshots.rs"]
mod snapshots;
#[path = "live/target.rs"]
mod target;
#[path = "live/unwritten.rs"]
mod unwritten;
#[path = "live/whole_seconds.rs"]
mod whole_seconds;
#[path = "live/writers.rs"]
mod writers;
