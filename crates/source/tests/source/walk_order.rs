//! The stream: order, completeness, independence of threads, sources.

use crate::walk_support::{TempPlace, threads, walk, without_slash};
use bale_format::entry::{Kind, compare_keys};
use bale_source::scan::{BATCH_ENTRIES_MAX, NoteKind, ScanOptions, Scanner, Sources, parse_list};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Small generator of the same numbers every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// Names that sort differently as text, as paths and as bytes.
fn odd_name(dice: &mut Dice) -> Vec<u8> {
    let parts: [&[u8]; 10] = [
        b"a", b"b", b"-", b".", b" ", b"\n", b"\x01", b"\xff", b"~", b"0",
    ];
    let mut name = Vec::new();
    for _ in 0..=dice.below(5) {
        name.extend_from_slice(parts[dice.below(10) as usize]);
    }
    if name.iter().all(|byte| *byte == b'.') {
        name.push(b'x');
    }
    name
}

fn build(dice: &mut Dice, at: &Path, depth: u32) {
    for _ in 0..dice.below(12) {
        let path = at.join(OsStr::from_bytes(&odd_name(dice)));
        if depth > 0 && dice.below(3) == 0 {
            if std::fs::create_dir(&path).is_ok() {
                build(dice, &path, depth - 1);
            }
        } else {
            let _ = std::fs::File::create_new(&path);
        }
    }
}

/// All paths below a directory by the simplest walk there is, in the catalog's order.
fn model(at: &Path) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    let mut stack = vec![at.to_path_buf()];
    while let Some(directory) = stack.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                stack.push(entry.path());
            }
            paths.push(entry.path());
        }
    }
    sort_as_catalog(&mut paths);
    paths.iter().map(|path| without_slash(path)).collect()
}

fn sort_as_catalog(paths: &mut [PathBuf]) {
    let key = |path: &PathBuf| {
        let path = without_slash(path);
        let (parent, name) = bale_format::entry::split(&path);
        (parent.to_vec(), name.to_vec())
    };
    paths.sort_by(|a, b| {
        let ((parent_a, name_a), (parent_b, name_b)) = (key(a), key(b));
        compare_keys(&parent_a, &name_a, &parent_b, &name_b)
    });
}

#[test]
fn stream_is_the_whole_tree_in_catalog_order() {
    let mut dice = Dice(7);
    for _ in 0..20 {
        let place = TempPlace::new();
        build(&mut dice, &place.path, 5);
        let walked = walk(&[&place.path], ScanOptions::default());
        let all: Vec<Vec<u8>> = walked.entries.iter().map(|entry| entry.path()).collect();
        let below: Vec<Vec<u8>> = all
            .iter()
            .filter(|path| path.len() > without_slash(&place.path).len())
            .cloned()
            .collect();
        assert_eq!(below, model(&place.path));
        let sorted = walked
            .entries
            .is_sorted_by(|a, b| compare_keys(&a.parent, &a.name, &b.parent, &b.name).is_lt());
        assert!(sorted, "strictly ascending keys");
        assert!(walked.problems.is_empty() && walked.notes.is_empty());
    }
}

#[test]
fn stream_is_the_same_whatever_the_number_of_threads() {
    let place = TempPlace::new();
    build(&mut Dice(11), &place.path, 7);
    let alone = walk(&[&place.path], threads(0));
    assert!(alone.entries.len() > 100, "{}", alone.entries.len());
    for count in [1, 2, 16] {
        for _ in 0..5 {
            let walked = walk(&[&place.path], threads(count));
            assert!(walked.log(&[&place.path]) == alone.log(&[&place.path]));
        }
    }
}

#[test]
fn large_directory_comes_in_bounded_batches_and_in_order() {
    let place = TempPlace::new();
    let wide = place.join("wide");
    std::fs::create_dir(&wide).unwrap();
    let mut dice = Dice(3);
    let mut names: Vec<String> = (0..60_000)
        .map(|at| format!("{:08x}-{at:024}", dice.below(u64::from(u32::MAX))))
        .collect();
    for (at, name) in names.iter().enumerate() {
        if at % 1000 == 0 {
            std::fs::create_dir(wide.join(name)).unwrap();
            std::fs::write(wide.join(name).join("inside"), b"x").unwrap();
        } else {
            std::fs::File::create_new(wide.join(name)).unwrap();
        }
    }
    names.sort();
    let walked = walk(&[&wide], ScanOptions::default());
    assert!(
        walked
            .batches
            .iter()
            .all(|entries| *entries <= BATCH_ENTRIES_MAX)
    );
    let below = walked.below(&wide);
    let (children, inside) = below.split_at(names.len());
    assert!(children.iter().eq(names.iter().map(|name| name.as_bytes())));
    assert_eq!(inside.len(), 60);
    assert!(inside.is_sorted());
    let alone = walk(&[&wide], threads(0));
    assert!(walked.log(&[&wide]) == alone.log(&[&wide]));
}

