//! Images of devices: what was backed up comes back byte for byte, whatever happened in between,
//! and what did not change costs nothing. And snapshots of the files in them (`inode_scan`).

mod allocated;
mod backup;
mod bench;
mod by_metadata;
mod by_metadata_xfs;
mod changes_only;
mod disturbed;
mod export;
mod exports;
mod few;
mod in_inodes;
mod inode_scan;
#[path = "../../../fsimage/tests/mounting/mod.rs"]
mod mounting;
mod neighbours;
mod qemu_disks;
mod qemu_files;
mod restore;
mod smaller_changes;
mod told;
mod tracked;
mod trackers;
mod trusting;
mod views;
mod views_kept;
#[path = "../../../fsimage/tests/xfs/xfs_image/mod.rs"]
mod xfs_image;
