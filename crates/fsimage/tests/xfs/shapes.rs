//! Structures that only large, worn or altered file systems have, each with proof that the test met
//! it.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};

use crate::xfs_image::fixture::{Abilities, populate};
use crate::xfs_image::seen::{assert_same, by_kernel, by_reader};
use crate::xfs_image::{Image, can_run, can_run_since, run};
use bale_fsimage::xfs::{ForkKind, LogState, Xfs};
use bale_fsimage::{ByteSource, FileKind};
use rustix::fs::{FallocateFlags, fallocate};

const TOOLS: [&str; 6] = [
    "mkfs.xfs",
    "mount",
    "fsfreeze",
    "xfs_io",
    "xfs_db",
    "xfs_admin",
];
const FIXTURE: Abilities = Abilities {
    reflink: true,
    bigtime: true,
    names: 3000,
    since_kernel: (5, 10),
};

#[test]
fn a_directory_of_hundred_thousand_names_and_its_inodes_are_seen_as_the_kernel_shows_them() {
    if !can_run(&TOOLS) {
        return;
    }
    let image = Image::make(512, "-b size=1k");
    let mounted = image.mount();
    let directory = mounted.path().join("large");
    fs::create_dir(&directory).unwrap();
    for index in 0..100_500 {
        File::create(directory.join(format!("name {index}"))).unwrap();
    }
    mounted.barrier();
    let reader = by_reader(&image.open());
    assert_same(&by_kernel(&mounted.path()), &reader, "large directory");
    assert_eq!(reader.len(), 100_502);
}

#[test]
fn inode_chunks_with_holes_are_seen_as_the_kernel_shows_them() {
    if !can_run(&TOOLS) {
        return;
    }
    let image = Image::make(64, "--unsupported -d agcount=1 -l size=1368b");
    let mounted = image.mount();
    leave_small_holes(&mounted.path(), 4096, 7);
    for index in 0..2000 {
        File::create(mounted.path().join(index.to_string())).unwrap();
    }
    mounted.barrier();
    let source = image.open();
    let xfs = Xfs::open(&source).unwrap();
    let chunks: Vec<_> = xfs
        .inode_chunks(&source, 0)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    // New chunks are made when the old are full, so that two half empty ones have holes.
    let halves = chunks
        .iter()
        .filter(|chunk| chunk.used.count_ones() <= 32)
        .count();
    assert!(halves > 2, "{chunks:x?}");
    assert_same(
        &by_kernel(&mounted.path()),
        &by_reader(&source),
        "sparse inode chunks",
    );
}

#[test]
fn what_is_scattered_over_small_holes_is_seen_as_the_kernel_shows_it() {
    if !can_run(&TOOLS) {
        return;
    }
    let image = Image::make(
        64,
        "--unsupported -b size=1k -n size=16k -d agcount=2 -l size=5472b -m \
         reflink=0,finobt=0,inobtcount=0",
    );
    let mounted = image.mount();
    let first = mounted.path().join("first");
    fs::create_dir(&first).unwrap();
    let second = mounted.path().join("second");
    fs::create_dir(&second).unwrap();
    for index in 0..300 {
        File::create(first.join(format!("{index}"))).unwrap();
    }
    leave_small_holes(&mounted.path(), 1024, 1);
    for index in 0..300 {
        // No new inodes: there is no room for any.
        fs::hard_link(
            first.join(format!("{index}")),
            second.join(format!("{index}{}", "n".repeat(200))),
        )
        .unwrap();
    }
    for index in 0..4 {
        let value = vec![index as u8; 60_000];
        rustix::fs::lsetxattr(
            first.join("7"),
            format!("user.{index}"),
            &value,
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
    }
    mounted.barrier();
    let source = image.open();
    let xfs = Xfs::open(&source).unwrap();
    let (mut scattered, mut attribute_extents) = (0, 0);
    for_each_inode(&xfs, &source, &mut |inode| {
        attribute_extents = attribute_extents.max(inode.extent_count(ForkKind::Attributes));
        if inode.kind == FileKind::Directory {
            let blocks = xfs.dir_blocks(&source, inode).unwrap().map(Result::unwrap);
            scattered += blocks.filter(|block| !block.others.is_empty()).count();
        }
    });
    assert!(scattered > 3, "{scattered} scattered directory blocks");
    assert!(
        attribute_extents > 100,
        "{attribute_extents} extents of attributes"
    );
    assert_same(
        &by_kernel(&mounted.path()),
        &by_reader(&source),
        "small holes",
    );
}

/// Takes all space, then gives back `free` of every 8 blocks.
fn leave_small_holes(root: &std::path::Path, block_bytes: u64, free: u64) {
    // Without the blocks that are kept back for hard times.
    run("xfs_io", &["-x", "-c", "resblks 0", root.to_str().unwrap()]);
    let file = File::create(root.join("filler")).unwrap();
    for step in [1 << 20, block_bytes] {
        while fallocate(
            &file,
            FallocateFlags::KEEP_SIZE,
            allocated_bytes(&file),
            step,
        )
        .is_ok()
        {}
    }
    let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for start in (0..allocated_bytes(&file)).step_by(8 * block_bytes as usize) {
        fallocate(&file, holes, start, free * block_bytes).unwrap();
    }
    file.sync_all().unwrap();
}

fn allocated_bytes(file: &File) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512
}

