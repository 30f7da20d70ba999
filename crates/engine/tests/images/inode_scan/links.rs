//! A link farm: its files are read once, with their neighbours on the device, whatever names lead
//! to them.

use super::image::{Image, can_run, run};
use super::snapshots::{Pair, assert_same_rows};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const DIRECTORIES: usize = 40;
const FILES_OF_A_DIRECTORY: usize = 60;
const SNAPSHOTS: usize = 6;

fn name(directory: usize, file: usize) -> String {
    format!("directory-{directory}/file-{file}")
}

/// Files that were made round-robin in many directories, each directory's far from one another on
/// the device; further snapshots link them. Of some only a later name is in the source.
fn populate(root: &Path) {
    for snapshot in 0..SNAPSHOTS {
        for directory in 0..DIRECTORIES {
            let directory = format!("source/{snapshot}/directory-{directory}");
            fs::create_dir_all(root.join(directory)).unwrap();
        }
    }
    let first = root.join("source/0");
    for file in 0..FILES_OF_A_DIRECTORY {
        for directory in 0..DIRECTORIES {
            let size = 300 + (directory * 37 + file * 101) % 1500;
            let byte = (directory * FILES_OF_A_DIRECTORY + file) as u8;
            let content = [&vec![byte; size][..], &size.to_le_bytes()].concat();
            fs::write(first.join(name(directory, file)), content).unwrap();
        }
    }
    // What is not read with its neighbours has several names, too.
    fs::write(first.join("empty"), b"").unwrap();
    fs::write(first.join("large"), vec![7; 700 << 10]).unwrap();
    let sparse = fs::File::create(first.join("sparse")).unwrap();
    sparse.set_len(100 << 10).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 50 << 10).unwrap();
    let others = ["empty", "large", "sparse"].map(str::to_owned);
    for snapshot in 1..SNAPSHOTS {
        let snapshot = root.join(format!("source/{snapshot}"));
        for directory in 0..DIRECTORIES {
            for file in (0..FILES_OF_A_DIRECTORY).filter(|file| file % 10 != directory % 10) {
                let name = name(directory, file);
                fs::hard_link(first.join(&name), snapshot.join(name)).unwrap();
            }
        }
        for name in &others {
            fs::hard_link(first.join(name), snapshot.join(name)).unwrap();
        }
    }
    for directory in 0..DIRECTORIES {
        let name = name(directory, 1);
        let elsewhere = root.join(format!("elsewhere-{directory}"));
        fs::rename(first.join(name), elsewhere).unwrap();
    }
}

/// A loop device that nothing writes to.
struct Loop(PathBuf);

impl Loop {
    fn new(image: &Image) -> Loop {
        let arguments = ["--find", "--show", "--read-only", image.name()];
        let device = run("losetup", &arguments).stdout;
        Loop(PathBuf::from(String::from_utf8(device).unwrap().trim()))
    }

    /// Reads that the device has served.
    fn reads(&self) -> u64 {
        let name = self.0.file_name().unwrap();
        let stat = Path::new("/sys/block").join(name).join("stat");
        let stat = fs::read_to_string(stat).unwrap();
        stat.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[test]
fn files_with_several_names_are_read_once_and_with_their_neighbours() {
    let test = "files_with_several_names_are_read_once_and_with_their_neighbours";
    if !can_run(test, &["mke2fs", "mount", "losetup"]) {
        return;
    }
    let image = Image::make(64, "-t ext4 -b 1024 -O ^inline_data");
    let mount = image.mount("");
    populate(&mount.path);
    let pair = Pair::new();
    let walked = pair.walk(&mount.path);
    assert!(walked.problems.is_empty(), "{:?}", walked.problems);
    drop(mount);
    let device = Loop::new(&image);
    let before = device.reads();
    let scanned = pair.take(&device.0, bale_source::scan::ScanMode::Inode);
    let scanned = scanned.unwrap();
    let reads = device.reads() - before;
    assert!(scanned.problems.is_empty(), "{:?}", scanned.problems);
    assert_same_rows(&walked.rows, &scanned.rows, "a link farm");
    let totals = scanned.outcome.snapshot.totals;
    assert_eq!(walked.outcome.snapshot.totals.bytes, totals.bytes);
    let files = (DIRECTORIES * FILES_OF_A_DIRECTORY) as u64;
    assert!(totals.hard_links >= files * (SNAPSHOTS as u64 - 2));
    assert!(
        reads < files / 20,
        "{reads} reads for {files} files of {} names",
        totals.files
    );
}
