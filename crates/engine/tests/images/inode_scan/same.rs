//! Inodes that are what they were for the last backup are not taken apart, and their rows are kept
//! where their paths are what they were; whatever became of the paths, the snapshot is that of a
//! walk.

use super::changes::gather;
use super::image::{Image as Ext4Image, can_run};
use super::snapshots::{Pair, settle};
use crate::xfs_image;
use bale_format::{Entry, ObjectId};
use bale_pipeline::filter::{Filter, Mark};
use bale_source::scan::inode::{
    DigestFile, EmitOptions, Gathered, IMAGE_DEVICE, ImageScanner, MountContext, ParentDigests,
};
use bale_source::scan::{ScanItem, Sources};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILES: u64 = 1200;
const DIRECTORIES: [&str; 4] = ["one", "two", "quiet", "deep/er"];
const SNAPSHOT: ObjectId = ObjectId([3; 32]);

fn populate(root: &Path) {
    for directory in DIRECTORIES {
        fs::create_dir_all(root.join(directory)).unwrap();
        for number in 0..FILES {
            let path = root.join(format!("{directory}/{number}"));
            fs::write(path, format!("{directory} {number}")).unwrap();
        }
        std::os::unix::fs::symlink("nowhere", root.join(directory).join("link")).unwrap();
        let linked = root.join(directory).join("linked");
        fs::hard_link(root.join(directory).join("5"), linked).unwrap();
    }
    let tag = "Signature: 8a477f597d28d172789f06886806bc55\n";
    fs::write(root.join("deep/CACHEDIR.TAG"), tag).unwrap();
}

/// Paths change in every way in which inodes do not, and some inodes in ways that show nowhere
/// else.
fn change(root: &Path) {
    let rename = |from: &str, to: &str| fs::rename(root.join(from), root.join(to)).unwrap();
    rename("one", "third");
    rename("two", "one");
    rename("third", "two");
    rename("quiet", "silent");
    rename("deep/er/7", "deep/er/8");
    rename("one/11", "moved");
    fs::write(root.join("one/12"), b"ONE 12").unwrap();
    fs::remove_file(root.join("two/13")).unwrap();
    fs::write(root.join("two/13"), b"two 13").unwrap();
    fs::write(root.join("two/new"), b"new").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(root.join("one/14"), mode).unwrap();
    fs::remove_file(root.join("silent/linked")).unwrap();
    fs::hard_link(root.join("silent/6"), root.join("one/to_six")).unwrap();
}

#[allow(
    clippy::type_complexity,
    reason = "mounts, lets somebody work there, unmounts"
)]
struct Case<'a> {
    image: &'a Path,
    mounted: &'a dyn Fn(&mut dyn FnMut(&Path)),
}

impl Case<'_> {
    fn assert_same(&self, pair: &Pair, which: &str) {
        settle(self.image);
        let walk = |pair: &Pair| {
            let mut taken = None;
            (self.mounted)(&mut |root| taken = Some(pair.walk(root)));
            taken.unwrap()
        };
        pair.assert_same(walk, self.image, which);
    }

    fn run(&self) {
        let mut pair = Pair::new();
        pair.force = false;
        (self.mounted)(&mut |root| populate(root));
        self.assert_same(&pair, "everything is new");
        (self.mounted)(&mut |root| change(root));
        self.assert_same(&pair, "changed");
        (self.mounted)(&mut |root| fs::write(root.join("another"), b"another").unwrap());
        self.assert_same(&pair, "a file is new");
        for (round, damage) in [
            damage_first_block,
            damage_head,
            tear_head,
            cut_short,
            make_old,
            empty,
            remove,
        ]
        .into_iter()
        .enumerate()
        {
            damage(&pair.cache());
            let new = format!("after damage {round}");
            (self.mounted)(&mut |root| fs::write(root.join(&new), b"new").unwrap());
            self.assert_same(&pair, &new);
        }
        let mut other = Pair::new();
        other.force = false;
        self.assert_same(&other, "another repository");
        let foreign = fs::read(only_file(&other.cache())).unwrap();
        damage(&pair.cache(), |bytes| bytes.clone_from(&foreign));
        for name in ["with another's", "with another's before"] {
            (self.mounted)(&mut |root| fs::write(root.join(name), b"new").unwrap());
            self.assert_same(&pair, name);
        }
        pair.filter.marks = vec![Mark::cachedir()];
        for name in ["with marks", "with marks again"] {
            (self.mounted)(&mut |root| fs::write(root.join(name), b"new").unwrap());
            self.assert_same(&pair, name);
        }
        pair.filter.larger_than_bytes = Some(7);
        for name in ["small", "small again"] {
            (self.mounted)(&mut |root| fs::write(root.join(name), b"new").unwrap());
            self.assert_same(&pair, name);
        }
    }
}

