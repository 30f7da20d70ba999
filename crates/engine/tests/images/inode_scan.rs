//! The inode scan against the walk: an image and its mount give the same snapshot, whatever the
//! file system's features and history; and of an image that is damaged nothing is missing in
//! silence. Needs root, loop devices, e2fsprogs, xfsprogs.

mod atimes;
mod changes;
mod damage;
mod early;
mod ext4_features;
mod filters;
#[path = "../../../fsimage/tests/ext4/fixture.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod fixture;
mod histories;
#[path = "../../../fsimage/tests/ext4/image.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod image;
mod links;
mod logs;
mod neighbours;
mod same;
mod snapshots;
mod unchanged;
mod windows;
mod xfs_features;
mod xfs_told;
