//! Broken images: no panic, no endless work, and with checksums nothing missing or wrong without a
//! problem being told.

use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bale_fsimage::ext4::{Damage, Ext4, Mapping};
use bale_fsimage::{ByteSource, ext4::fuzz_entry};
use rustix::fs::{XattrFlags, lsetxattr};

use crate::fixture::pattern;
use crate::image::{Image, can_run};
use crate::scan::{Scan, scan};

const IMAGE_MIB: u64 = 8;
const BLOCK_BYTES: usize = 1024;
/// Mutations per feature set; `BALE_MUTATIONS` overrides.
const MUTATIONS: u64 = 200;
/// Bytes a scan may read of an image, as a multiple of its length. A healthy one needs less than
/// its length.
const READ_FACTOR_MAX: u64 = 40;

/// An image in memory that counts what is read of it.
struct Budget {
    bytes: Vec<u8>,
    read_bytes: AtomicU64,
}

impl ByteSource for Budget {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let read = self.read_bytes.fetch_add(buf.len() as u64 + 512, Relaxed);
        assert!(
            read < READ_FACTOR_MAX * self.len_bytes(),
            "reads without end"
        );
        self.bytes.read_exact_at(offset, buf)
    }

    fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// A few hundred inodes of every kind, in directories with and without an index.
fn small_tree(root: &Path) {
    for dir in ["a", "a/b", "a/b/c", "many"] {
        std::fs::create_dir(root.join(dir)).unwrap();
    }
    for i in 0..150_u64 {
        std::fs::write(
            root.join(format!("many/name-{i}-{}", "x".repeat(30))),
            pattern(i, 20),
        )
        .unwrap();
    }
    for (i, dir) in ["", "a", "a/b", "a/b/c"].iter().enumerate() {
        for len in [0, 50, 1000, 5000, 40_000] {
            std::fs::write(
                root.join(dir).join(format!("len{len}")),
                pattern(i as u64, len),
            )
            .unwrap();
        }
        symlink("short", root.join(dir).join("short")).unwrap();
        symlink("long".repeat(40), root.join(dir).join("long")).unwrap();
        let file = root.join(dir).join("xattrs");
        std::fs::write(&file, "x").unwrap();
        lsetxattr(&file, "user.small", b"1", XattrFlags::empty()).unwrap();
        lsetxattr(&file, "user.block", &pattern(9, 500), XattrFlags::empty()).unwrap();
    }
    for (name, step) in [("fragments", 3000), ("pieces", 40_000)] {
        let file = std::fs::File::create(root.join(name)).unwrap();
        for i in 0..120_u64 {
            file.write_all_at(&pattern(i, 1000), i * step).unwrap();
        }
    }
}

/// What must not change unnoticed: every path with its inode, and where everything lies.
fn facts(scan: &Scan) -> Vec<String> {
    let describe = |(path, number): (&Vec<u8>, &u64)| {
        let seen = scan.inodes.get(number)?;
        let raw = seen.raw();
        let extents = scan.fs.extents(&raw);
        let xattrs = scan.fs.xattrs(&raw);
        Some(format!(
            "{} {:?} {extents:?} {xattrs:?}",
            path.escape_ascii(),
            seen.inode
        ))
    };
    scan.paths.iter().filter_map(describe).collect()
}

