//! XFS, with checksums and without.

use super::image::{Image, can_run, run};
use super::tree::{churn, scatter, tree_of};
use bale_fsimage::allocated::PartContent;
use bale_fsimage::recognize::Recognized;
use bale_fsimage::xfs::{ForkKind, Xfs};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

const PROGRAMS: [&str; 6] = [
    "mkfs.xfs",
    "mount",
    "umount",
    "xfs_repair",
    "xfs_db",
    "fsfreeze",
];

/// A number that xfs_db prints.
fn printed(image: &Image, command: &str) -> u64 {
    let words = ["-r", "-c", "sb 0", "-c", command, &image.name()];
    let text = String::from_utf8(run("xfs_db", &words).stdout).unwrap();
    let number = text.trim().rsplit(' ').next().unwrap();
    number.parse().unwrap_or_else(|_| panic!("{text}"))
}

fn is_as_good(mib: u64, mkfs: &str) {
    if !can_run(&PROGRAMS) {
        return;
    }
    let image = Image::make(mib, &format!("mkfs.xfs -q -f {mkfs}"));
    let made = image.copied();
    made.assert_believed("disk");
    run("xfs_repair", &["-n", "-f", &made.image.name()]);
    let expected = {
        let mounted = image.mount("noatime,nouuid");
        churn(&mounted.path, mib, 20);
        scatter(&mounted.path, 6000);
        mounted.tree()
    };
    let levels = (0..printed(&image, "p agcount")).map(|ag| {
        let words = [
            "-r",
            "-c",
            &format!("agf {ag}"),
            "-c",
            "p bnolevel",
            &image.name(),
        ];
        String::from_utf8(run("xfs_db", &words).stdout).unwrap()
    });
    assert!(
        levels
            .into_iter()
            .any(|level| level.trim() != "bnolevel = 1")
    );
    let copied = image.copied();
    copied.assert_believed("disk");
    let content = copied.part("disk").content;
    assert_eq!(content, PartContent::Content(Recognized::Xfs));
    let blocks = printed(&image, "p dblocks") - printed(&image, "p fdblocks");
    let expected_bytes = blocks * printed(&image, "p blocksize");
    // Blocks for the trees' own growth are counted as free.
    let room = printed(&image, "p agcount") * (128 << 10);
    let more = copied.bytes.checked_sub(expected_bytes).unwrap();
    assert!(more <= room, "{} instead of {expected_bytes}", copied.bytes);
    run("xfs_repair", &["-n", "-f", &copied.image.name()]);
    assert_eq!(copied.image.mount("ro,nouuid").tree(), expected);
    churn(&copied.image.mount("noatime,nouuid").path, 78, 3);
    run("xfs_repair", &["-n", "-f", &copied.image.name()]);
}

#[test]
fn of_an_xfs_everything_that_matters_is_read() {
    is_as_good(400, "-m crc=1");
    is_as_good(401, "-d agcount=4 -b size=1024 -i sparse=1");
}

#[test]
fn of_an_xfs_that_maps_backwards_everything_that_matters_is_read() {
    is_as_good(
        402,
        "-m crc=1,rmapbt=1,reflink=1,finobt=1,inobtcount=1,bigtime=1 -d agcount=6",
    );
}

/// Kernels of today do not mount version 4: mkfs copies files into it, and our reader compares.
#[test]
fn of_an_xfs_without_checksums_everything_that_matters_is_read() {
    if !can_run(&PROGRAMS) {
        return;
    }
    for mkfs in ["-n ftype=0", "-b size=512 -d agcount=5 -i size=256"] {
        let dir = tempfile::tempdir().unwrap();
        let files = dir.path().join("files");
        std::fs::create_dir(&files).unwrap();
        churn(&files, 11, 6);
        let mut list = "nothing\n0 0\nd--755 0 0\n".to_owned();
        for (number, path) in tree_of(&files).keys().enumerate() {
            let path = files.join(path);
            if path.is_file() && !path.is_symlink() {
                list += &format!("file{number} ---644 0 0 {}\n", path.display());
            }
        }
        let prototype = dir.path().join("prototype");
        std::fs::write(&prototype, list + "$\n").unwrap();
        let prototype = prototype.display();
        let words = format!("mkfs.xfs -q -f -m crc=0 {mkfs} -p {prototype}");
        let image = Image::make(400, &words);
        let copied = image.copied();
        copied.assert_believed("disk");
        assert!(copied.bytes < copied.part("disk").bytes / 2);
        run("xfs_repair", &["-n", "-f", &copied.image.name()]);
        let contents = contents_of(&image);
        assert!(contents.len() > 100);
        assert!(contents == contents_of(&copied.image));
    }
}

/// What all inodes hold, by number.
fn contents_of(image: &Image) -> BTreeMap<u64, Vec<u8>> {
    let source = image.file();
    let xfs = Xfs::open(&source).unwrap();
    let mut found = BTreeMap::new();
    for ag in 0..xfs.superblock().ag_count {
        for chunk in xfs.inode_chunks(&source, ag).unwrap() {
            let chunk = chunk.unwrap();
            let inode_bytes = xfs.superblock().inode_bytes;
            let Some((offset, len)) = chunk.device_range(inode_bytes) else {
                continue;
            };
            let mut bytes = vec![0; len];
            source.read_exact_at(&mut bytes, offset).unwrap();
            for (number, inode) in xfs.chunk_inodes(&chunk, &bytes) {
                let inode = inode.unwrap();
                let content: &mut Vec<u8> = found.entry(number).or_default();
                for extent in xfs.extents(&source, &inode, ForkKind::Data).unwrap() {
                    let extent = extent.unwrap();
                    let mut part = vec![0; extent.len as usize];
                    source
                        .read_exact_at(&mut part, extent.device_offset)
                        .unwrap();
                    content.extend(part);
                }
            }
        }
    }
    found
}

#[test]
fn of_an_xfs_that_is_frozen_everything_that_matters_is_read() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let image = Image::make(400, "mkfs.xfs -q -f");
    let mounted = image.mount("noatime,nouuid");
    churn(&mounted.path, 9, 5);
    let expected = mounted.tree();
    run("fsfreeze", &["-f", mounted.name()]);
    let copied = image.still_copy().copied();
    run("fsfreeze", &["-u", mounted.name()]);
    copied.assert_believed("disk");
    assert_eq!(copied.image.mount("noatime,nouuid").tree(), expected);
    run("xfs_repair", &["-n", "-f", &copied.image.name()]);
}

#[test]
fn an_xfs_that_is_in_use_is_read_whole() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let image = Image::make(400, "mkfs.xfs -q -f");
    let still = {
        let mounted = image.mount("noatime,nouuid");
        churn(&mounted.path, 9, 2);
        mounted.sync();
        image.still_copy()
    };
    let why = still.copied().why_whole("disk");
    assert!(why.contains("its log has work to do"), "{why}");
}
