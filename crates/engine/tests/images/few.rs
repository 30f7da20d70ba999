//! Few changes of a file system are told alone, and the names of directories that are in doubt.

use crate::bench::{Images, NAME, run};
use crate::trusting::{Mounted, make_ext4};
use bale_format::ObjectId;
use bale_fsimage::ByteSource;
use bale_pipeline::monitor::Recorder;
use bale_source::image::Image;
use bale_source::scan::inode::{DigestFile, FewChanged, IsReplaced, NamesSum};
use bale_source::scan::{PartFound, PartScan, ScanOptions};
use bale_testkit::needs;
use bytes::Bytes;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SNAPSHOT: ObjectId = ObjectId([7; 32]);
const KEY: [u8; 16] = *b"sixteen bytes of";

struct Bench {
    images: Images,
    digests: DigestFile,
    /// What the digests are of.
    before: Arc<Vec<u8>>,
}

/// Counts what is read.
struct Counting(File, AtomicU64);

impl ByteSource for Counting {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
        ByteSource::read_exact_at(&self.0, offset, buf)
    }

    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
}

impl Bench {
    fn new(options: &[&str]) -> Bench {
        let images = Images::new();
        make_ext4(&images, options);
        let sealer = |bytes: &[u8]| *blake3::hash(bytes).as_bytes().first_chunk().unwrap();
        let digests = DigestFile::new(images.path("digests"), Arc::new(sealer));
        Bench {
            images,
            digests,
            before: Arc::default(),
        }
    }

    fn scan(&self) -> PartFound {
        self.scan_counting().0
    }

    /// And the bytes that it read.
    fn scan_counting(&self) -> (PartFound, u64) {
        let bytes = File::open(self.images.path(NAME)).unwrap();
        let bytes = Arc::new(Counting(bytes, AtomicU64::new(0)));
        let image = Arc::new(Image::of_part(bytes.clone()).unwrap());
        let (before, now) = (self.before.clone(), self.images.bytes());
        let is_replaced: IsReplaced = Arc::new(move |range| {
            let end = range.end.min(now.len() as u64) as usize;
            let range = (range.start as usize).min(end)..end;
            before.get(range.clone()) != now.get(range)
        });
        let digests = self.digests.clone();
        let open = move || {
            let of_parent = digests.open(&SNAPSHOT)?;
            Some(of_parent.but_for(is_replaced.clone()).noting_changes())
        };
        let options = ScanOptions {
            inode_key: KEY,
            parent_digests: Some(Arc::new(open)),
            ..ScanOptions::default()
        };
        let name = Bytes::from_static(b"disk");
        let found = PartScan::start(&image, &name, options, &Recorder::default()).unwrap();
        (found, bytes.1.load(Ordering::Relaxed))
    }

    /// The next scan compares with what is there now.
    fn remember(&mut self) {
        let found = self.scan();
        let digests = match &found {
            PartFound::Whole(scan) => &scan.digests,
            PartFound::Few(few) => few.changed.digests(),
        };
        let written = (self.digests).write((&SNAPSHOT, &KEY), None, Some(digests), &[]);
        written.unwrap();
        self.before = Arc::new(self.images.bytes());
    }

    /// Changes something, and tells of `small` after it: its inode, and its names.
    fn change(&self, change: &str) -> (u64, Vec<(u64, Vec<u8>)>) {
        let mounted = Mounted::of(&self.images);
        let shell = format!("set -e; cd {}; {change}", mounted.0.display());
        run("bash", &["-c", &shell]);
        names_of(&mounted.0.join("small"))
    }
}

fn names_of(directory: &Path) -> (u64, Vec<(u64, Vec<u8>)>) {
    let names = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let names = names.map(|name| {
        let inode = name.metadata().unwrap().ino();
        (inode, name.file_name().as_bytes().to_vec())
    });
    let inode = fs::metadata(directory).unwrap().ino();
    (inode, names.collect())
}

fn sum(few: &FewChanged, names: &[(u64, Vec<u8>)]) -> NamesSum {
    let mut sum = NamesSum::default();
    for (inode, name) in names {
        few.add_name(&mut sum, *inode, name);
    }
    sum
}

