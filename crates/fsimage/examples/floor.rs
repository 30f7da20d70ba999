//! The floor of a scan and of a backup: how long does it take to read a file system's inode tables,
//! directory blocks and data blocks in the order of the device, past the page cache, one read at a
//! time, and to do nothing else?
//!
//! `floor DEVICE [metadata|all]`, of an ext4 or XFS that nobody writes to. Prints a line for each
//! pass, and as the last line `metadata S all S`: seconds for inode tables and directories, and for
//! these and the content of all files. Inodes of ext4 are not checked against their checksums,
//! names are not looked at, nothing is sorted but places.

use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::Instant;

use bale_fsimage::ext4::{Ext4, Mapping, RawInode};
use bale_fsimage::xfs::{ForkKind, Xfs};
use bale_fsimage::{ByteSource, FileKind};
use rustix::fs::OFlags;

/// Largest single read.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Gap that is read rather than skipped.
const GAP_BYTES_MAX: u64 = 64 << 10;
/// Direct reads begin and end at multiples of this.
const ALIGNMENT: u64 = 4096;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, all) = match &arguments[..] {
        [path] => (path, true),
        [path, what] if what == "all" || what == "metadata" => (path, what == "all"),
        _ => return Err("usage: floor DEVICE [metadata|all]".into()),
    };
    let began = Instant::now();
    let mut disk = Disk::open(path)?;
    let buffered = Arc::new(File::open(path)?);
    let mut places = match Ext4::open(buffered.clone()) {
        Ok(fs) => ext4_tables(&fs, &mut disk)?,
        Err(not_ext4) => match Xfs::open(buffered.as_ref()) {
            Ok(xfs) => xfs_tables(&xfs, buffered.as_ref(), &mut disk)?,
            Err(not_xfs) => return Err(format!("{not_ext4}; {not_xfs}").into()),
        },
    };
    disk.tell("inode tables", places.inodes, began.elapsed().as_secs_f64());
    disk.sweep(&mut places.directories, "directories")?;
    let metadata_seconds = began.elapsed().as_secs_f64();
    if !all {
        println!("metadata {metadata_seconds:.3}");
        return Ok(());
    }
    disk.sweep(&mut places.files, "files")?;
    let seconds = began.elapsed().as_secs_f64();
    println!("metadata {metadata_seconds:.3} all {seconds:.3}");
    Ok(())
}

/// A device read past the page cache, and what was read of it.
struct Disk {
    file: File,
    buffer: Vec<u8>,
    reads: u64,
    bytes: u64,
}

impl Disk {
    fn open(path: &str) -> io::Result<Disk> {
        let flags = OFlags::DIRECT.bits() as i32;
        Ok(Disk {
            file: File::options().read(true).custom_flags(flags).open(path)?,
            buffer: vec![0; (READ_BYTES_MAX + 3 * ALIGNMENT) as usize],
            reads: 0,
            bytes: 0,
        })
    }

    /// The bytes of a range of at most `READ_BYTES_MAX`; fewer at the end of the device.
    fn read(&mut self, range: Range<u64>) -> io::Result<&[u8]> {
        let address = self.buffer.as_ptr() as usize;
        let at = address.next_multiple_of(ALIGNMENT as usize) - address;
        let start = range.start - range.start % ALIGNMENT;
        let len = (range.end.next_multiple_of(ALIGNMENT) - start) as usize;
        let got = self.file.read_at(&mut self.buffer[at..at + len], start)?;
        self.reads += 1;
        self.bytes += got as u64;
        let lead = (range.start - start) as usize;
        let end = got.min((range.end - start) as usize);
        Ok(&self.buffer[at + lead.min(end)..at + end])
    }

    /// Reads places in the order of the device, neighbours together.
    fn sweep(&mut self, places: &mut [Range<u64>], what: &str) -> io::Result<()> {
        let (began, reads, bytes) = (Instant::now(), self.reads, self.bytes);
        places.sort_unstable_by_key(|place| place.start);
        let mut at = 0;
        while at < places.len() {
            let mut run = places[at].clone();
            at += 1;
            while let Some(next) = places.get(at)
                && next.start <= run.end + GAP_BYTES_MAX
                && next.end.max(run.end) - run.start <= READ_BYTES_MAX
            {
                run.end = run.end.max(next.end);
                at += 1;
            }
            while run.start < run.end {
                let end = run.end.min(run.start + READ_BYTES_MAX);
                self.read(run.start..end)?;
                run.start = end;
            }
        }
        (self.reads, self.bytes) = (self.reads - reads, self.bytes - bytes);
        self.tell(what, places.len() as u64, began.elapsed().as_secs_f64());
        (self.reads, self.bytes) = (self.reads + reads, self.bytes + bytes);
        Ok(())
    }

    fn tell(&self, what: &str, count: u64, seconds: f64) {
        let megabytes = self.bytes as f64 / 1e6;
        let reads = self.reads;
        println!("{what}: {count} in {reads} reads of {megabytes:.1} MB, {seconds:.3} s");
    }
}

/// Where everything lies.
#[derive(Default)]
struct Places {
    inodes: u64,
    directories: Vec<Range<u64>>,
    files: Vec<Range<u64>>,
}

