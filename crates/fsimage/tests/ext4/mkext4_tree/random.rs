//! Random options and trees.

use bale_fsimage::Timestamp;
use bale_fsimage::mkext4::*;

use super::*;

pub fn random_options(random: &mut Random) -> Ext4Options {
    let block_size = random.pick(&[1024, 2048, 4096]);
    Ext4Options {
        block_size,
        inode_size: random.pick(&[128, 256, 256, 512, block_size]),
        size_bytes: random.pick(&[
            None,
            None,
            Some(64 << 20),
            Some(97_531_000),
            Some(300 << 20),
        ]),
        free_percent: random.pick(&[0, 0, 5, 300]),
        inodes: random.pick(&[None, None, Some(3000), Some(20_000)]),
        label: random.pick(&[vec![], b"sixteen bytes ok".to_vec()]),
        uuid: random.bytes(16).try_into().unwrap(),
        hash_seed: random.pick(&[[0; 16], [7; 16], *b"0123456789abcdef"]),
        created: Timestamp {
            seconds: random.pick(&[0, 1_700_000_000, 6_000_000_000]),
            nanos: 5,
        },
        journal: random.pick(&[
            Journal::Auto,
            Journal::None,
            Journal::Blocks(1024),
            Journal::Blocks(5000),
        ]),
        groups_per_flex: random.pick(&[1, 2, 16, 16, 256]),
        target_is_zeroed: random.one_in(2),
        memory: Default::default(),
    }
}

/// Up to a few thousand entries; now and then a directory with an index, a file of many extents, a
/// farm of links.
pub fn random_tree(random: &mut Random, options: &mut Ext4Options) -> Tree {
    let tree = random_entries(random, options);
    match Plan::new(options.clone(), totals(options, &tree)) {
        Err(MkError::TooSmall { .. }) => (options.size_bytes, options.inodes) = (None, None),
        planned => drop(planned.unwrap()),
    }
    tree
}

fn random_entries(random: &mut Random, options: &Ext4Options) -> Tree {
    let mut tree = Tree::default();
    let mut directories: Vec<Vec<u8>> = vec![vec![]];
    let mut files: Vec<Vec<u8>> = Vec::new();
    for _ in 0..1 + random.below(120) {
        let parent = random.pick(&directories);
        let path = child(&parent, &random_name(random));
        if path.len() > 3000 || tree.0.contains_key(&key(&path)) {
            continue;
        }
        let mut node = Node::new(random_kind(random, options));
        random_fields(random, &mut node, options);
        match node.kind {
            Kind::Directory => directories.push(path.clone()),
            Kind::Regular(..) | Kind::Fifo | Kind::Symlink(_) => files.push(path.clone()),
            _ => {}
        }
        tree.put(&path, node);
    }
    for _ in 0..random.below(3) * random.below(4) {
        add_farm(random, &mut tree, &directories, &files);
    }
    if random.one_in(6) {
        let parent = random.pick(&directories);
        let count = random.below(3000);
        for number in 0..count {
            let node = if random.one_in(50) {
                Node::new(Kind::Directory)
            } else {
                Node::file(b"")
            };
            tree.put(
                &child(
                    &parent,
                    format!("bulk {number:x} {}", "y".repeat(random.below(60) as usize)).as_bytes(),
                ),
                node,
            );
        }
    }
    if random.one_in(8) {
        tree.add("lost+found", Node::new(Kind::Directory));
        tree.add("lost+found/#12", Node::file(b"found"));
    }
    tree
}

fn child(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() {
        name.to_vec()
    } else {
        [parent, b"/", name].concat()
    }
}

/// Further names for some files; the first in catalog order becomes the one with the content.
fn add_farm(random: &mut Random, tree: &mut Tree, directories: &[Vec<u8>], files: &[Vec<u8>]) {
    if files.is_empty() {
        return;
    }
    let first = random.pick(files);
    if matches!(
        tree.0.get(&key(&first)),
        None | Some(Node {
            kind: Kind::Link(_),
            ..
        })
    ) {
        return;
    }
    for number in 0..1 + random.below(40) {
        let path = child(
            &random.pick(directories),
            format!("z-link-{number}").as_bytes(),
        );
        if key(&path) > key(&first) && !tree.0.contains_key(&key(&path)) {
            tree.put(&path, Node::new(Kind::Link(first.clone())));
        }
    }
}

