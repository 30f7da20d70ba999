//! What is in a stretch of a disk, by the marks that file systems and others leave.
//!
//! A mark is no proof: who reads by it must be able to read what it stands for, and a stretch with
//! marks of two kinds is of neither.

mod foreign;

pub use foreign::foreign_mark;

use crate::source::ByteSource;
use std::fmt;
use std::io;

/// Something with a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognized {
    /// ext2, ext3 or ext4.
    Ext,
    Xfs,
    Ntfs,
    Btrfs,
    Fat,
    /// Swap space, with the size of the pages it is made of.
    Swap {
        page_bytes: u32,
    },
    /// A physical volume of LVM2.
    Lvm2,
    Luks,
    /// Marks of several kinds.
    Ambiguous,
    Unknown,
}

impl fmt::Display for Recognized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Recognized::Ext => "ext4",
            Recognized::Xfs => "XFS",
            Recognized::Ntfs => "NTFS",
            Recognized::Btrfs => "Btrfs",
            Recognized::Fat => "FAT",
            Recognized::Swap { .. } => "swap",
            Recognized::Lvm2 => "LVM2",
            Recognized::Luks => "LUKS",
            Recognized::Ambiguous => "ambiguous",
            Recognized::Unknown => "unknown",
        })
    }
}

/// Bytes that are looked at, from the front: to the mark of btrfs and the largest page.
const HEAD_BYTES: u64 = 68 << 10;

/// Sizes of pages on the machines that Linux runs on.
const PAGE_BYTES: [u32; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// Looks at a stretch, which lies within the source.
pub fn recognize(source: &dyn ByteSource, offset: u64, bytes: u64) -> io::Result<Recognized> {
    let mut head = vec![0; bytes.min(HEAD_BYTES) as usize];
    source.read_exact_at(offset, &mut head)?;
    Ok(recognize_head(&head))
}

/// The same of the first bytes.
pub fn recognize_head(head: &[u8]) -> Recognized {
    let has = |at: usize, mark: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(mark));
    let is_boot_sector = has(510, &[0x55, 0xaa]);
    let swap = PAGE_BYTES
        .into_iter()
        .find(|bytes| has(*bytes as usize - 10, b"SWAPSPACE2"));
    let is_lvm2 =
        (0..4).any(|sector| has(sector * 512, b"LABELONE") && has(sector * 512 + 24, b"LVM2 001"));
    let marks = [
        (has(1024 + 56, &[0x53, 0xef]), Recognized::Ext),
        (has(0, b"XFSB"), Recognized::Xfs),
        (is_boot_sector && has(3, b"NTFS    "), Recognized::Ntfs),
        (has((64 << 10) + 64, b"_BHRfS_M"), Recognized::Btrfs),
        (
            is_boot_sector && (has(54, b"FAT1") || has(82, b"FAT32") || has(3, b"EXFAT   ")),
            Recognized::Fat,
        ),
        (has(0, b"LUKS\xba\xbe"), Recognized::Luks),
        (is_lvm2, Recognized::Lvm2),
    ];
    let swap = swap.map(|page_bytes| Recognized::Swap { page_bytes });
    let marks = marks
        .into_iter()
        .filter(|(is_there, _)| *is_there)
        .map(|(_, what)| what);
    let mut found = marks.chain(swap);
    match (found.next(), found.next()) {
        (None, _) => Recognized::Unknown,
        (Some(what), None) => what,
        (Some(_), Some(_)) => Recognized::Ambiguous,
    }
}
