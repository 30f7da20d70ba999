//! Damages images in places that a scan reads, and tells what a scan that goes on after errors
//! still finds.

use std::collections::BTreeSet;
use std::sync::Mutex;

use bale_fsimage::ByteSource;
use bale_fsimage::xfs::{DiskInode, ForkKind, Xfs, XfsError};

use super::Random;

/// A damaged file system may cost more reads than a sound one, but not many times more.
const READS_FACTOR_MAX: u64 = 10;
const READS_MORE_MAX: u64 = 20_000;

/// An image in memory that counts what is read of it.
struct Recorded<'a> {
    bytes: &'a [u8],
    reads: Mutex<Vec<(u64, usize)>>,
}

impl ByteSource for Recorded<'_> {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.reads.lock().unwrap().push((offset, buffer.len()));
        let start = usize::try_from(offset).unwrap();
        let bytes = self
            .bytes
            .get(start..start + buffer.len())
            .ok_or(std::io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// All facts that a scan yields, and what it complained of.
#[derive(Default)]
pub struct Scan {
    pub facts: BTreeSet<Vec<u8>>,
    pub errors: Vec<XfsError>,
    pub reads: Vec<(u64, usize)>,
}

pub fn scan(bytes: &[u8]) -> Scan {
    let source = Recorded {
        bytes,
        reads: Mutex::default(),
    };
    let mut scan = Scan::default();
    match Xfs::open(&source) {
        Ok(xfs) => scan_groups(&xfs, &source, &mut scan),
        Err(error) => scan.errors.push(error),
    }
    scan.reads = source.reads.into_inner().unwrap();
    scan
}

fn scan_groups(xfs: &Xfs, source: &dyn ByteSource, scan: &mut Scan) {
    if let Err(error) = xfs.log_state(source) {
        scan.errors.push(error);
    }
    let mut bytes = Vec::new();
    for ag in 0..xfs.superblock().ag_count {
        let chunks = match xfs.inode_chunks(source, ag) {
            Ok(chunks) => chunks,
            Err(error) => {
                scan.errors.push(error);
                continue;
            }
        };
        for chunk in chunks {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => {
                    scan.errors.push(error);
                    continue;
                }
            };
            let Some((offset, len)) = chunk.device_range(xfs.superblock().inode_bytes) else {
                continue;
            };
            bytes.resize(len, 0);
            source.read_exact_at(offset, &mut bytes).unwrap();
            for (_, inode) in xfs.chunk_inodes(&chunk, &bytes) {
                match inode {
                    Ok(inode) => scan_inode(xfs, source, &inode, scan),
                    Err(error) => scan.errors.push(error),
                }
            }
        }
    }
}

fn scan_inode(xfs: &Xfs, source: &dyn ByteSource, inode: &DiskInode<'_>, scan: &mut Scan) {
    let number = inode.number;
    let Scan { facts, errors, .. } = scan;
    facts.insert(format!("{:?}", inode.to_inode()).into_bytes());
    let mut fact = |what: &str, value: &[u8]| {
        facts.insert([number.to_string().as_bytes(), what.as_bytes(), value].concat());
    };
    let mut outcomes = Vec::new();
    for fork in [ForkKind::Data, ForkKind::Attributes] {
        match xfs.extents(source, inode, fork) {
            Ok(extents) => {
                for extent in extents {
                    outcomes.push(extent.map(|extent| {
                        let numbers = [
                            extent.file_offset,
                            extent.device_offset,
                            extent.len,
                            extent.unwritten.into(),
                        ];
                        fact("extent", numbers.map(u64::to_le_bytes).as_flattened());
                    }));
                }
            }
            Err(error) => outcomes.push(Err(error)),
        }
    }
    if inode.kind == bale_fsimage::FileKind::Directory {
        outcomes.push(xfs.read_dir(source, inode, &mut |name| {
            fact("name", &[name.name, &name.inode.to_le_bytes()].concat())
        }));
    }
    outcomes.push(xfs.xattrs(source, inode, &mut |name, value| {
        fact("attribute", &[name, b"=", value].concat())
    }));
    if inode.kind == bale_fsimage::FileKind::Symlink {
        let mut target = Vec::new();
        outcomes.push(
            xfs.symlink_target(source, inode, &mut target)
                .map(|()| fact("target", &target)),
        );
    }
    errors.extend(outcomes.into_iter().filter_map(Result::err));
}

/// Where a kind of block keeps its checksum, and how long it is, by its magic.
fn checksum_place(bytes: &[u8]) -> Option<(usize, usize)> {
    Some(match (&bytes[..4], &bytes[8..10]) {
        (b"XFSB", _) => (224, 512),
        (b"XAGI", _) => (312, 512),
        (b"IAB3", _) => (52, 1024),
        (b"BMA3", _) => (64, 1024),
        (b"XDB3" | b"XDD3", _) => (4, 4096),
        (b"XARM" | b"XSLM", _) => (12, 1024),
        ([b'I', b'N', ..], _) => (100, 512),
        (_, b"\x3b\xee" | b"\x3e\xbe") => (12, 1024),
        _ => return None,
    })
}

/// Makes the checksum right of the structure at or up to 4 KiB before `at`.
pub fn mend_checksum(bytes: &mut [u8], at: usize) {
    for step in 0..8 {
        let Some(start) = (at / 512 * 512).checked_sub(step * 512) else {
            return;
        };
        if let Some((crc_at, len)) =
            checksum_place(&bytes[start..]).filter(|place| start + place.1 > at)
        {
            let block = &mut bytes[start..start + len];
            block[crc_at..crc_at + 4].fill(0);
            let crc = crc32c::crc32c(block).to_le_bytes();
            block[crc_at..crc_at + 4].copy_from_slice(&crc);
            return;
        }
    }
}

/// Damages the image `rounds` times in places that a scan reads, hands each to `judge`, and mends
/// it.
pub fn for_each_damage(
    image: &mut [u8],
    sound: &Scan,
    rounds: u64,
    mend: bool,
    mut judge: impl FnMut(&Scan, &str),
) {
    for round in 0..rounds {
        let mut random = Random(round << 1 | u64::from(mend));
        let mut undo = Vec::new();
        for _ in 0..=random.below(3) {
            let (offset, len) = sound.reads[random.below(sound.reads.len() as u64) as usize];
            // Headers are where the interesting fields are.
            let len = if random.below(2) == 0 {
                len.min(256)
            } else {
                len
            };
            let at = offset as usize + random.below(len as u64) as usize;
            let span = (at / 512 * 512).saturating_sub(4096)..at / 512 * 512 + 4096;
            undo.push((span.start, image[span].to_vec()));
            image[at] = match random.below(4) {
                0 => 0,
                1 => 0xff,
                2 => random.next() as u8,
                _ => image[at] ^ 1 << random.below(8),
            };
            if mend {
                mend_checksum(image, at);
            }
        }
        let damaged = scan(image);
        let allowed = sound.reads.len() as u64 * READS_FACTOR_MAX + READS_MORE_MAX;
        assert!(
            (damaged.reads.len() as u64) < allowed,
            "round {round}: {} reads",
            damaged.reads.len()
        );
        judge(&damaged, &format!("round {round}"));
        for (start, bytes) in undo.into_iter().rev() {
            image[start..start + bytes.len()].copy_from_slice(&bytes);
        }
    }
}
