//! Live file systems: barriers, what may be scanned from its device, opening by handle, under
//! writers. Needs root.

mod atimes;
mod backup;
mod barrier;
mod by_inode;
mod freezer_faults;
mod half_changed;
mod histories;
mod hooks;
mod image_mounted;
mod incomplete;
mod linked;
mod loads;
mod mounts;
mod moved;
mod parts;
mod same;
mod skipped;
mod snapshots;
mod target;
mod unwritten;
mod whole_seconds;
mod writers;
