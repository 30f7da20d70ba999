//! The two programs that the kernel runs for a tracked device, and the memory that they share with
//! Bale.
//!
//! Whatever is no read counts: writes, discards, zeroes. It is marked twice, with the epoch that it
//! is at each time: when it is submitted (`block_bio_queue`, once, before it is split or merged,
//! with its place on the whole disk), and when it has ended (`block_rq_complete`). The second mark
//! is the one that makes an epoch exact: what ends after an epoch began is marked with it. The
//! first one names each range of a discard of several, of which a request that ends has only the
//! first; so a discard is marked with the epoch after its own, in which it may end. One that was
//! under way when an epoch began is noted, too, and answered by reading everything: it may be older
//! than that. A mark is never set to less, so nothing is lost by two processors at once; see
//! `epoch.rs`.

use super::assembler::{Arithmetic, Assembler, R0, R1, R2, R3, R6, R7, R8, R9, R10, When, Width};
use super::btf::{Argument, KernelTypes, KernelTypesError, Tracepoint};
use bale_format::extent::IMAGE_BLOCK_BYTES;
use std::ops::Range;

/// Sectors of Linux, whatever those of the device are.
pub(super) const SECTOR_BYTES: u64 = 512;
/// A block of an image: what one mark stands for.
pub(super) const BLOCK_SECTORS_LOG2: u32 = (IMAGE_BLOCK_BYTES / SECTOR_BYTES).ilog2();
/// What is longer than a stretch is marked by stretches, so that a program ends soon: one request
/// is shorter than 4 GiB.
pub(super) const STRETCH_SECTORS_LOG2: u32 = BLOCK_SECTORS_LOG2 + STRETCH_BLOCKS_LOG2;
pub(super) const STRETCH_BLOCKS_LOG2: u32 = 6;
/// Marks that one request sets: all blocks of a stretch or all stretches of 4 GiB, and one more
/// where it is not aligned.
const MARKS_MAX: i32 = (1 << STRETCH_BLOCKS_LOG2) + 2;

const _: () = assert!(1 << BLOCK_SECTORS_LOG2 == IMAGE_BLOCK_BYTES / SECTOR_BYTES);
const _: () = assert!(
    (u32::MAX as u64 / SECTOR_BYTES) >> STRETCH_SECTORS_LOG2 <= MARKS_MAX as u64 - 2,
    "the longest request"
);

/// Places of words in the control entry.
pub(super) const EPOCH: usize = 0;
/// The epoch in which a discard of several ranges ended that had begun before it.
pub(super) const DOUBT: usize = 1;
/// When the epoch began, by the kernel's clock of requests.
pub(super) const SWITCHED: usize = 2;
/// Only for Bale itself from here on.
pub(super) const TRACKING_ID: usize = 3;
pub(super) const DISK: usize = 4;
pub(super) const DISK_SEQUENCE: usize = 5;
pub(super) const FIRST_SECTOR: usize = 6;
pub(super) const SECTORS: usize = 7;
pub(super) const STARTED: usize = 8;
pub(super) const LAYOUT: usize = 9;
/// From here on the ids of the newest epochs, each at its number modulo their count.
pub(super) const EPOCH_IDS: usize = 16;
/// Epochs that a snapshot may be behind. With the id, 32 KiB of the kernel's memory.
pub(super) const EPOCH_IDS_MAX: u64 = 4096;
pub(super) const CONTROL_WORDS: usize = EPOCH_IDS + EPOCH_IDS_MAX as usize;
/// Of the control entry and the arrays, in the word [`LAYOUT`].
pub(super) const LAYOUT_VERSION: u64 = 2;

const OPERATION_BITS: i32 = 0xff;
const READ: i32 = 0;
const DISCARD: i32 = 3;

/// Arrays as descriptors.
#[derive(Clone, Copy)]
pub(super) struct Arrays {
    pub(super) control: i32,
    pub(super) blocks: i32,
    pub(super) stretches: i32,
}

/// What is tracked: a range of sectors of a disk.
#[derive(Clone, Debug)]
pub(super) struct TrackedRange {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) sectors: Range<u64>,
}

/// Tracepoints and fields of the running kernel.
pub(super) struct Kernel {
    pub(super) queued: Tracepoint,
    pub(super) ended: Tracepoint,
    bio_device: i16,
    bio_operation: i16,
    bio_sector: i16,
    bio_bytes: i16,
    device_disk: i16,
    disk_major: i16,
    disk_minor: i16,
    request_queue: i16,
    request_operation: i16,
    request_sector: i16,
    request_first: i16,
    request_last: i16,
    request_began: i16,
    queue_disk: i16,
}