/// Does something to the bytes of the digest cache.
fn damage(cache: &Path, work: impl Fn(&mut Vec<u8>)) {
    let path = only_file(cache);
    let mut bytes = fs::read(&path).unwrap();
    assert!(bytes.len() > 9 * FILES as usize, "nothing is stored");
    work(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn only_file(cache: &Path) -> PathBuf {
    let mut files = fs::read_dir(cache).unwrap();
    let path = files.next().expect("something is stored").unwrap().path();
    assert!(files.next().is_none(), "one file");
    path
}

/// Bytes before the first block.
const HEAD_BYTES: usize = 104;

fn damage_first_block(cache: &Path) {
    damage(cache, |bytes| bytes[HEAD_BYTES + 100] ^= 1);
}

/// Another snapshot's, as it looks.
fn damage_head(cache: &Path) {
    damage(cache, |bytes| bytes[30] ^= 1);
}

/// Half of it was never written.
fn tear_head(cache: &Path) {
    damage(cache, |bytes| bytes[HEAD_BYTES / 2..HEAD_BYTES].fill(0));
}

fn cut_short(cache: &Path) {
    damage(cache, |bytes| bytes.truncate(bytes.len() / 2));
}

/// As the version before began.
fn make_old(cache: &Path) {
    damage(cache, |bytes| bytes[7] = b'2');
}

fn empty(cache: &Path) {
    damage(cache, Vec::clear);
}

fn remove(cache: &Path) {
    fs::remove_dir_all(cache).unwrap();
}

#[test]
fn rows_are_kept_where_their_paths_are_what_they_were_on_ext4() {
    let test = "rows_are_kept_where_their_paths_are_what_they_were_on_ext4";
    if !can_run(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let image = Ext4Image::make(64, "-t ext4 -b 1024 -N 12000");
    let case = Case {
        image: &image.path,
        mounted: &|work| work(&image.mount("noatime").path),
    };
    case.run();
}

#[test]
fn rows_are_kept_where_their_paths_are_what_they_were_on_xfs() {
    if !xfs_image::can_run(&["mkfs.xfs", "mount"]) {
        return;
    }
    let image = xfs_image::Image::make(320, "");
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

/// Everything of an image, by path; and how many of them came as what they were.
fn scan(image: &Path, known: Option<ParentDigests>) -> (Gathered, BTreeMap<Vec<u8>, Entry>, u64) {
    let gathered = gather(image, known);
    let (sources, _) = Sources::resolve(&[image]).unwrap();
    let context = MountContext {
        filesystem: Default::default(),
        device: IMAGE_DEVICE,
        image_path: Some(image.as_os_str().as_bytes()[1..].to_vec()),
        barrier: None,
        changed: Arc::default(),
        handles: None,
    };
    let emit_options = EmitOptions {
        left_out: bale_source::scan::LeftOut::default(),
        filter: Arc::new(Filter::default()),
        one_file_system: false,
        spill_directory: std::env::temp_dir(),
        memory: Default::default(),
    };
    let (mut entries, mut same_count) = (BTreeMap::new(), 0);
    for item in ImageScanner::start(&sources, &gathered, context, &emit_options).unwrap() {
        match item {
            ScanItem::Entries(batch) => {
                entries.extend(batch.entries.into_iter().map(|entry| (entry.path(), entry)));
            }
            ScanItem::Unchanged(same) => {
                for (name, inode) in same.children() {
                    let (mut entry, _) = same.stat_from_device(name, inode).unwrap().unwrap();
                    entry.filesystem = same.filesystem();
                    entries.insert(entry.path(), entry);
                    same_count += 1;
                }
            }
            ScanItem::Problem(problem) => panic!("{problem:?}"),
            _ => {}
        }
    }
    // Above the image others are at work.
    entries.retain(|path, _| path.starts_with(&image.as_os_str().as_bytes()[1..]));
    (gathered, entries, same_count)
}

#[test]
fn what_was_known_comes_with_its_name_and_what_changed_with_everything() {
    let test = "what_was_known_comes_with_its_name_and_what_changed_with_everything";
    if !can_run(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let image = Ext4Image::make(64, "-t ext4 -b 1024 -N 12000");
    populate(&image.mount("noatime").path);
    settle(&image.path);
    let (before, _, same) = scan(&image.path, None);
    assert_eq!(same, 0);
    let sealer: bale_source::scan::inode::Sealer = Arc::new(|bytes| {
        *blake3::keyed_hash(&[5; 32], bytes)
            .as_bytes()
            .first_chunk()
            .unwrap()
    });
    let dir = tempfile::tempdir().unwrap();
    let keep = |without: &[u64]| {
        let kept = tempfile::TempDir::new_in(&dir).unwrap().keep().join("kept");
        let file = DigestFile::new(kept, sealer.clone());
        let digests = Some(&**before.digests());
        file.write((&SNAPSHOT, &[0; 16]), None, digests, without)
            .unwrap();
        file.open(&SNAPSHOT).unwrap()
    };
    let names = DIRECTORIES.len() as u64 * (FILES + 2) + 1;
    let (_, all, same) = scan(&image.path, Some(keep(&[])));
    assert_eq!(same, names, "all but directories are what they were");
    let number = all
        .values()
        .find(|entry| entry.name == "321")
        .unwrap()
        .inode;
    let (_, _, same) = scan(&image.path, Some(keep(&[number])));
    assert_eq!(same, names - 1, "one is not to be relied on");

    change(&image.mount("noatime").path);
    settle(&image.path);
    let (_, known, same) = scan(&image.path, Some(keep(&[])));
    let (_, whole, _) = scan(&image.path, None);
    let differing = known
        .iter()
        .zip(&whole)
        .find(|(known, whole)| known != whole);
    assert!(differing.is_none(), "{differing:?}");
    assert_eq!(known.len(), whole.len());
    // Names: renamed over another (2), renamed, written, made anew, of another mode; of two names
    // one removed (2), one more.
    assert_eq!(same, names - 9);
}
