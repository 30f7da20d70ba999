//! The inode scan against the walk: an image and its mount give the same snapshot, whatever the
//! file system's features and history; and of an image that is damaged nothing is missing in
//! silence. Needs root, loop devices, e2fsprogs, xfsprogs.

#[path = "inode_scan/atimes.rs"]
mod atimes;
#[path = "inode_scan/changes.rs"]
mod changes;
#[path = "inode_scan/damage.rs"]
mod damage;
#[path = "inode_scan/early.rs"]
mod early;
#[path = "inode_scan/ext4_features.rs"]
mod ext4_features;
#[path = "inode_scan/filters.rs"]
mod filters;
#[path = "../../fsimage/tests/ext4_oracle/fixture.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod fixture;
#[path = "inode_scan/histories.rs"]
mod histories;
#[path = "../../fsimage/tests/ext4_oracle/image.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod image;
#[path = "inode_scan/links.rs"]
mod links;
#[path = "inode_scan/logs.rs"]
mod logs;
#[path = "../../fsimage/tests/mounting/mod.rs"]
mod mounting;
#[path = "inode_scan/neighbours.rs"]
mod neighbours;
#[path = "inode_scan/same.rs"]
mod same;
#[path = "inode_scan/snapshots.rs"]
mod snapshots;
#[path = "inode_scan/unchanged.rs"]
mod unchanged;
#[path = "inode_scan/windows.rs"]
mod windows;
#[path = "inode_scan/xfs_features.rs"]
mod xfs_features;
#[path = "../../fsimage/tests/xfs_image/mod.rs"]
mod xfs_image;
#[path = "inode_scan/xfs_told.rs"]
mod xfs_told;
