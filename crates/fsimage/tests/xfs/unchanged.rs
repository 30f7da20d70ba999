//! What is said to be unchanged between two states of an XFS: content of files whose inodes and
//! extents are what they were, and otherwise only what was compared.

use std::fs::{self, File};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use crate::xfs_image::sealed::{BMBT_CRC_AT, INODE_CRC_AT, change, settle};
use crate::xfs_image::{Image, can_run, run};
use bale_fsimage::recognize::Recognized;
use bale_fsimage::unchanged::{NotCompared, StateSource, compare_states};
use bale_fsimage::xfs::{ForkKind, Xfs};
use bale_fsimage::{ByteSource, MappedExtent};

const TOOLS: [&str; 3] = ["mkfs.xfs", "mount", "xfs_io"];
const FILES: [&str; 3] = ["plain", "scattered", "other"];

/// An image with a file of each kind, and their inodes.
fn image(options: &str) -> (Image, Vec<u64>) {
    let image = Image::make(320, options);
    let mounted = image.mount();
    let root = mounted.path();
    fs::write(root.join("plain"), vec![7; 3 << 20]).unwrap();
    fs::write(root.join("other"), vec![8; 3 << 20]).unwrap();
    // More extents than any inode has room for.
    let writes = (0..200).flat_map(|number| {
        let write = format!("pwrite -q -S 9 {} 4096", number * 8192);
        ["-c".to_owned(), write]
    });
    let scattered = root.join("scattered");
    let mut arguments: Vec<String> = vec!["-f".to_owned()];
    arguments.extend(writes);
    arguments.push(scattered.to_str().unwrap().to_owned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run("xfs_io", &arguments);
    fs::create_dir(root.join("directory")).unwrap();
    for number in 0..500 {
        fs::write(
            root.join(format!("directory/file with a name {number}")),
            "",
        )
        .unwrap();
    }
    let inodes = FILES.map(|name| fs::metadata(root.join(name)).unwrap().ino());
    mounted.unmount();
    settle(&writable(&image));
    (image, inodes.to_vec())
}

fn writable(image: &Image) -> File {
    let options = File::options().read(true).write(true).open(image.path());
    options.unwrap()
}

fn unchanged(old: &Image, new: &Image) -> Result<Vec<Range<u64>>, NotCompared> {
    let [old, new]: [Arc<dyn ByteSource>; 2] = [Arc::new(old.open()), Arc::new(new.open())];
    let [of_old, of_new] = [&old, &new].map(|source| StateSource {
        source,
        was_frozen: false,
    });
    let mut found = Vec::new();
    compare_states(Recognized::Xfs, of_old, of_new)?.walk(&mut |range| {
        found.push(range);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Extents of a file, and the blocks of their btree.
fn extents(image: &Image, number: u64) -> (Vec<MappedExtent>, Vec<u64>) {
    let source = Noting(image.open(), Default::default());
    let xfs = Xfs::open(&source.0).unwrap();
    let mut buffer = Vec::new();
    let inode = xfs.read_inode(&source.0, number, &mut buffer).unwrap();
    let extents = xfs.extents(&source, &inode, ForkKind::Data).unwrap();
    let extents = extents.map(Result::unwrap).collect();
    (extents, source.1.into_inner().unwrap())
}

/// Notes where it is read.
struct Noting(File, std::sync::Mutex<Vec<u64>>);

impl ByteSource for Noting {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.1.lock().unwrap().push(offset);
        ByteSource::read_exact_at(&self.0, offset, buf)
    }

    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
}

fn is_in(found: &[Range<u64>], byte: u64) -> bool {
    found.iter().any(|range| range.contains(&byte))
}

/// Which of the files have all of their content among the ranges, or none.
fn files_in(image: &Image, inodes: &[u64], found: &[Range<u64>]) -> Vec<bool> {
    let all_or_none = |inode: &u64| {
        let (extents, _) = extents(image, *inode);
        let mut bytes = extents.iter().flat_map(|extent| {
            let at = extent.device_offset;
            [at, at + extent.len / 2, at + extent.len - 1]
        });
        let is_first = is_in(found, bytes.next().unwrap());
        assert!(bytes.all(|byte| is_in(found, byte) == is_first));
        is_first
    };
    inodes.iter().map(all_or_none).collect()
}

#[test]
fn content_of_files_is_unchanged_as_long_as_inodes_and_extents_are_byte_for_byte_what_they_were() {
    if !can_run(&TOOLS) {
        return;
    }
    for options in ["", "-b size=1k", "-m bigtime=0 -i size=1024"] {
        let (old, inodes) = image(options);
        let found = unchanged(&old, &old.copy()).unwrap();
        assert_eq!(files_in(&old, &inodes, &found), [true; 3], "{options}");
        let (_, nodes) = extents(&old, inodes[1]);
        assert!(!nodes.is_empty() && nodes.iter().all(|at| is_in(&found, *at)));
        let xfs = Xfs::open(&old.open()).unwrap();
        let superblock = xfs.superblock();
        // The place in the log of its last change, the count of changes, a time of access.
        for byte in [119, 111, 39] {
            let new = old.copy();
            let at = superblock.inode_offset(inodes[0]).unwrap();
            let its = (at, superblock.inode_bytes.into());
            change(&writable(&new), its, INODE_CRC_AT, |inode| inode[byte] ^= 1);
            let found = unchanged(&old, &new).unwrap();
            assert_eq!(files_in(&old, &inodes, &found), [false, true, true]);
            assert!(!is_in(&found, at));
        }
        // An extent becomes unwritten, of which the inode says nothing.
        let new = old.copy();
        let its = (nodes[0], superblock.block_bytes as usize);
        change(&writable(&new), its, BMBT_CRC_AT, |node| node[72] ^= 0x80);
        let found = unchanged(&old, &new).unwrap();
        assert_eq!(files_in(&old, &inodes, &found), [true, false, true]);
        assert!(!is_in(&found, nodes[0]));
    }
}

#[test]
fn what_is_no_content_of_a_file_is_unchanged_only_where_it_was_compared() {
    if !can_run(&TOOLS) {
        return;
    }
    let (old, _) = image("-m rmapbt=1");
    let new = old.copy();
    let blocks = blocks_of_directory(&old);
    assert!(blocks.len() > 1);
    // As a repair does it, past the inode.
    let writable = writable(&new);
    writable.write_all_at(&[0xff], blocks[1] + 2048).unwrap();
    let found = unchanged(&old, &new).unwrap();
    assert!(is_in(&found, blocks[0]) && is_in(&found, blocks[1]));
    assert!(!is_in(&found, blocks[1] + 2048));
    let xfs = Xfs::open(&writable).unwrap();
    let superblock = xfs.superblock();
    let block_bytes = u64::from(superblock.block_bytes);
    for ag in 0..superblock.ag_count {
        let start = superblock.ag_block_offset(ag, 0).unwrap();
        // Headers and roots of the trees.
        for block in 0..6 {
            assert!(!is_in(&found, start + block * block_bytes));
        }
    }
    let log = superblock.block_offset(superblock.log_start_block, 1);
    assert!(!is_in(&found, log.unwrap()));
}

/// Where the names of `directory` are.
fn blocks_of_directory(image: &Image) -> Vec<u64> {
    let source = image.open();
    let xfs = Xfs::open(&source).unwrap();
    let mut buffer = Vec::new();
    let root = xfs.superblock().root_inode;
    let root = xfs.read_inode(&source, root, &mut buffer).unwrap();
    let mut number = None;
    xfs.read_dir(&source, &root, &mut |entry| {
        if entry.name == b"directory" {
            number = Some(entry.inode);
        }
    })
    .unwrap();
    let number = number.unwrap();
    let directory = xfs.read_inode(&source, number, &mut buffer).unwrap();
    let blocks = xfs.dir_blocks(&source, &directory).unwrap();
    blocks
        .map(|block| block.unwrap().first.device_offset)
        .collect()
}

#[test]
fn states_that_cannot_be_compared_are_refused_with_the_reason() {
    if !can_run(&TOOLS) {
        return;
    }
    let (old, _) = image("");
    let refused = |old: &Image, new: &Image| unchanged(old, new).unwrap_err().to_string();
    let other = Image::make(320, "");
    assert!(refused(&old, &other).contains("another file system"));
    // No kernel mounts version 4 any more, but there are images of it.
    let four = Image::make(320, "-m crc=0,reflink=0,bigtime=0,inobtcount=0");
    assert!(refused(&four, &four.copy()).contains("version 4"));
}
