//! A second look at the inode tables names every inode that is not what it was, and no other; and
//! every directory that is too young to tell.

use super::image::{Image as Ext4Image, can_run};
use super::snapshots::settle;
use crate::xfs_image;
use bale_format::entry::Time;
use bale_source::image::{Image, OpenedAs};
use bale_source::scan::inode::{Gather, Gathered, ParentDigests};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

const FILES: u64 = 3000;
const LATE: Time = Time {
    seconds: i64::MAX,
    nanos: 0,
};

fn populate(root: &Path) {
    for directory in ["a", "b", "quiet"] {
        std::fs::create_dir(root.join(directory)).unwrap();
        for number in 0..FILES {
            std::fs::write(root.join(format!("{directory}/{number}")), b"content").unwrap();
        }
    }
}

/// Changes a little; tells the inodes that must be named.
fn change(root: &Path) -> BTreeSet<u64> {
    let inode = |path: &str| std::fs::metadata(root.join(path)).unwrap().ino();
    let mut changed = BTreeSet::from([inode("a"), inode("b"), inode("a/7"), inode("b/2990")]);
    changed.insert(inode("quiet/1500"));
    changed.insert(inode("b/11"));
    std::fs::write(root.join("a/7"), b"something else").unwrap();
    std::fs::remove_file(root.join("b/2990")).unwrap();
    std::fs::hard_link(root.join("b/11"), root.join("a/linked")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(root.join("quiet/1500"), mode).unwrap();
    // Read, and no more than that.
    std::fs::read(root.join("quiet/3")).unwrap();
    changed
}

/// Everything of an image that nobody writes to.
pub fn gather(image: &Path, known: Option<ParentDigests>) -> Gathered {
    let opened = Arc::new(Image::open(image, OpenedAs::Still).unwrap());
    let spill = std::env::temp_dir();
    let mut go_on = |_, _| true;
    let gathered = Gathered::gather(
        opened,
        &[7; 16],
        known,
        Path::new(""),
        bale_pipeline::spill::Spill {
            directory: &spill,
            memory: Default::default(),
        },
        &mut go_on,
        None,
    );
    match gathered.unwrap() {
        Gather::Whole(gathered) => *gathered,
        Gather::Unchanged(_) | Gather::Few(_) | Gather::Much => {
            unreachable!("nothing is known")
        }
    }
}

#[allow(
    clippy::type_complexity,
    reason = "mounts, lets somebody work there, unmounts"
)]
fn assert_named(image: &Path, mounted: &dyn Fn(&mut dyn FnMut(&Path))) {
    mounted(&mut |root| populate(root));
    settle(image);
    let before = gather(image, None);
    let named = |t0| before.changed_inodes(t0, None, 1000).unwrap().unwrap();
    assert_eq!(named(LATE), [] as [u64; 0], "nothing was changed");
    let mut expected = BTreeSet::new();
    let mut directories = BTreeSet::new();
    mounted(&mut |root| {
        expected = change(root);
        for directory in ["", "a", "b", "quiet"] {
            directories.insert(std::fs::metadata(root.join(directory)).unwrap().ino());
        }
    });
    settle(image);
    let found: BTreeSet<u64> = named(LATE).into_iter().collect();
    assert_eq!(found, expected);
    // To a barrier before everything no directory is settled, changed or not.
    let early = Time {
        seconds: 1,
        nanos: 0,
    };
    let found: BTreeSet<u64> = named(early).into_iter().collect();
    assert!(found.is_superset(&expected) && found.is_superset(&directories));
    assert_eq!(
        before.changed_inodes(LATE, None, 3).unwrap(),
        None,
        "too many"
    );
}

#[test]
fn a_second_look_names_what_changed_and_nothing_else_on_ext4() {
    let test = "a_second_look_names_what_changed_and_nothing_else_on_ext4";
    if !can_run(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let image = Ext4Image::make(64, "-t ext4 -b 1024 -N 12000");
    assert_named(&image.path, &|work| work(&image.mount("relatime").path));
}

#[test]
fn a_second_look_names_what_changed_and_nothing_else_on_xfs() {
    if !xfs_image::can_run(&["mkfs.xfs", "mount"]) {
        return;
    }
    let image = xfs_image::Image::make(320, "");
    assert_named(&image.path(), &|work| {
        let mounted = image.mount();
        work(&mounted.path());
        mounted.unmount();
    });
}

/// What the log does not name is not looked at: with nothing named, a change passes unseen.
#[test]
fn a_second_look_at_a_frozen_xfs_reads_what_its_log_names_and_finds_the_same() {
    if !xfs_image::can_run(&["mkfs.xfs", "mount", "fsfreeze"]) {
        return;
    }
    for mkfs in ["", "-l su=16k", "-l su=256k,size=64m", "-s size=4096"] {
        let image = xfs_image::Image::make(320, mkfs);
        let mounted = image.mount();
        populate(&mounted.path());
        mounted.unmount();
        settle(&image.path());
        let before = gather(&image.path(), None);
        let log = before.image().log().expect("XFS has one");
        let place = log.place().expect("a log that is at rest");
        let mounted = image.mount();
        let expected = change(&mounted.path());
        let quiet = mounted.path().join("quiet/1500");
        let quiet = std::fs::metadata(quiet).unwrap().ino();
        mounted.barrier();
        let logged = log.inodes_since(place);
        let logged = logged.unwrap_or_else(|| panic!("{mkfs}: the log does not say"));
        mounted.unmount();
        settle(&image.path());
        let found = |logged: Option<&[u64]>| -> BTreeSet<u64> {
            let found = before.changed_inodes(LATE, logged, 1000).unwrap().unwrap();
            found.into_iter().collect()
        };
        assert_eq!(found(None), expected, "{mkfs}");
        assert_eq!(found(Some(&logged)), expected, "{mkfs}");
        let unnamed = found(Some(&[]));
        assert!(unnamed.is_subset(&expected) && !unnamed.contains(&quiet));
    }
}