fn random_name(random: &mut Random) -> Vec<u8> {
    let len = random.pick(&[1, 2, 3, 8, 8, 12, 20, 60, 255]);
    loop {
        let mut name = random.bytes(len);
        if !random.one_in(4) {
            name.iter_mut().for_each(|byte| *byte = b'a' + *byte % 26);
        }
        name.iter_mut()
            .filter(|byte| matches!(**byte, 0 | b'/'))
            .for_each(|byte| *byte = b'_');
        if name != b"." && name != b".." {
            return name;
        }
    }
}

fn random_kind(random: &mut Random, options: &Ext4Options) -> Kind {
    match random.below(16) {
        0..4 => Kind::Directory,
        4..9 => {
            let len = random.pick(&[0, 1, 100, 1500, 4095, 4096, 4097, 20_000, 300_000]) as usize;
            let bytes = random.bytes(len);
            Kind::Regular(len as u64, if len == 0 { vec![] } else { vec![(0, bytes)] })
        }
        9..11 => random_sparse(random),
        11..13 => {
            let len = random.pick(&[1, 10, 58, 59, 60, 61, 500, options.block_size as usize - 1]);
            Kind::Symlink(vec![b'a' + random.below(26) as u8; len])
        }
        13 => Kind::CharDevice(random.below(4096) as u32, random.below(1 << 20) as u32),
        14 => Kind::BlockDevice(random.below(256) as u32, random.below(256) as u32),
        _ => random.pick(&[Kind::Fifo, Kind::Socket]),
    }
}

fn random_sparse(random: &mut Random) -> Kind {
    let mut pieces = Vec::new();
    let mut offset = random.below(10_000);
    let stride = random.pick(&[1 << 13, 1 << 16, 1 << 30]);
    for _ in 0..random.pick(&[1, 3, 5, 90, 700]) {
        let len = 1 + random.below(6000) as usize;
        pieces.push((offset, random.bytes(len)));
        offset += len as u64 + random.below(stride);
    }
    Kind::Regular(offset + random.below(100_000), pieces)
}

fn random_fields(random: &mut Random, node: &mut Node, options: &Ext4Options) {
    let id = |random: &mut Random| random.pick(&[0, 1, 1000, 65_534, 65_536, 4_294_967_294]);
    (node.uid, node.gid) = (id(random), id(random));
    node.permissions = random.below(0o10000) as u32;
    if matches!(node.kind, Kind::Symlink(_)) {
        node.permissions = 0o777;
    }
    for time in [&mut node.atime, &mut node.mtime, &mut node.ctime] {
        let seconds = random.pick(&[
            0,
            -1,
            1,
            1_700_000_000,
            -2_147_483_648,
            -2_147_483_649,
            2_147_483_647,
            2_147_483_648,
            4_294_967_296,
            15_032_385_535,
            15_032_385_536,
            i64::MAX,
            i64::MIN,
        ]);
        *time = Timestamp {
            seconds,
            nanos: random.pick(&[0, 1, 999_999_999, 500]),
        };
    }
    // Only directories and files may have attributes of users.
    if matches!(node.kind, Kind::Directory | Kind::Regular(..)) && random.one_in(3) {
        let names: [&[u8]; 4] = [
            b"user.a",
            b"user.another one",
            b"trusted.overlay.opaque",
            b"security.bale",
        ];
        for name in names {
            if random.one_in(2) {
                let most = options.block_size as u64 / 5;
                let len = if random.one_in(2) {
                    random.below(20)
                } else {
                    random.below(most)
                };
                let len = if random.one_in(20) {
                    random.below(65_000)
                } else {
                    len
                };
                node.xattrs
                    .push((name.to_vec(), random.bytes(len as usize)));
            }
        }
    }
}
