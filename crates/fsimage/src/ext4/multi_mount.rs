//! Protection against several mounts (`mmp`): a block that whoever has the file system mounted, on
//! this machine or on another one that shares the device, writes every few seconds.
//!
//! Facts: Documentation/filesystems/ext4/mmp.rst of the kernel's sources.

use super::Superblock;
use super::bytes::{u16_at, u32_at};
use super::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use crate::ByteSource;
use std::io;
use std::time::Duration;

const MAGIC: u32 = 0x004d_4d50;
/// Nobody has it mounted.
const SEQUENCE_CLEAN: u32 = 0xff4d_4d50;
/// e2fsck works on it.
const SEQUENCE_FSCK: u32 = 0xe24d_4d50;
/// Bytes of the block that say something.
const MULTI_MOUNT_BYTES: usize = 256;
/// Seconds that a mount waits at least between two writes, and longest wait of those who look.
const INTERVAL_SECONDS_MIN: u16 = 5;
const EXTRA_SECONDS_MAX: u16 = 60;

/// What the block said at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MultiMount {
    /// It was unmounted.
    Clean,
    /// It is being checked or repaired.
    Checked,
    /// It is mounted somewhere, or its machine ended without unmounting it: which of the two shows
    /// whether the sequence is another one after the wait.
    Mounted { sequence: u32, wait: Duration },
    /// There is no such block where it should be.
    Damaged,
}

impl MultiMount {
    fn parse(bytes: &[u8; MULTI_MOUNT_BYTES], superblock: &Superblock) -> MultiMount {
        if u32_at(bytes, 0) != MAGIC {
            return MultiMount::Damaged;
        }
        // Behind magic, sequence, time, node and device name.
        let check_seconds = u16_at(bytes, 112);
        let seconds = check_seconds
            .max(superblock.multi_mount_seconds)
            .max(INTERVAL_SECONDS_MIN);
        let wait = (seconds.saturating_mul(2).saturating_add(1))
            .min(seconds.saturating_add(EXTRA_SECONDS_MAX));
        match u32_at(bytes, 4) {
            SEQUENCE_CLEAN => MultiMount::Clean,
            SEQUENCE_FSCK => MultiMount::Checked,
            sequence => MultiMount::Mounted {
                sequence,
                wait: Duration::from_secs(wait.into()),
            },
        }
    }
}

impl Superblock {
    /// Who uses the file system where nothing on this machine does, as text that follows the path
    /// of the device: a machine that shares it, or e2fsck. Waits, for up to two minutes, where that
    /// shows only by what is written meanwhile.
    ///
    /// # Errors
    /// What reading says. `device` must read past all caches.
    pub fn user_elsewhere(&self, device: &dyn ByteSource) -> io::Result<Option<&'static str>> {
        let Some(offset) = self.multi_mount_offset() else {
            return Ok(None);
        };
        let look = || -> io::Result<MultiMount> {
            let mut block = [0; MULTI_MOUNT_BYTES];
            device.read_exact_at(offset, &mut block)?;
            Ok(MultiMount::parse(&block, self))
        };
        Ok(match look()? {
            MultiMount::Clean => None,
            MultiMount::Checked => Some("is being checked by e2fsck"),
            MultiMount::Damaged => Some("has a damaged block of who has it mounted"),
            before @ MultiMount::Mounted { wait, .. } => {
                std::thread::sleep(wait);
                let moved = "is mounted, by another machine that shares the device";
                (look()? != before).then_some(moved)
            }
        })
    }
}

/// As [`Superblock::user_elsewhere`], of a device that need not hold an ext4 file system.
pub fn user_elsewhere(device: &dyn ByteSource) -> io::Result<Option<&'static str>> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    match device.read_exact_at(SUPERBLOCK_OFFSET, &mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    match Superblock::parse(&bytes) {
        Ok(superblock) => superblock.user_elsewhere(device),
        Err(_) => Ok(None),
    }
}
