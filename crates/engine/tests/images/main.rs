//! Images of devices: what was backed up comes back byte for byte, whatever happened in between,
//! and what did not change costs nothing.

mod allocated;
mod backup;
mod bench;
mod by_metadata;
mod changes_only;
mod disturbed;
mod export;
mod exports;
mod neighbours;
mod qemu_disks;
mod qemu_files;
mod restore;
mod smaller_changes;
mod told;
mod tracked;
mod trackers;
mod views;