#[test]
fn a_changed_uuid_leaves_everything_readable() {
    if !can_run(&TOOLS) {
        return;
    }
    let image = Image::make(512, "-L twelve_bytes");
    let mounted = image.mount();
    populate(
        &mounted.path(),
        Abilities {
            names: 500,
            ..FIXTURE
        },
    );
    mounted.unmount();
    let before = by_reader(&image.open());
    run(
        "xfs_admin",
        &[
            "-U",
            "01234567-89ab-cdef-0123-456789abcdef",
            image.path().to_str().unwrap(),
        ],
    );
    let source = image.open();
    let xfs = Xfs::open(&source).unwrap();
    assert_ne!(xfs.superblock().uuid, xfs.superblock().metadata_uuid);
    assert_eq!(xfs.superblock().uuid[..4], [0x01, 0x23, 0x45, 0x67]);
    assert_eq!(xfs.superblock().label, b"twelve_bytes");
    assert_eq!(xfs.log_state(&source).unwrap(), LogState::Clean);
    assert_same(&before, &by_reader(&source), "other uuid");
}

#[test]
fn extents_are_those_that_xfs_db_prints() {
    if !can_run(&TOOLS) {
        return;
    }
    let image = Image::make(512, "-b size=1k");
    let mounted = image.mount();
    populate(
        &mounted.path(),
        Abilities {
            names: 500,
            ..FIXTURE
        },
    );
    mounted.unmount();
    let source = image.open();
    let xfs = Xfs::open(&source).unwrap();
    let mut commands = Vec::new();
    let mut reader = String::new();
    for_each_inode(&xfs, &source, &mut |inode| {
        for (fork, letter) in [(ForkKind::Data, 'd'), (ForkKind::Attributes, 'a')] {
            if inode.extent_count(fork) == 0 {
                continue;
            }
            commands.push(format!("inode {}", inode.number));
            commands.push(format!("bmap -{letter}"));
            reader.push_str(&bmap(&xfs, &source, inode, fork));
        }
    });
    let mut printed = String::new();
    for some in commands.chunks(200) {
        printed.push_str(&image.xfs_db(&["-r"], some));
    }
    assert!(reader.contains("flag 1"), "no unwritten extent");
    let difference = printed
        .lines()
        .zip(reader.lines())
        .find(|(printed, reader)| printed != reader);
    assert_eq!(difference, None);
    assert_eq!(printed.lines().count(), reader.lines().count());
}

/// Extents in the words of xfs_db.
fn bmap(
    xfs: &Xfs,
    source: &dyn ByteSource,
    inode: &bale_fsimage::xfs::DiskInode<'_>,
    fork: ForkKind,
) -> String {
    let superblock = xfs.superblock();
    let block_bytes = u64::from(superblock.block_bytes);
    let ag_bits = superblock.ag_blocks.next_power_of_two().trailing_zeros();
    let name = if fork == ForkKind::Data {
        "data"
    } else {
        "attr"
    };
    let mut text = String::new();
    for extent in xfs.extents(source, inode, fork).unwrap() {
        let extent = extent.unwrap();
        let block = extent.device_offset / block_bytes;
        let (ag, ag_block) = (
            block / u64::from(superblock.ag_blocks),
            block % u64::from(superblock.ag_blocks),
        );
        text.push_str(&format!(
            "{name} offset {} startblock {} ({ag}/{ag_block}) count {} flag {}\n",
            extent.file_offset / block_bytes,
            ag << ag_bits | ag_block,
            extent.len / block_bytes,
            u8::from(extent.unwritten)
        ));
    }
    text
}

