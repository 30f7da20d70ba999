//! What a device holds, by the marks that its kind leaves at fixed places.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Kind, offset from the front, bytes. The first that fits names the kind, so what is most specific
/// comes first.
const MARKS: &[(&str, u64, &[u8])] = &[
    ("an ext2, ext3 or ext4 file system", 1080, b"\x53\xef"),
    ("an XFS file system", 0, b"XFSB"),
    ("a Btrfs file system", 65600, b"_BHRfS_M"),
    ("LUKS encryption", 0, b"LUKS\xba\xbe"),
    ("LUKS encryption", 16384, b"SKUL\xba\xbe"),
    ("an LVM volume", 0, b"LABELONE"),
    ("an LVM volume", 512, b"LABELONE"),
    ("an LVM volume", 1024, b"LABELONE"),
    ("an LVM volume", 1536, b"LABELONE"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("swap space", 4086, b"SWAP-SPACE"),
    ("swap space", 65526, b"SWAPSPACE2"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("a RAID member", 0, b"\xfc\x4e\x2b\xa9"),
    ("a RAID member", 4096, b"\xfc\x4e\x2b\xa9"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a FAT file system", 54, b"FAT"),
    ("a FAT file system", 82, b"FAT32"),
    ("an F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    ("an EROFS file system", 1024, b"\xe2\xe1\xf5\xe0"),
    ("a SquashFS file system", 0, b"hsqs"),
    ("a ReiserFS file system", 65588, b"ReIsEr"),
    ("a JFS file system", 32768, b"JFS1"),
    ("an ISO 9660 file system", 32769, b"CD001"),
    ("a bcache or bcachefs device", 4120, b"\xc6\x85\x73\xf6"),
    ("a ZFS pool member", 135168, b"\x0c\xb1\xba\x00"),
    ("a ZFS pool member", 131072, b"\x0c\xb1\xba\x00"),
    ("a Ceph store", 0, b"bluestore block device"),
    ("a partition table or boot sector", 510, b"\x55\xaa"),
];

/// Bytes at the front that hold all marks.
const FRONT_BYTES: u64 = 160 << 10;

/// The kind of what `device` of `len_bytes` holds, if it is known.
pub(super) fn find(device: &File, len_bytes: u64) -> io::Result<Option<&'static str>> {
    let mut front = vec![0; FRONT_BYTES.min(len_bytes) as usize];
    device.read_exact_at(&mut front, 0)?;
    let holds = |offset: u64, mark: &[u8]| {
        let rest = front.get(offset as usize..);
        rest.is_some_and(|rest| rest.starts_with(mark))
    };
    let found = MARKS.iter().find(|(_, offset, mark)| holds(*offset, mark));
    if let Some((kind, _, _)) = found {
        return Ok(Some(kind));
    }
    // Marks at the end: the second GPT, and RAID members of the two older forms.
    let ends = [
        (
            "a GPT partition table",
            len_bytes.checked_sub(512),
            &b"EFI PART"[..],
        ),
        (
            "a RAID member",
            (len_bytes & !0xffff).checked_sub(0x10000),
            b"\xfc\x4e\x2b\xa9",
        ),
        (
            "a RAID member",
            len_bytes.checked_sub(8192).map(|end| end & !0xfff),
            b"\xfc\x4e\x2b\xa9",
        ),
    ];
    for (kind, offset, mark) in ends {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..mark.len()];
        if let Some(offset) = offset {
            device.read_exact_at(bytes, offset)?;
            if bytes == mark {
                return Ok(Some(kind));
            }
        }
    }
    Ok(None)
}