impl Kernel {
    pub(super) fn of(types: &KernelTypes<'_>) -> Result<Kernel, KernelTypesError> {
        let field = |of: &str, path: &str, bytes: u64| {
            let offset = types.field(of, path, bytes)?;
            Ok(i16::try_from(offset).expect("checked by field"))
        };
        Ok(Kernel {
            queued: types.tracepoint("block_bio_queue", &[Argument::PointerTo("bio")])?,
            ended: types.tracepoint(
                "block_rq_complete",
                // The request, and so many bytes of it.
                &[Argument::PointerTo("request"), Argument::Unsigned4],
            )?,
            bio_device: field("bio", "bi_bdev", 8)?,
            bio_operation: field("bio", "bi_opf", 4)?,
            bio_sector: field("bio", "bi_iter.bi_sector", 8)?,
            bio_bytes: field("bio", "bi_iter.bi_size", 4)?,
            device_disk: field("block_device", "bd_disk", 8)?,
            disk_major: field("gendisk", "major", 4)?,
            disk_minor: field("gendisk", "first_minor", 4)?,
            request_queue: field("request", "q", 8)?,
            request_operation: field("request", "cmd_flags", 4)?,
            request_sector: field("request", "__sector", 8)?,
            request_first: field("request", "bio", 8)?,
            request_last: field("request", "biotail", 8)?,
            request_began: field("request", "start_time_ns", 8)?,
            queue_disk: field("request_queue", "disk", 8)?,
        })
    }

    /// For what is submitted.
    pub(super) fn queued_program(&self, range: &TrackedRange, arrays: Arrays) -> Vec<u64> {
        let mut program = Assembler::default();
        program.load(Width::Bytes8, R6, R1, argument(&self.queued, 0));
        program.load(Width::Bytes4, R2, R6, self.bio_operation);
        program.with_number(Arithmetic::And, R2, OPERATION_BITS);
        program.jump_if_number(R2, When::Equal, READ, "out");
        program.with_number(Arithmetic::Set, R9, 0);
        program.jump_if_number(R2, When::Differs, DISCARD, "this epoch");
        program.with_number(Arithmetic::Set, R9, 1);
        program.label("this epoch");
        program.load(Width::Bytes8, R3, R6, self.bio_device);
        program.load(Width::Bytes8, R3, R3, self.device_disk);
        self.require_disk(&mut program, range);
        program.load(Width::Bytes8, R7, R6, self.bio_sector);
        program.load(Width::Bytes4, R8, R6, self.bio_bytes);
        mark(&mut program, range, arrays);
        program.finish()
    }

    /// For what has ended, or a part of it.
    pub(super) fn ended_program(&self, range: &TrackedRange, arrays: Arrays) -> Vec<u64> {
        let mut program = Assembler::default();
        program.load(Width::Bytes8, R6, R1, argument(&self.ended, 0));
        program.load(Width::Bytes8, R8, R1, argument(&self.ended, 1));
        // A number of four bytes; what is above them nobody promises.
        program.set_wide(R2, u64::from(u32::MAX));
        program.with(Arithmetic::And, R8, R2);
        program.load(Width::Bytes4, R9, R6, self.request_operation);
        program.with_number(Arithmetic::And, R9, OPERATION_BITS);
        program.jump_if_number(R9, When::Equal, READ, "out");
        program.load(Width::Bytes8, R3, R6, self.request_queue);
        program.load(Width::Bytes8, R3, R3, self.queue_disk);
        self.require_disk(&mut program, range);
        program.jump_if_number(R9, When::Differs, DISCARD, "one range");
        program.load(Width::Bytes8, R2, R6, self.request_first);
        program.load(Width::Bytes8, R3, R6, self.request_last);
        program.jump_if(R2, When::Equal, R3, "one range");
        program.set_entry(R1, arrays.control);
        // 0 where the kernel does not note it.
        program.load(Width::Bytes8, R2, R6, self.request_began);
        program.load(Width::Bytes8, R3, R1, word(SWITCHED));
        program.jump_if(R2, When::AtLeast, R3, "one range");
        program.load(Width::Bytes8, R2, R1, word(EPOCH));
        program.store(Width::Bytes8, R1, word(DOUBT), R2);
        program.label("one range");
        program.load(Width::Bytes8, R7, R6, self.request_sector);
        program.with_number(Arithmetic::Set, R9, 0);
        mark(&mut program, range, arrays);
        program.finish()
    }