fn for_each_inode(
    xfs: &Xfs,
    source: &dyn ByteSource,
    visit: &mut dyn FnMut(&bale_fsimage::xfs::DiskInode<'_>),
) {
    for ag in 0..xfs.superblock().ag_count {
        for chunk in xfs.inode_chunks(source, ag).unwrap() {
            let chunk = chunk.unwrap();
            let Some((offset, len)) = chunk.device_range(xfs.superblock().inode_bytes) else {
                continue;
            };
            let mut bytes = vec![0; len];
            source.read_exact_at(offset, &mut bytes).unwrap();
            for (_, inode) in xfs.chunk_inodes(&chunk, &bytes) {
                visit(&inode.unwrap());
            }
        }
    }
}

#[test]
fn the_fixture_holds_every_form_of_every_structure() {
    if !can_run(&TOOLS) {
        return;
    }
    let image = Image::make(512, "-b size=1k");
    let mounted = image.mount();
    populate(&mounted.path(), FIXTURE);
    mounted.unmount();
    let source = image.open();
    let xfs = Xfs::open(&source).unwrap();
    let mut forms = std::collections::BTreeMap::new();
    for_each_inode(&xfs, &source, &mut |inode| {
        let mut count =
            |form: &'static str, is: bool| *forms.entry(form).or_insert(0) += u32::from(is);
        let in_list = (u64::from(xfs.superblock().inode_bytes) - 176) / 16;
        count(
            "files in extent btrees",
            inode.kind == FileKind::Regular && inode.extent_count(ForkKind::Data) > in_list,
        );
        count(
            "inline links",
            inode.kind == FileKind::Symlink && inode.is_inline(),
        );
        count(
            "remote links",
            inode.kind == FileKind::Symlink && !inode.is_inline(),
        );
        count(
            "inline attributes",
            inode.has_xattrs() && inode.xattrs_are_inline(),
        );
        count("attribute blocks", !inode.xattrs_are_inline());
        if inode.kind == FileKind::Directory {
            let blocks: Vec<_> = xfs
                .dir_blocks(&source, inode)
                .unwrap()
                .map(Result::unwrap)
                .collect();
            count("inline directories", inode.is_inline());
            count("directories of one block", blocks.len() == 1);
            count("directories of many blocks", blocks.len() > 1);
            count(
                "directories in extent btrees",
                inode.extent_count(ForkKind::Data) > in_list,
            );
        }
    });
    let missing: Vec<_> = forms.iter().filter(|(_, count)| **count == 0).collect();
    assert!(
        missing.is_empty(),
        "not in the fixture: {missing:?} of {forms:?}"
    );
}

#[test]
fn inode_numbers_of_more_than_32_bits_are_seen_as_the_kernel_shows_them() {
    if !can_run(&TOOLS) {
        return;
    }
    let image = Image::make(10 << 20, "-l size=64m");
    let mounted = image.mount();
    for index in 0..20 {
        // Directories go round the allocation groups, what is in them stays with them.
        let directory = mounted.path().join(format!("directory {index}"));
        fs::create_dir(&directory).unwrap();
        for name in 0..index * index {
            fs::write(
                directory.join(name.to_string()),
                directory.as_os_str().as_encoded_bytes(),
            )
            .unwrap();
        }
    }
    mounted.barrier();
    let reader = by_reader(&image.open());
    assert!(reader.values().any(|seen| seen.number > 1 << 32));
    assert_same(&by_kernel(&mounted.path()), &reader, "large inode numbers");
}

#[test]
fn parent_pointers_are_not_shown_as_attributes() {
    if !can_run_since((6, 10), &TOOLS) {
        return;
    }
    let image = Image::make(512, "");
    // The tools need not know the feature: an empty file system has nothing that would lack it.
    // Exchange of ranges too.
    let file = File::options()
        .read(true)
        .write(true)
        .open(image.path())
        .unwrap();
    let mut sector = vec![0; 512];
    FileExt::read_exact_at(&file, &mut sector, 0).unwrap();
    sector[219] |= 0xc0;
    sector[224..228].fill(0);
    let checksum = crc32c::crc32c(&sector).to_le_bytes();
    sector[224..228].copy_from_slice(&checksum);
    file.write_all_at(&sector, 0).unwrap();
    let mounted = image.mount();
    populate(
        &mounted.path(),
        Abilities {
            names: 1000,
            ..FIXTURE
        },
    );
    mounted.barrier();
    let source = image.open();
    let xfs = Xfs::open(&source).unwrap();
    let mut with_attributes = 0;
    for_each_inode(&xfs, &source, &mut |inode| {
        with_attributes += u32::from(inode.has_xattrs())
    });
    assert!(
        with_attributes > 1000,
        "the kernel keeps no parent pointers: {with_attributes}"
    );
    assert_same(
        &by_kernel(&mounted.path()),
        &by_reader(&source),
        "parent pointers",
    );
}

#[test]
fn a_file_deleted_while_open_is_an_inode_without_a_name() {
    if !can_run(&TOOLS) {
        return;
    }
    let image = Image::make(320, "");
    let mounted = image.mount();
    let path = mounted.path().join("open");
    let file = File::create(&path).unwrap();
    file.write_all_at(b"still here", 0).unwrap();
    symlink("elsewhere", mounted.path().join("link")).unwrap();
    fs::remove_file(path).unwrap();
    mounted.barrier();
    let source = image.open();
    let xfs = Xfs::open(&source).unwrap();
    let mut nameless = 0;
    for_each_inode(&xfs, &source, &mut |inode| {
        nameless += u32::from(inode.nlink == 0)
    });
    assert_eq!(nameless, 1);
    assert_same(
        &by_kernel(&mounted.path()),
        &by_reader(&source),
        "with a deleted file",
    );
    drop(file);
}