/// Blocks that hold metadata: everything but file content and what is free.
fn metadata_blocks(bytes: &[u8], scan: &Scan) -> Vec<u64> {
    let mut blocks: Vec<u64> = (1..4).collect();
    for range in scan.fs.itable_ranges() {
        blocks.extend(
            range.device_offset / 1024..(range.device_offset + range.len_bytes()).div_ceil(1024),
        );
    }
    for seen in scan.inodes.values() {
        let raw = seen.raw();
        blocks.extend(scan.fs.xattr_block(&raw));
        let is_dir = seen.inode.mode & 0o170000 == 0o040000;
        let _ = scan.fs.walk_mapping(&raw, &mut |mapping| {
            match mapping {
                Mapping::Node { device_offset, .. } => blocks.push(device_offset / 1024),
                Mapping::Extent(extent) if is_dir => {
                    blocks.extend(
                        extent.device_offset / 1024..(extent.device_offset + extent.len) / 1024,
                    );
                }
                Mapping::Extent(_) => {}
            }
            std::ops::ControlFlow::Continue(())
        });
    }
    blocks.retain(|block| (*block as usize + 1) * BLOCK_BYTES <= bytes.len());
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

/// Changes `bytes` in one of several ways within metadata.
fn mutate(bytes: &mut [u8], blocks: &[u64], random: &mut impl FnMut(u64) -> u64) {
    let at = |block: u64| block as usize * BLOCK_BYTES;
    let block = blocks[random(blocks.len() as u64) as usize];
    let other = blocks[random(blocks.len() as u64) as usize];
    match random(10) {
        0 => bytes[at(block)..at(block) + BLOCK_BYTES].fill([0, 0xFF][random(2) as usize]),
        1 => bytes.copy_within(at(other)..at(other) + BLOCK_BYTES, at(block)),
        2 => {
            let value = [0, 1, u32::MAX, 0x7FFF_FFFF, 0x8000][random(5) as usize];
            let field = at(block) + 4 * random(BLOCK_BYTES as u64 / 4) as usize;
            bytes[field..field + 4].copy_from_slice(&value.to_le_bytes());
        }
        3 => {
            let from = at(block) + random(BLOCK_BYTES as u64 - 128) as usize;
            bytes[from..from + 128].fill_with(|| random(256) as u8);
        }
        _ => {
            for _ in 0..=random(4) {
                let bit = random(8 * BLOCK_BYTES as u64) as usize;
                bytes[at(block) + bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

fn survives_damage(test: &str, mke2fs: &str, detects: bool) {
    if !can_run(test, &["mke2fs", "mount"]) {
        return;
    }
    let image = Image::make(IMAGE_MIB, &format!("{mke2fs} -b 1024 -N 512"));
    small_tree(&image.mount("noatime").path);
    let intact = std::fs::read(&image.path).unwrap();
    let healthy = scan(Ext4::open(Arc::new(intact.clone())).unwrap());
    assert!(healthy.problems.is_empty(), "{:?}", healthy.problems);
    let (blocks, expected) = (metadata_blocks(&intact, &healthy), facts(&healthy));
    let count = std::env::var("BALE_MUTATIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(MUTATIONS);
    let mut state = 0x1234_5678_9ABC_DEF1_u64;
    let mut random = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    };
    let mut noticed = 0;
    for mutation in 0..count {
        let mut bytes = intact.clone();
        mutate(&mut bytes, &blocks, &mut random);
        let source = Arc::new(Budget {
            bytes,
            read_bytes: AtomicU64::new(0),
        });
        let Ok(fs) = Ext4::open_replayed(source) else {
            noticed += 1;
            continue;
        };
        let damaged = scan(fs);
        let found = facts(&damaged);
        // A directory block copied over another of the same directory has a good checksum. What
        // tells is that some inode has fewer names than links, so whoever joins names and inodes
        // must count.
        if !damaged.problems.is_empty() || !damaged.nameless().is_empty() {
            noticed += 1;
        } else if detects && found != expected {
            // Errors of single files (their extents, their xattrs) are told where they are asked
            // for.
            let wrong = found
                .iter()
                .filter(|fact| !expected.contains(fact) && !fact.contains("Err("));
            assert_eq!(
                wrong.collect::<Vec<_>>(),
                Vec::<&String>::new(),
                "mutation {mutation} went unnoticed"
            );
            assert_eq!(
                found.len(),
                expected.len(),
                "mutation {mutation}: entries vanished silently"
            );
        }
    }
    assert!(noticed > 0);
}

#[test]
fn damage_is_noticed_with_checksums() {
    survives_damage("damage_is_noticed_with_checksums", "-t ext4", true);
}

#[test]
fn damage_is_noticed_with_inline_data() {
    survives_damage(
        "damage_is_noticed_with_inline_data",
        "-t ext4 -O inline_data",
        true,
    );
}

#[test]
fn damage_is_noticed_with_32_byte_descriptors_and_meta_bg() {
    let mke2fs = "-t ext4 -O ^64bit,meta_bg,^resize_inode";
    survives_damage(
        "damage_is_noticed_with_32_byte_descriptors_and_meta_bg",
        mke2fs,
        true,
    );
}

/// Without checksums every mutation reaches the parsers, as if its checksum had been made to fit.
#[test]
fn damage_without_checksums_ends() {
    survives_damage(
        "damage_without_checksums_ends",
        "-t ext4 -O ^metadata_csum",
        false,
    );
}

#[test]
fn damage_without_checksums_but_with_inline_data_and_ea_inodes_ends() {
    let mke2fs = "-t ext4 -O ^metadata_csum,inline_data,ea_inode";
    survives_damage(
        "damage_without_checksums_but_with_inline_data_and_ea_inodes_ends",
        mke2fs,
        false,
    );
}

#[test]
fn damage_to_block_maps_ends() {
    survives_damage("damage_to_block_maps_ends", "-t ext2", false);
}

/// An image whose file `pieces` has a tree node in one block; answers image, block of the node,
/// inode number.
fn image_with_node(mke2fs: &str) -> (Vec<u8>, u64, u64) {
    let image = Image::make(IMAGE_MIB, &format!("{mke2fs} -b 1024 -N 512"));
    small_tree(&image.mount("noatime").path);
    let bytes = std::fs::read(&image.path).unwrap();
    let seen = scan(Ext4::open(Arc::new(bytes.clone())).unwrap());
    let file = seen.at("pieces");
    let mut nodes = Vec::new();
    seen.fs
        .walk_mapping(&file.raw(), &mut |mapping| {
            if let Mapping::Node { device_offset, .. } = mapping {
                nodes.push(device_offset);
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    (bytes, nodes[0] / 1024, file.inode.number)
}

fn extents_damage(bytes: Vec<u8>, inode: u64) -> Option<Damage> {
    let fs = Ext4::open(Arc::new(bytes)).unwrap();
    let raw = fs.read_inode_bytes(inode).unwrap();
    let raw = bale_fsimage::ext4::RawInode::new(inode, &raw).unwrap();
    fs.extents(&raw).unwrap_err().damage()
}

#[test]
fn pointer_block_that_points_to_itself_is_a_cycle() {
    if !can_run(
        "pointer_block_that_points_to_itself_is_a_cycle",
        &["mke2fs", "mount"],
    ) {
        return;
    }
    let (mut bytes, node, inode) = image_with_node("-t ext2");
    let seen = Ext4::open(Arc::new(bytes.clone())).unwrap();
    // The double indirect pointer (bytes 92..96 of the inode) names the single indirect block too.
    let at = seen.inode_offset(inode).unwrap() as usize + 92;
    bytes[at..at + 4].copy_from_slice(&(node as u32).to_le_bytes());
    assert_eq!(extents_damage(bytes, inode), Some(Damage::Cycle(node)));
}

#[test]
fn extent_trees_cannot_loop_overlap_or_leave_the_device() {
    if !can_run(
        "extent_trees_cannot_loop_overlap_or_leave_the_device",
        &["mke2fs", "mount"],
    ) {
        return;
    }
    let (bytes, node, inode) = image_with_node("-t ext4 -O ^metadata_csum");
    let node_at = node as usize * BLOCK_BYTES;
    let broken = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        extents_damage(bytes, inode)
    };
    // The node claims to be an index node whose first child is itself.
    let looped = broken(&|bytes| {
        bytes[node_at + 6] = 1;
        bytes[node_at + 16..node_at + 20].copy_from_slice(&(node as u32).to_le_bytes());
    });
    assert!(matches!(looped, Some(Damage::Header(_))), "{looped:?}");
    // The first extent covers the second.
    assert_eq!(
        broken(&|bytes| bytes[node_at + 16] = 200),
        Some(Damage::ExtentOrder(39))
    );
    let outside = broken(&|bytes| bytes[node_at + 18] = 1);
    assert!(
        matches!(outside, Some(Damage::BlockOutside(_))),
        "{outside:?}"
    );
}

#[test]
fn a_directory_entry_that_leads_to_an_ancestor_does_not_trap_the_reader() {
    if !can_run(
        "a_directory_entry_that_leads_to_an_ancestor_does_not_trap_the_reader",
        &["mke2fs", "debugfs"],
    ) {
        return;
    }
    let image = Image::make(IMAGE_MIB, "-t ext4");
    for command in ["mkdir /a", "mkdir /a/b", "link /a /a/b/again"] {
        crate::image::run("debugfs", &["-w", "-R", command, image.name()]);
    }
    let seen = scan(Ext4::open(image.source()).unwrap());
    assert!(
        seen.problems
            .iter()
            .any(|problem| problem.ends_with("has two names")),
        "{:?}",
        seen.problems
    );
}

/// The fuzzers' doors, pushed with slices of a real image: a good superblock, then bytes that mean
/// something else.
#[test]
fn fuzz_entries_accept_any_bytes() {
    if !can_run("fuzz_entries_accept_any_bytes", &["mke2fs", "mount"]) {
        return;
    }
    let image = Image::make(
        IMAGE_MIB,
        "-t ext4 -b 1024 -N 512 -O ^metadata_csum,inline_data",
    );
    small_tree(&image.mount("noatime").path);
    let bytes = std::fs::read(&image.path).unwrap();
    let doors = [
        fuzz_entry::superblock,
        fuzz_entry::group_descriptor,
        fuzz_entry::inode_table,
        fuzz_entry::file_mapping,
        fuzz_entry::dir_block,
        fuzz_entry::xattr_block,
        fuzz_entry::journal,
    ];
    for start in (0..bytes.len() - 8192).step_by(1024) {
        let slice = &bytes[start..start + 8192];
        let behind_superblock = [&bytes[1024..2048], slice].concat();
        for door in doors {
            door(slice);
            door(&behind_superblock);
            door(&behind_superblock[..1024 + start % 3000]);
        }
    }
    fuzz_entry::image(&bytes);
    fuzz_entry::image(&bytes[..bytes.len() / 2]);
    fuzz_entry::image(&[]);
}
