//! What is on a disk beside ext4 and XFS, and what of it is to be read, against the programs that
//! make it: partitions, volumes of LVM2, NTFS, and what is allocated in any of them.

mod allocated;
mod lvm2;
#[path = "../mounting/mod.rs"]
mod mounting;
mod ntfs_reader;
mod partitions;
mod physical_volume;
mod tools;
