//! Times of last access, where they are asked for: those that a walk finds are those that are on
//! the device; a file that was only read is neither read nor counted as changed; and what a cache
//! knows with them is not taken for what it knows without.

use super::image::{Image, can_run, run};
use super::snapshots::{Pair, Taken, settle};
use crate::xfs_image;
use bale_format::Time;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Before 1970, behind 2038, and to the nanosecond.
const TIMES: [(&str, i64, u32); 6] = [
    ("old", -5, 999_999_999),
    ("late", 4_000_000_000, 1),
    ("exact", 1_000_000_000, 123_456_789),
    ("d", 1_000_000_001, 7),
    ("d/in it", 0, 0),
    ("link", 1_000_000_002, 9),
];

fn populate(root: &Path) {
    fs::create_dir(root.join("d")).unwrap();
    for name in ["old", "late", "exact", "d/in it", "d/read", "never read"] {
        fs::write(root.join(name), name).unwrap();
    }
    fs::hard_link(root.join("d/read"), root.join("d/read too")).unwrap();
    fs::write(root.join("d/large"), vec![7; 3 << 20]).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("link")).unwrap();
    for (name, seconds, nanos) in TIMES {
        let of = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: of(seconds, nanos.into()),
            last_modification: of(0, UTIME_OMIT as _),
        };
        let path = root.join(name);
        utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// What the kernel says of everything below.
fn atimes(root: &Path) -> BTreeMap<Vec<u8>, Time> {
    let mut found = BTreeMap::new();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let stat = path.symlink_metadata().unwrap();
        if stat.is_dir() {
            let listed = fs::read_dir(&path).unwrap();
            paths.extend(listed.map(|entry| entry.unwrap().path()));
        }
        let below = &path.as_os_str().as_bytes()[root.as_os_str().len()..];
        let time = Time::from((stat.atime(), stat.atime_nsec() as u32));
        found.insert(below.to_vec(), time);
    }
    found
}

fn atimes_of_rows(taken: &Taken) -> BTreeMap<Vec<u8>, Option<Time>> {
    let rows = taken.rows.iter();
    rows.map(|(path, row)| (path.clone(), row.atime.get()))
        .collect()
}

/// An image that can be mounted.
#[allow(
    clippy::type_complexity,
    reason = "mounts, lets somebody work there, unmounts"
)]
struct Case<'a> {
    image: &'a Path,
    mounted: &'a dyn Fn(&mut dyn FnMut(&Path)),
}

impl Case<'_> {
    /// A walk and an inode scan: the times that the kernel says, in both.
    fn assert_found(&self, pair: &Pair, which: &str) -> [Taken; 2] {
        settle(self.image);
        let (mut walked, mut seen) = (None, BTreeMap::new());
        (self.mounted)(&mut |root| {
            seen = atimes(root);
            walked = Some(pair.walk(root));
        });
        settle(self.image);
        let taken = [walked.unwrap(), pair.inode_scan(self.image)];
        for (taken, kind) in taken.iter().zip(["walked", "scanned"]) {
            assert!(taken.problems.is_empty(), "{which}, {kind}");
            let expected = seen.iter();
            let expected = expected.map(|(path, time)| {
                let time = pair.with_atime.then_some(*time);
                (path.clone(), time)
            });
            assert_eq!(atimes_of_rows(taken), expected.collect(), "{which}, {kind}");
            assert_eq!(taken.outcome.snapshot.atimes, pair.with_atime);
        }
        taken
    }

    /// The same of files that were not changed: nothing is read for it.
    fn assert_found_unread(&self, pair: &Pair, which: &str) {
        for (taken, kind) in self.assert_found(pair, which).iter().zip(["walk", "scan"]) {
            let counts = taken.outcome.snapshot.counts;
            let counted = (counts.files_new, counts.files_changed, counts.bytes_read);
            assert_eq!(counted, (0, 0, 0), "{which}, {kind}");
        }
    }

    fn run(&self) {
        let mut pair = Pair::new();
        pair.force = false;
        pair.with_atime = true;
        (self.mounted)(&mut |root| populate(root));
        self.assert_found(&pair, "everything is new");
        self.assert_found_unread(&pair, "nothing changed");
        (self.mounted)(&mut |root| {
            run(
                "mount",
                &["-o", "remount,strictatime", root.to_str().unwrap()],
            );
            for name in ["old", "d/read", "d/large"] {
                fs::read(root.join(name)).unwrap();
            }
            assert_eq!(fs::read_dir(root.join("d")).unwrap().count(), 4);
        });
        self.assert_found_unread(&pair, "some were read");
        self.assert_found_unread(&pair, "no more were read");
        pair.with_atime = false;
        self.assert_found_unread(&pair, "nobody asks any more");
        pair.with_atime = true;
        self.assert_found_unread(&pair, "somebody asks again");
        (self.mounted)(&mut |root| {
            run(
                "mount",
                &["-o", "remount,strictatime", root.to_str().unwrap()],
            );
            let before = atimes(root);
            // Directories were listed just now, and to read where a link leads is an access.
            let of_files = |mut times: BTreeMap<Vec<u8>, Time>| {
                let is_other =
                    |path: &[u8]| [&b""[..], b"/d", b"/link", b"/lost+found"].contains(&path);
                times.retain(|path, _| !is_other(path));
                times
            };
            pair.force = true;
            pair.walk(root);
            pair.force = false;
            assert_eq!(
                of_files(atimes(root)),
                of_files(before),
                "read by ourselves"
            );
        });
    }
}

#[test]
fn access_times_are_those_of_a_walk_and_cost_no_reading_on_ext4() {
    let test = "access_times_are_those_of_a_walk_and_cost_no_reading_on_ext4";
    if !can_run(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let image = Image::make(64, "-t ext4 -b 1024 -I 256 -N 1000");
    let case = Case {
        image: &image.path,
        mounted: &|work| work(&image.mount("noatime").path),
    };
    case.run();
}

#[test]
fn access_times_are_those_of_a_walk_and_cost_no_reading_on_xfs() {
    if !xfs_image::can_run(&["mkfs.xfs", "mount"]) {
        return;
    }
    let image = xfs_image::Image::make(320, "-m bigtime=1");
    let case = Case {
        image: &image.path(),
        mounted: &|work| {
            let mounted = image.mount();
            work(&mounted.path());
            mounted.unmount();
        },
    };
    case.run();
}
