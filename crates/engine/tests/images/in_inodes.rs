//! Files whose content is in their inodes, and so in no block as it is: many of them are one chunk.

use crate::bench::{BLOCK, Images, NAME, run};
use crate::views::{assert_same, restored_files};
use crate::views_kept::{digests, rows};
use bale_engine::backup::Outcome;
use bale_format::{ChunkId, Content, Entry, Kind};
use bale_testkit::needs;
use bale_testkit::scene::noise;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const SMALL: u64 = 3000;
/// They fit into inodes of 256 bytes.
const SMALL_BYTES_MAX: u64 = 90;

fn small(number: u64) -> Vec<u8> {
    noise(number, 1 + (number % SMALL_BYTES_MAX) as usize)
}

/// An ext4 with files of a few bytes, and a larger one after each hundredth: names and bytes.
/// (debugfs 1.47 writes out other bytes than such an inode holds.)
fn image(images: &Images) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::from([("empty".to_owned(), Vec::new())]);
    for number in 0..SMALL {
        let name = format!("d{}/{number}", number % 7);
        if number % 100 == 0 {
            files.insert(format!("{name}-larger"), noise(SMALL + number, 9000));
        }
        files.insert(name, small(number));
    }
    let tree = images.path("tree");
    for (name, bytes) in &files {
        let name = tree.join(name);
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        fs::write(name, bytes).unwrap();
    }
    images.write(NAME, &vec![0; 48 * BLOCK as usize]);
    let (tree, image) = (tree.to_str().unwrap(), images.path(NAME));
    let options = ["-q", "-F", "-O", "inline_data", "-I", "256", "-d", tree];
    run(
        "mkfs.ext4",
        &[&options[..], &[image.to_str().unwrap()]].concat(),
    );
    files
}

/// Changes the file system without mounting it.
fn debugfs(images: &Images, command: &str) {
    let image = images.path(NAME);
    run("debugfs", &["-w", "-R", command, image.to_str().unwrap()]);
}

/// Rows of files by path, and where each has its content.
fn files(images: &Images, outcome: &Outcome) -> BTreeMap<Vec<u8>, Entry> {
    let files = rows(images, outcome).into_iter();
    let files = files.filter(|row| row.kind == Kind::File && !row.is_image());
    files.map(|row| (row.path(), row)).collect()
}

/// Chunks of the files that are in their inodes: those whose content has a hash.
fn bundles(files: &BTreeMap<Vec<u8>, Entry>) -> (usize, BTreeSet<ChunkId>) {
    let in_inodes = files.values().filter_map(|row| match row.content {
        Content::Bundled { chunk, .. } if row.content_hash.is_some() => Some(chunk),
        _ => None,
    });
    let chunks: Vec<ChunkId> = in_inodes.collect();
    (chunks.len(), chunks.into_iter().collect())
}

#[test]
fn files_in_inodes_are_few_chunks_and_come_back_whatever_becomes_of_them() {
    if !needs::have("mkfs.ext4") || !needs::have("debugfs") {
        return needs::skipped("mkfs.ext4 or debugfs is missing");
    }
    let images = Images::new();
    let mut expected = image(&images);
    let first = images.backup();
    assert_same(&expected, &restored_files(&images, &first));
    let before = files(&images, &first);
    let (count, chunks) = bundles(&before);
    assert!(count as u64 > SMALL * 9 / 10, "{count} files in inodes");
    assert!(chunks.len() <= 2, "{} chunks", chunks.len());

    // One that is other, one that is new, and some that are gone in front of them and behind.
    for (name, number) in [("d3/1403", 1), ("d3/1404-new", 2)] {
        let content = small(SMALL + number);
        images.write("content", &content);
        expected.insert(name.to_owned(), content);
        debugfs(&images, &format!("rm {name}"));
        let from = images.path("content");
        debugfs(&images, &format!("write {} {name}", from.display()));
    }
    for number in [3, 1396, 1410, 2999] {
        let name = format!("d{}/{number}", number % 7);
        debugfs(&images, &format!("rm {name}"));
        expected.remove(&name);
    }
    for has_digests in [true, false] {
        if !has_digests {
            for file in digests(&images) {
                fs::remove_file(file).unwrap();
            }
        }
        let second = images.backup();
        assert_same(&expected, &restored_files(&images, &second));
        let after = files(&images, &second);
        assert_eq!(after.len(), before.len() + 1 - 4);
        let changed = after
            .iter()
            .filter(|(path, row)| before.get(*path) != Some(row))
            // Those are in blocks.
            .filter(|(path, _)| !path.ends_with(b"larger"));
        let changed: Vec<_> = changed.map(|(path, _)| path.clone()).collect();
        assert_eq!(changed, [&b"disk/d3/1403"[..], b"disk/d3/1404-new"]);
        assert!(bundles(&after).1.len() <= chunks.len() + 1);
    }
}
