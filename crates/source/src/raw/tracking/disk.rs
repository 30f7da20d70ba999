//! What the kernel says of a block device: where on which disk it is, and whether writes to it can
//! be seen at all. From `/sys`, whose root is handed in.

use super::program::SECTOR_BYTES;
use rustix::fs::{Dev, major, minor};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A device, and the disk that it is, or is a partition of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiskFacts {
    pub(super) device: (u32, u32),
    pub(super) disk: (u32, u32),
    /// Never that of another disk, or of another medium in this one.
    pub(super) sequence: u64,
    /// Of the disk.
    pub(super) sectors: Range<u64>,
    /// Of the disk, in `/sys`.
    directory: PathBuf,
}

impl DiskFacts {
    pub(super) fn of(sys: &Path, device: Dev) -> io::Result<DiskFacts> {
        let device = (major(device), minor(device));
        let directory = fs::canonicalize(sys.join(format!("dev/block/{}:{}", device.0, device.1)))?;
        let is_partition = directory.join("partition").exists();
        let first = match is_partition {
            true => number(&directory.join("start"))?,
            false => 0,
        };
        // In sectors of 512 bytes, whatever those of the disk are.
        let sectors = number(&directory.join("size"))?;
        let end = first.checked_add(sectors).filter(|_| sectors > 0);
        let end = end.ok_or_else(|| io::Error::other("it has no bytes"))?;
        let disk = match (is_partition, directory.parent()) {
            (true, Some(parent)) => parent.to_owned(),
            _ => directory,
        };
        Ok(DiskFacts {
            device,
            disk: device_numbers(&disk.join("dev"))?,
            sequence: number(&disk.join("diskseq"))?,
            sectors: first..end,
            directory: disk,
        })
    }

    /// Why writes to it cannot be seen by the programs, if that is so.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        let queue = |name: &str| fs::read_to_string(self.directory.join("queue").join(name));
        let says = |name: &str, value: &str| queue(name).is_ok_and(|text| text.trim() == value);
        if !self.directory.join("mq").exists() {
            return Some(
                "it is made of other devices (LVM, dm-crypt, RAID) or of memory, and when its \
                 writes end cannot be seen: track the disk that it is on, and back that up",
            );
        }
        if says("dax", "1") {
            return Some("programs write to its memory directly (DAX), which nobody sees");
        }
        if queue("zoned").is_ok_and(|text| text.trim() != "none") {
            return Some("it has zones, whose resets are not tracked");
        }
        None
    }

    pub(super) fn len_bytes(&self) -> u64 {
        (self.sectors.end - self.sectors.start) * SECTOR_BYTES
    }

    /// Numbers of the devices that are a part of this disk, itself among them.
    pub(super) fn parts(&self) -> Vec<(u32, u32)> {
        let mut found = vec![self.disk];
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        for entry in entries.flatten() {
            let path = entry.path();
            if path.join("partition").exists()
                && let Ok(numbers) = device_numbers(&path.join("dev"))
            {
                found.push(numbers);
            }
        }
        found
    }
}

fn number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path).map_err(|error| at(path, error))?;
    let parsed = text.trim().parse();
    parsed.map_err(|_| at(path, io::ErrorKind::InvalidData.into()))
}

fn device_numbers(path: &Path) -> io::Result<(u32, u32)> {
    let text = fs::read_to_string(path).map_err(|error| at(path, error))?;
    let parsed = text.trim().split_once(':');
    let parsed = parsed.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parsed.ok_or_else(|| at(path, io::ErrorKind::InvalidData.into()))
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel lays it out: a disk with a partition.
    fn sys(extra: &[(&str, &str)]) -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let files = [
            ("block/sda/dev", "8:0\n"),
            ("block/sda/size", "8192\n"),
            ("block/sda/diskseq", "7\n"),
            ("block/sda/mq/0/cpu_list", "0\n"),
            ("block/sda/queue/dax", "0\n"),
            ("block/sda/queue/zoned", "none\n"),
            ("block/sda/sda1/dev", "8:1\n"),
            ("block/sda/sda1/partition", "1\n"),
            ("block/sda/sda1/start", "2048\n"),
            ("block/sda/sda1/size", "4096\n"),
        ];
        for (path, text) in files.iter().chain(extra) {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let numbers = sys.path().join("dev/block");
        fs::create_dir_all(&numbers).unwrap();
        std::os::unix::fs::symlink("../../block/sda", numbers.join("8:0")).unwrap();
        std::os::unix::fs::symlink("../../block/sda/sda1", numbers.join("8:1")).unwrap();
        sys
    }

    fn facts(sys: &tempfile::TempDir, minor: u32) -> io::Result<DiskFacts> {
        DiskFacts::of(sys.path(), rustix::fs::makedev(8, minor))
    }

    #[test]
    fn a_partition_is_a_range_of_its_disk() {
        let sys = sys(&[]);
        let disk = facts(&sys, 0).unwrap();
        assert_eq!((disk.disk, disk.sectors.clone()), ((8, 0), 0..8192));
        assert_eq!(disk.parts(), [(8, 0), (8, 1)]);
        let part = facts(&sys, 1).unwrap();
        assert_eq!((part.device, part.disk), ((8, 1), (8, 0)));
        assert_eq!((part.sectors.clone(), part.sequence), (2048..6144, 7));
        assert_eq!(part.len_bytes(), 4096 * 512);
        assert_eq!((disk.refusal(), part.refusal()), (None, None));
    }

    #[test]
    fn a_disk_whose_writes_cannot_be_seen_is_refused() {
        for extra in [
            ("block/sda/queue/dax", "1\n"),
            ("block/sda/queue/zoned", "host-managed\n"),
        ] {
            let sys = sys(&[extra]);
            assert!(facts(&sys, 1).unwrap().refusal().is_some(), "{extra:?}");
        }
        let sys = sys(&[]);
        fs::remove_dir_all(sys.path().join("block/sda/mq")).unwrap();
        assert!(facts(&sys, 0).unwrap().refusal().is_some());
        fs::write(sys.path().join("block/sda/size"), "0\n").unwrap();
        assert!(facts(&sys, 0).is_err());
        fs::remove_file(sys.path().join("block/sda/diskseq")).unwrap();
        assert!(facts(&sys, 1).is_err());
    }
}
