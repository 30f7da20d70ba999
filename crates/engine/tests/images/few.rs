//! Few changes of a file system are told alone where all names are what they were.

use crate::bench::{Images, NAME, run};
use crate::trusting::{Mounted, make_ext4};
use bale_format::ObjectId;
use bale_pipeline::monitor::Recorder;
use bale_source::image::Image;
use bale_source::scan::inode::{DigestFile, FewChanged, NamesSum};
use bale_source::scan::{PartFound, PartScan, ScanOptions};
use bale_testkit::needs;
use bytes::Bytes;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

const SNAPSHOT: ObjectId = ObjectId([7; 32]);
const KEY: [u8; 16] = *b"sixteen bytes of";

struct Bench {
    images: Images,
    digests: DigestFile,
}

impl Bench {
    fn new() -> Bench {
        let images = Images::new();
        make_ext4(&images, &[]);
        let sealer = |bytes: &[u8]| *blake3::hash(bytes).as_bytes().first_chunk().unwrap();
        let digests = DigestFile::new(images.path("digests"), Arc::new(sealer));
        Bench { images, digests }
    }

    fn scan(&self) -> PartFound {
        let bytes = File::open(self.images.path(NAME)).unwrap();
        let image = Arc::new(Image::of_part(Arc::new(bytes)).unwrap());
        let digests = self.digests.clone();
        let open = move || {
            let of_parent = digests.open(&SNAPSHOT)?;
            Some(of_parent.but_for(Arc::new(|_| false)).noting_changes())
        };
        let options = ScanOptions {
            inode_key: KEY,
            parent_digests: Some(Arc::new(open)),
            ..ScanOptions::default()
        };
        let name = Bytes::from_static(b"disk");
        PartScan::start(&image, &name, options, &Recorder::default()).unwrap()
    }

    /// The next scan compares with what is there now.
    fn remember(&self) {
        let found = self.scan();
        let digests = match &found {
            PartFound::Whole(scan) => &scan.digests,
            PartFound::Few(few) => few.changed.digests(),
        };
        let written = (self.digests).write((&SNAPSHOT, &KEY), None, Some(digests), &[]);
        written.unwrap();
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
    let bench = Bench::new();
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

    for change in [
        "echo > small/new",
        "rm small/new small/3",
        "mkdir d",
        "rmdir d",
    ] {
        bench.remember();
        bench.change(change);
        assert!(matches!(bench.scan(), PartFound::Whole(_)), "{change}");
    }
}
