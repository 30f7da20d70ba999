//! Trees deeper than any path, with few open files. One process, one limit: one test.

#[path = "source/walk_support.rs"]
mod walk_support;

use bale_format::entry::Kind;
use bale_source::read::{SmallReader, SmallState};
use bale_source::scan::ScanOptions;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use walk_support::{TempPlace, threads, walk};

const DEPTH: usize = 5_000;

/// Directories inside each other, each with a file and, here and there, a second subdirectory with
/// a file.
fn dig(place: &TempPlace) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = openat(CWD, &place.path, flags, Mode::empty()).unwrap();
    let create = OFlags::CREATE | OFlags::WRONLY;
    for level in 0..DEPTH {
        let name = format!("nested level {level:05}");
        rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
        if level % 50 == 0 {
            rustix::fs::mkdirat(&at, "z", Mode::RWXU).unwrap();
            let file = openat(&at, "z/file", create, Mode::RUSR).unwrap();
            rustix::io::write(&file, b"content").unwrap();
        }
        at = openat(&at, &name, flags, Mode::empty()).unwrap();
    }
    let file = openat(&at, "deepest", create, Mode::RUSR).unwrap();
    rustix::io::write(&file, b"content").unwrap();
}

#[test]
fn five_thousand_levels_are_walked_and_read_with_64_open_files() {
    let place = TempPlace::new();
    dig(&place);
    let old = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(64),
        maximum: old.maximum,
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let walked = walk(&[&place.path], ScanOptions::default());
    assert!(walked.problems.is_empty(), "{:?}", walked.problems);
    let deepest = walked
        .entries
        .iter()
        .find(|entry| &entry.name[..] == b"deepest");
    assert!(deepest.unwrap().parent.len() > 20 * 4096);
    let expected = DEPTH + 2 * DEPTH.div_ceil(50) + 1;
    assert_eq!(walked.below(&place.path).len(), expected);

    // Read when all is walked: every directory has to be opened again from far above.
    let reader = SmallReader::start(None);
    let mut files = 0;
    for (entry, source) in walked.entries.iter().zip(&walked.places) {
        if entry.kind == Kind::File && entry.parent.len() > place.path.as_os_str().len() - 1 {
            reader.push(source, entry.clone());
            files += 1;
        }
    }
    reader.close();
    assert_eq!(files, DEPTH.div_ceil(50) + 1);
    while let Some(file) = reader.pop() {
        assert_eq!(
            (file.state, &file.bytes[..]),
            (SmallState::Read, &b"content"[..])
        );
        assert!(file.problems.is_empty(), "{:?}", file.problems);
    }
    let alone = walk(&[&place.path], threads(0));
    assert!(alone.log(&[&place.path]) == walked.log(&[&place.path]));
    setrlimit(Resource::Nofile, old).unwrap();
    // Deeper than the standard library can name, and longer than its recursion likes.
    walk_support::run("rm", &["-rf", place.path.to_str().unwrap()]);
}
