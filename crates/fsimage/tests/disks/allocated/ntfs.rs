//! NTFS, as ntfs-3g makes and fills it.

use super::image::{Image, can_run, run};
use super::tree::churn;
use bale_fsimage::allocated::PartContent;
use bale_fsimage::recognize::Recognized;
use std::os::unix::fs::FileExt;

const PROGRAMS: [&str; 4] = ["mkntfs", "ntfs-3g", "umount", "ntfsfix"];

fn is_as_good(mib: u64, mkntfs: &str) {
    if !can_run(&PROGRAMS) {
        return;
    }
    let image = Image::new(mib << 20);
    let name = image.name();
    let words: Vec<_> = ["-q", "-F", "-f"]
        .into_iter()
        .chain(mkntfs.split_whitespace())
        .collect();
    run("mkntfs", &[words.as_slice(), &[&name]].concat());
    {
        let mounted = image.mount_ntfs("noatime");
        churn(&mounted.path, mib, 12);
    }
    let (expected, allocated, clusters) = {
        let mounted = image.mount_ntfs("ro");
        let facts = rustix::fs::statvfs(&mounted.path).unwrap();
        let allocated = (facts.f_blocks - facts.f_bfree) * facts.f_frsize;
        (mounted.tree(), allocated, facts.f_blocks * facts.f_frsize)
    };
    assert!(expected.len() > 100);
    let copied = image.copied();
    copied.assert_believed("disk");
    let content = copied.part("disk").content;
    assert_eq!(content, PartContent::Content(Recognized::Ntfs));
    assert_eq!(
        copied.bytes,
        allocated + copied.part("disk").bytes - clusters
    );
    run("ntfsfix", &["-n", &copied.image.name()]);
    assert_eq!(copied.image.mount_ntfs("ro").tree(), expected);
}

#[test]
fn of_an_ntfs_everything_that_matters_is_read() {
    is_as_good(200, "");
    is_as_good(121, "-c 512");
    is_as_good(122, "-c 65536");
}

/// Sectors of 4 KiB have records as large.
#[test]
fn of_an_ntfs_with_large_sectors_everything_that_matters_is_read() {
    is_as_good(123, "-s 4096");
}

#[test]
fn an_ntfs_that_was_not_left_cleanly_is_read_whole() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let image = Image::make(100, "mkntfs -q -F -f");
    image.copied().assert_believed("disk");
    // The flag is in a value of the third record, and of its copy, behind the version.
    let file = image.file();
    let mut bytes = vec![0; 100 << 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let record = 4 * 4096 + 3 * 1024;
    assert_eq!(&bytes[record..record + 4], b"FILE");
    let version = bytes[record..record + 1024]
        .windows(4)
        .position(|found| found == [3, 1, 0, 0]);
    let flags = record + version.unwrap() + 2;
    file.write_all_at(&[1], flags as u64).unwrap();
    let why = image.copied().why_whole("disk");
    assert!(why.contains("did not leave it cleanly"), "{why}");
    file.write_all_at(&[0], flags as u64).unwrap();
    image.copied().assert_believed("disk");
    // A log that Windows left open.
    let log = bytes
        .windows(4096)
        .position(|found| found.iter().all(|byte| *byte == 0xff));
    let mut page = vec![0; 4096];
    page[..4].copy_from_slice(b"RSTR");
    file.write_all_at(&page, log.unwrap() as u64).unwrap();
    let why = image.copied().why_whole("disk");
    assert!(why.contains("did not leave it cleanly"), "{why}");
}