#[test]
fn stream_dropped_half_way_stops_its_workers() {
    let place = TempPlace::new();
    build(&mut Dice(13), &place.path, 7);
    let (sources, _) = Sources::resolve(&[&place.path]).unwrap();
    let mut scanner = Scanner::start(&sources, threads(8)).unwrap();
    assert!(scanner.next().is_some());
    drop(scanner);
}

#[test]
fn directories_on_the_way_to_a_source_come_without_their_other_children() {
    let place = TempPlace::new();
    place.write("a/wanted/file", b"1");
    place.write("a/other", b"2");
    place.write("b/other", b"3");
    let walked = walk(&[&place.join("a/wanted")], ScanOptions::default());
    assert_eq!(walked.entries[0].path(), b"");
    assert_eq!(walked.entries[0].kind, Kind::Directory);
    assert!(walked.has(&place.path));
    assert_eq!(
        walked.below(&place.path),
        [&b"a"[..], b"a/wanted", b"a/wanted/file"]
    );
}

#[test]
fn overlapping_sources_give_each_entry_once() {
    let place = TempPlace::new();
    place.write("a/b/c", b"1");
    place.write("a/d", b"2");
    let (a, b) = (place.join("a"), place.join("a/b"));
    let once = walk(&[&a], ScanOptions::default());
    let twice = walk(&[&b, &a, &b, &a.join("d")], ScanOptions::default());
    assert_eq!(once.log(&[&a]), twice.log(&[&a]));
}

#[test]
fn source_may_be_a_file_and_a_link_is_recorded_unless_a_slash_follows() {
    let place = TempPlace::new();
    let file = place.write("dir/file", b"1");
    let link = place.join("link");
    std::os::unix::fs::symlink("dir", &link).unwrap();
    let walked = walk(&[&file, &link], ScanOptions::default());
    assert_eq!(
        walked.below(&place.path),
        [&b"dir"[..], b"link", b"dir/file"]
    );
    assert_eq!(walked.find(&link).unwrap().kind, Kind::Symlink);
    let with_slash = PathBuf::from(format!("{}/", link.display()));
    let walked = walk(&[&with_slash], ScanOptions::default());
    assert_eq!(walked.below(&place.path), [&b"dir"[..], b"dir/file"]);
    let through = walk(&[&link.join("file")], ScanOptions::default());
    assert_eq!(through.below(&place.path), [&b"dir"[..], b"dir/file"]);
}

#[test]
fn source_that_does_not_exist_is_a_problem_and_without_any_other_an_error() {
    let place = TempPlace::new();
    let file = place.write("file", b"1");
    let missing = place.join("missing");
    let walked = walk(&[&missing, &file], ScanOptions::default());
    assert_eq!(walked.problems.len(), 1);
    assert_eq!(walked.problems[0].path, without_slash(&missing));
    assert_eq!(walked.below(&place.path), [b"file"]);
    assert!(Sources::resolve(&[&missing]).is_err());
    assert!(Sources::resolve::<PathBuf>(&[]).is_err());
}

#[test]
fn source_that_vanishes_after_it_was_found_is_a_problem() {
    let place = TempPlace::new();
    let file = place.write("file", b"1");
    let (sources, _) = Sources::resolve(&[&file]).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut walked = crate::walk_support::Walked::default();
    for item in Scanner::start(&sources, ScanOptions::default()).unwrap() {
        walked.push(item);
    }
    assert_eq!(walked.problems.len(), 1);
    assert!(
        !walked
            .notes
            .iter()
            .any(|note| note.kind == NoteKind::Vanished)
    );
}

#[test]
fn lists_of_sources_are_lines_or_zero_terminated_bytes() {
    let lines = parse_list(b"# comment\n/a b\n\n/c\r\n/d", false);
    assert_eq!(lines, [Path::new("/a b"), Path::new("/c"), Path::new("/d")]);
    let zeros = parse_list(b"#x\0/a\nb\0\0/\xff\0", true);
    let expected =
        ["#x".as_bytes(), b"/a\nb", b"/\xff"].map(|p| PathBuf::from(OsStr::from_bytes(p)));
    assert_eq!(zeros, expected);
}