impl Places {
    fn of(&mut self, kind: FileKind) -> &mut Vec<Range<u64>> {
        match kind {
            FileKind::Directory => &mut self.directories,
            _ => &mut self.files,
        }
    }
}

fn ext4_tables(fs: &Ext4, disk: &mut Disk) -> Result<Places, Failure> {
    let mut places = Places::default();
    for range in fs.itable_ranges() {
        for piece in range.pieces(READ_BYTES_MAX) {
            let span = piece.device_offset..piece.device_offset + piece.len_bytes();
            let table = disk.read(span)?;
            let inodes = table.chunks_exact(piece.inode_bytes as usize);
            for (number, bytes) in (piece.first_inode..).zip(inodes) {
                ext4_inode(fs, number, bytes, &mut places)?;
            }
        }
    }
    Ok(places)
}

fn ext4_inode(fs: &Ext4, number: u64, bytes: &[u8], places: &mut Places) -> Result<(), Failure> {
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
    let (mode, links, flags) = (u16_at(0), u16_at(26), u32_at(32));
    if mode == 0 || links == 0 {
        return Ok(());
    }
    places.inodes += 1;
    let kind = match FileKind::from_mode(mode.into()) {
        Some(kind @ (FileKind::Regular | FileKind::Directory)) => kind,
        _ => return Ok(()),
    };
    const INLINE_DATA: u32 = 0x1000_0000;
    const EXTENTS: u32 = 0x8_0000;
    if flags & INLINE_DATA != 0 {
        return Ok(());
    }
    let (magic, entries, depth) = (u16_at(40), usize::from(u16_at(42)), u16_at(46));
    if flags & EXTENTS != 0 && magic == 0xF30A && depth == 0 && entries <= 4 {
        let block_bytes = u64::from(fs.superblock().block_bytes);
        for at in (52..).step_by(12).take(entries) {
            // Longer than 32768: allocated and not written.
            let blocks = u64::from(u16_at(at + 4));
            let first = u64::from(u16_at(at + 6)) << 32 | u64::from(u32_at(at + 8));
            if blocks <= 32768 {
                let start = first * block_bytes;
                places.of(kind).push(start..start + blocks * block_bytes);
            }
        }
        return Ok(());
    }
    let raw = RawInode::new(number, bytes).ok_or("an inode is cut short")?;
    fs.walk_mapping(&raw, &mut |mapping| {
        if let Mapping::Extent(extent) = mapping
            && !extent.unwritten
        {
            let start = extent.device_offset;
            places.of(kind).push(start..start + extent.len);
        }
        ControlFlow::Continue(())
    })?;
    Ok(())
}

fn xfs_tables(xfs: &Xfs, source: &dyn ByteSource, disk: &mut Disk) -> Result<Places, Failure> {
    let mut places = Places::default();
    let inode_bytes = xfs.superblock().inode_bytes;
    for ag in 0..xfs.superblock().ag_count {
        let mut run = Vec::new();
        let mut run_range = 0..0;
        for chunk in xfs.inode_chunks(source, ag)? {
            let chunk = chunk?;
            let Some((start, len)) = chunk.device_range(inode_bytes) else {
                continue;
            };
            let end = start + len as u64;
            let near = start >= run_range.end && start - run_range.end <= GAP_BYTES_MAX;
            if !run.is_empty() && (!near || end - run_range.start > READ_BYTES_MAX) {
                xfs_run(xfs, source, disk, &run, run_range.clone(), &mut places)?;
                run.clear();
            }
            if run.is_empty() {
                run_range.start = start;
            }
            run_range.end = end;
            run.push((chunk, start));
        }
        xfs_run(xfs, source, disk, &run, run_range, &mut places)?;
    }
    Ok(places)
}

fn xfs_run(
    xfs: &Xfs,
    source: &dyn ByteSource,
    disk: &mut Disk,
    chunks: &[(bale_fsimage::xfs::InodeChunk, u64)],
    range: Range<u64>,
    places: &mut Places,
) -> Result<(), Failure> {
    if chunks.is_empty() {
        return Ok(());
    }
    let base = range.start;
    let bytes = disk.read(range)?;
    for (chunk, start) in chunks {
        let at = (start - base) as usize;
        let len = chunk.device_range(xfs.superblock().inode_bytes);
        let len = len.map_or(0, |(_, len)| len);
        for (_, inode) in xfs.chunk_inodes(chunk, &bytes[at..at + len]) {
            let inode = inode?;
            places.inodes += 1;
            if inode.is_inline() || inode.is_realtime() {
                continue;
            }
            match inode.kind {
                FileKind::Directory => {
                    for block in xfs.dir_blocks(source, &inode)? {
                        let block = block?;
                        let pieces = block.pieces().map(|piece| {
                            piece.device_offset..piece.device_offset + u64::from(piece.len_bytes)
                        });
                        places.directories.extend(pieces);
                    }
                }
                FileKind::Regular => {
                    for extent in xfs.extents(source, &inode, ForkKind::Data)? {
                        let extent = extent?;
                        if !extent.unwritten {
                            let start = extent.device_offset;
                            places.files.push(start..start + extent.len);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}