    /// Goes on if the disk in `R3` is the tracked one.
    fn require_disk(&self, program: &mut Assembler, range: &TrackedRange) {
        for (field, number) in [
            (self.disk_major, range.major),
            (self.disk_minor, range.minor),
        ] {
            program.load(Width::Bytes4, R2, R3, field);
            program.jump_if_number(R2, When::Differs, number as i32, "out");
        }
    }
}

fn argument(tracepoint: &Tracepoint, which: usize) -> i16 {
    (tracepoint.arguments[which] * 8) as i16
}

fn word(place: usize) -> i16 {
    (place * 8) as i16
}

/// Marks the sectors from `R7` on, `R8` bytes of them, with the epoch that is `R9` behind this one,
/// and ends the program.
fn mark(program: &mut Assembler, range: &TrackedRange, arrays: Arrays) {
    program.with_number(Arithmetic::ShiftRight, R8, SECTOR_BYTES.ilog2() as i32);
    program.jump_if_number(R8, When::Equal, 0, "out");
    // R8 is behind the last sector from here on; both become relative to what is tracked.
    program.with(Arithmetic::Add, R8, R7);
    program.set_wide(R2, range.sectors.start);
    program.jump_if(R2, When::AtLeast, R8, "out");
    program.jump_if(R7, When::AtLeast, R2, "begins within");
    program.with(Arithmetic::Set, R7, R2);
    program.label("begins within");
    program.set_wide(R3, range.sectors.end);
    program.jump_if(R7, When::AtLeast, R3, "out");
    program.jump_if(R3, When::AtLeast, R8, "ends within");
    program.with(Arithmetic::Set, R8, R3);
    program.label("ends within");
    program.with(Arithmetic::Subtract, R7, R2);
    program.with(Arithmetic::Subtract, R8, R2);
    // The last sector itself.
    program.with_number(Arithmetic::Subtract, R8, 1);
    program.set_entry(R1, arrays.control);
    program.load(Width::Bytes8, R2, R1, word(EPOCH));
    program.with(Arithmetic::Add, R9, R2);
    program.with(Arithmetic::Set, R2, R8);
    program.with(Arithmetic::Subtract, R2, R7);
    program.with_number(Arithmetic::ShiftRight, R2, STRETCH_SECTORS_LOG2 as i32);
    program.jump_if_number(R2, When::Above, 0, "long");
    let labels = ("next block", "marked block");
    mark_each(program, BLOCK_SECTORS_LOG2, arrays.blocks, labels);
    program.label("long");
    let labels = ("next stretch", "marked stretch");
    mark_each(program, STRETCH_SECTORS_LOG2, arrays.stretches, labels);
    program.label("out");
    program.with_number(Arithmetic::Set, R0, 0);
    program.exit();
}

/// Stores the epoch of `R9` in every entry of an array that sectors `R7` to `R8` touch.
fn mark_each(
    program: &mut Assembler,
    sectors_log2: u32,
    array: i32,
    (next, marked): (&'static str, &'static str),
) {
    program.with_number(Arithmetic::ShiftRight, R7, sectors_log2 as i32);
    program.with_number(Arithmetic::ShiftRight, R8, sectors_log2 as i32);
    program.with_number(Arithmetic::Set, R6, 0);
    program.label(next);
    program.with(Arithmetic::Set, R2, R7);
    program.with(Arithmetic::Add, R2, R6);
    program.jump_if(R2, When::Above, R8, "out");
    program.store(Width::Bytes4, R10, -4, R2);
    program.set_array(R1, array);
    program.with(Arithmetic::Set, R2, R10);
    program.with_number(Arithmetic::Add, R2, -4);
    program.look_up();
    program.jump_if_number(R0, When::Equal, 0, "out");
    program.load(Width::Bytes8, R2, R0, 0);
    program.jump_if(R2, When::AtLeast, R9, marked);
    program.store(Width::Bytes8, R0, 0, R9);
    program.label(marked);
    program.with_number(Arithmetic::Add, R6, 1);
    // Never, as requests are no longer than that; so the kernel sees that it ends.
    program.jump_if_number(R6, When::AtLeast, MARKS_MAX, "out");
    program.jump(next);
}