#[test]
fn what_changed_is_told_alone_where_no_name_did() {
    if !["mkfs.ext4", "mount"].iter().all(|tool| needs::have(tool)) {
        return needs::skipped("mkfs.ext4 or mount is missing");
    }
    let mut bench = Bench::new(&[]);
    assert!(
        matches!(bench.scan(), PartFound::Whole(_)),
        "nothing is known"
    );
    // Mounting changes the root's inode at most.
    bench.change(":");
    bench.remember();
    let in_place = "printf x | dd of=small/7 bs=1 conv=notrunc status=none";
    let (small, names) = bench.change(in_place);
    let PartFound::Few(few) = bench.scan() else {
        panic!("one file changed in its place");
    };
    let (few, file) = (
        few.changed,
        names.iter().find(|name| name.1 == b"7").unwrap(),
    );
    assert_eq!((few.count(), few.position(file.0)), (1, Some(0)));
    assert!(!few.is_directory(0) && few.is_named(0, 1) && !few.is_named(0, 2));
    let (directory, name) = (Bytes::from_static(b"disk/small"), Bytes::from_static(b"7"));
    let (row, _) = few.entry(0, &directory, &name).unwrap();
    assert_eq!((row.inode, row.size), (file.0, 1 + 7 * 41));

    // A directory that changed is in doubt, and its names are not.
    let (_, names) = bench.change("chmod 711 small; mv small/9 other; mv other small/9");
    let PartFound::Few(few) = bench.scan() else {
        panic!("a directory has its names again");
    };
    let few = few.changed;
    let place = few.position(small).expect("it changed");
    assert!(few.is_directory(place));
    assert!(few.has_names(small, sum(&few, &names)));
    assert!(!few.has_names(small, sum(&few, &names[1..])));
    let mut exchanged = names.clone();
    (exchanged[0].0, exchanged[1].0) = (names[1].0, names[0].0);
    assert!(!few.has_names(small, sum(&few, &exchanged)));
    assert!(!few.has_names(file.0, NamesSum::default()), "no directory");
}

#[test]
fn tables_of_which_nothing_changed_are_not_read() {
    if !["mkfs.ext4", "mount"].iter().all(|tool| needs::have(tool)) {
        return needs::skipped("mkfs.ext4 or mount is missing");
    }
    let features = "^flex_bg,^resize_inode";
    let options = [
        "-b", "1024", "-g", "2048", "-I", "1024", "-i", "32768", "-O", features,
    ];
    let mut bench = Bench::new(&options);
    let (_, mut names) = bench.change(":");
    let (_, first) = bench.scan_counting();
    bench.remember();
    // The other names are in the table before that of this one.
    names.sort();
    let (_, last) = names.pop().unwrap();
    let last = String::from_utf8(last).unwrap();
    for round in 0..3 {
        bench.change(&format!("printf {round} >> small/{last}"));
        let (found, read) = bench.scan_counting();
        let PartFound::Few(few) = found else {
            panic!("one file changed in its place");
        };
        assert_eq!(few.changed.count(), 1, "round {round}");
        // Of 314 inodes of 1 KiB; others are near to what changed.
        assert!(
            read + (64 << 10) < first,
            "round {round}: {read} of {first} bytes"
        );
        // What was not read is known the next time, too.
        bench.remember();
    }
}

#[test]
fn what_came_and_went_is_told_with_the_names_of_its_directory() {
    if !["mkfs.ext4", "mount"].iter().all(|tool| needs::have(tool)) {
        return needs::skipped("mkfs.ext4 or mount is missing");
    }
    let mut bench = Bench::new(&[]);
    let (small, before) = bench.change(":");
    bench.remember();
    let inode_of = |names: &[(u64, Vec<u8>)], wanted: &[u8]| {
        let found = names.iter().find(|(_, name)| name == wanted);
        found.expect("it is there").0
    };
    let gone = inode_of(&before, b"3");
    // What is made first does not take the number of what goes.
    let (_, mut names) = bench.change("echo > small/new; mkdir d; sync; rm small/3");
    let PartFound::Few(few) = bench.scan() else {
        panic!("a file and a directory came, a file went");
    };
    let few = few.changed;
    let new = inode_of(&names, b"new");
    assert!(few.is_gone(gone) && few.position(gone).is_none());
    assert!(few.position(new).is_some() && !few.is_gone(new));
    names.sort_by(|one, other| one.1.cmp(&other.1));
    let held = few.names(small).expect("they are few").iter();
    let held: Vec<(u64, Vec<u8>)> = held.map(|one| (one.inode, one.name.to_vec())).collect();
    assert_eq!(held, names);
    assert!(few.has_names(small, sum(&few, &names)));
    assert_eq!(few.names(new), None, "no directory");
}
