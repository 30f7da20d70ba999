//! One file on a kernel, a device and under a scanner, all in the smallest steps that matter, in
//! every order: once nobody writes any more, the next backup must have its bytes.
//!
//! The steps are those of real kernels: a write stamps first and copies later, and holds a lock
//! that only some readers wait for; a store through a map stamps when its page becomes writable and
//! not again until the page was written back; a truncation shows its length before its time; a
//! defragmenter moves blocks and stamps nothing; a crash leaves what was committed and what was
//! written, which is not the same. What is decided is decided by the functions that a backup calls
//! (`rule`, and `Time::is_stamped_before`); what the scanners do around them is told here once
//! more, in few words.

mod orders;
mod world;

use super::{
    has_no_trouble, has_no_trouble_but_racy, is_change_under_way, is_not_racy,
    metadata_is_unchanged,
};
use bale_format::{Content, Entry, EntryFlags, Kind, RowView, Time};
use bytes::Bytes;
use std::collections::HashSet;
use world::World;

/// The file is that many blocks long.
const BLOCKS: usize = 2;
/// Another file's bytes.
const FOREIGN: u8 = 9;
/// When everything begins; the file is as old as time.
const START: u8 = 8;
/// Of the clock of a walk: `scan::barrier_now` is two ticks back.
const TICKS_OF_DOUBT: u8 = 2;

/// What a file system cuts times to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Ticks of 10 ms, nanoseconds that divide by nothing.
    Nanosecond,
    /// Ticks of half a second.
    Second,
}

impl Unit {
    fn moment(self, tick: u8) -> Time {
        let tick = i64::from(tick);
        match self {
            Unit::Nanosecond => Time {
                seconds: 1_000,
                nanos: tick as u32 * 10_000_000 + 1,
            },
            Unit::Second => Time {
                seconds: 1_000 + tick / 2,
                nanos: (tick % 2) as u32 * 500_000_000 + 1,
            },
        }
    }

    /// How far the clock goes while the scanner is at work: a little more than the doubt about a
    /// stamp.
    fn ticks_max(self) -> u8 {
        match self {
            Unit::Nanosecond => TICKS_OF_DOUBT + 1,
            Unit::Second => 5,
        }
    }

    /// What the kernel stamps at a moment.
    fn stamp(self, tick: u8) -> Time {
        let moment = self.moment(tick);
        match self {
            Unit::Nanosecond => moment,
            Unit::Second => Time { nanos: 0, ..moment },
        }
    }

    /// What a scan without a freeze takes for its barrier.
    fn barrier_now(self, tick: u8) -> Time {
        match self {
            Unit::Nanosecond => self.moment(tick - TICKS_OF_DOUBT),
            // 20 ms of half a second.
            Unit::Second => Time {
                nanos: 480_000_000,
                ..self.moment(tick - 1)
            },
        }
    }
}

/// What `stat` tells, and where the blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Inode {
    blocks: u8,
    /// The tick of its stamp.
    ctime: u8,
    place: usize,
}

/// A small step of who changes the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A write or a truncation begins, and holds the lock; a freeze waits for its end.
    Lock,
    Unlock,
    /// A direct write into blocks that exist: a freeze waits for its end, a reader does not.
    BeginDirect,
    EndDirect,
    Stamp,
    Page(usize, u8),
    Block(usize, u8),
    /// Through a map: a page that is clean is first made writable.
    Store(usize, u8),
    /// Another length, under the ctime of before.
    Cut(u8),
    /// The blocks are elsewhere.
    Move,
    /// Another file has what became free.
    Reuse,
    /// The name is in a directory that changes.
    Rename,
}

/// How the file is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Walk,
    Frozen,
    Unfrozen,
}

/// What is left out of the rule, to see that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    Barrier,
    SecondLook,
    /// Rows of inodes that changed meanwhile are compared like all others.
    Moved,
    UnitsOfTimes,
    /// Nor is anybody asked: where a file system has no leases.
    WaitingForWriters,
    /// Nobody is asked whether somebody has the file open for writing.
    AskingForWriters,
    WritingBack,
    /// Digests are kept of inodes that the kernel told of.
    ForgettingAsked,
    /// What did not change and has another name is read from the device, with no look afterwards.
    KernelInSecondPass,
}

#[derive(Clone, Copy)]
struct Rule {
    mode: Mode,
    unit: Unit,
    without: Without,
    /// Power may fail once the backup is done.
    may_crash: bool,
    /// The file may be changed between that and the crash.
    writes_later: bool,
}

/// A row as it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Row {
    inode: Inode,
    bytes: [u8; BLOCKS],
    flags: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    #[default]
    Begin,
    /// Pages that were written back.
    Sync(usize),
    Look,
    /// Through the kernel: blocks read, attempts.
    Wait(u8),
    Read(usize, u8),
    Check(u8),
    Device(usize),
    LookAgain(usize),
    Ask,
    Done,
}

/// The scanner under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Scan {
    stage: Stage,
    barrier: Option<u8>,
    stat: Option<Inode>,
    /// What the tables said at the first look.
    table: Option<Inode>,
    bytes: [u8; BLOCKS],
    flags: u32,
    row: Option<Row>,
    asked: bool,
    changed: bool,
    second: bool,
}

impl Rule {
    fn barrier(&self, scan: &Scan) -> Option<Time> {
        let tick = scan.barrier.expect("a barrier was made");
        Some(match (self.without, self.mode) {
            (Without::Barrier, _) => Time {
                seconds: i64::MAX,
                nanos: 0,
            },
            (_, Mode::Frozen) => self.unit.moment(tick),
            _ => self.unit.barrier_now(tick),
        })
    }

    fn is_not_racy(&self, ctime: u8, scan: &Scan) -> bool {
        let (ctime, barrier) = (self.unit.stamp(ctime), self.barrier(scan));
        match self.without {
            Without::UnitsOfTimes => barrier.is_some_and(|barrier| ctime < barrier),
            _ => is_not_racy(ctime, barrier),
        }
    }

    fn entry(&self, inode: Inode) -> Entry {
        let mut entry = Entry::new(Bytes::new(), Bytes::from_static(b"file"), Kind::File);
        entry.size = inode.blocks.into();
        entry.ctime = self.unit.stamp(inode.ctime);
        entry.mtime = entry.ctime;
        entry
    }

    fn with_view<R>(&self, row: &Row, look: impl FnOnce(&RowView) -> R) -> R {
        let entry = self.entry(row.inode);
        look(&RowView {
            kind: entry.kind,
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            size: entry.size,
            mtime: entry.mtime,
            ctime: entry.ctime,
            inode: entry.inode,
            nlink: entry.nlink,
            filesystem: entry.filesystem,
            rdev: entry.rdev,
            xattrs: &[],
            flags: EntryFlags(row.flags),
            content: Content::None,
        })
    }

    /// The scanner's next step. `None`: it must wait, or is done.
    fn scan(&self, world: &World) -> Option<World> {
        let mut next = world.clone();
        let stage = match world.scan.stage {
            Stage::Begin => self.begin(world, &mut next)?,
            Stage::Sync(BLOCKS) => {
                next.durable = world.inode;
                Stage::Look
            }
            Stage::Sync(at) => {
                next.write_back(at);
                Stage::Sync(at + 1)
            }
            Stage::Look => self.look(world, &mut next),
            // What is empty is not opened.
            Stage::Wait(_) if stat(world).blocks == 0 => self.made(&mut next),
            Stage::Wait(_) if world.locked && self.without != Without::WaitingForWriters => {
                return None;
            }
            Stage::Wait(attempt) => {
                let asks = !matches!(
                    self.without,
                    Without::AskingForWriters | Without::WaitingForWriters
                );
                if world.under_way && asks {
                    next.scan.flags |= EntryFlags::RACY.0;
                }
                Stage::Read(0, attempt)
            }
            Stage::Read(at, attempt) if at < stat(world).blocks.into() => {
                next.scan.bytes[at] = world.pages[at];
                Stage::Read(at + 1, attempt)
            }
            Stage::Read(_, attempt) => Stage::Check(attempt),
            Stage::Check(attempt) => self.check(world, &mut next, attempt),
            Stage::Device(at) if at < stat(world).blocks.into() => {
                next.scan.bytes[at] = world.blocks[stat(world).place][at];
                Stage::Device(at + 1)
            }
            Stage::Device(_) => self.made(&mut next),
            Stage::LookAgain(at) => self.look_again(world, &mut next, at)?,
            Stage::Ask => self.ask(world, &mut next),
            Stage::Done => return None,
        };
        next.scan.stage = stage;
        Some(next)
    }

    fn begin(&self, world: &World, next: &mut World) -> Option<Stage> {
        next.scan.barrier = Some(world.tick);
        Some(match self.mode {
            Mode::Frozen if world.under_way => return None,
            Mode::Frozen => {
                next.sync();
                Stage::Look
            }
            _ if self.without == Without::WritingBack => Stage::Look,
            _ => Stage::Sync(0),
        })
    }

    /// What `stat` or the tables tell; where the content is to be read.
    fn look(&self, world: &World, next: &mut World) -> Stage {
        next.scan.stat = Some(world.inode);
        next.scan.table = Some(world.inode);
        // A walk is asked of the kernel altogether, and has no digests.
        let is_late = !self.is_not_racy(world.inode.ctime, &world.scan);
        match self.mode == Mode::Frozen && !is_late {
            true => Stage::Device(0),
            false => {
                next.scan.asked = true;
                Stage::Wait(0)
            }
        }
    }

    /// A `stat` after the content was read.
    fn check(&self, world: &World, next: &mut World, attempt: u8) -> Stage {
        let stands = self.with_view(&row_of(world), |row| {
            metadata_is_unchanged(&self.entry(world.inode), row)
        });
        if !stands {
            next.scan.stat = Some(world.inode);
            if attempt == 0 {
                return Stage::Wait(1);
            }
            next.scan.flags |= EntryFlags::CHANGED.0;
        }
        self.made(next)
    }

    fn made(&self, next: &mut World) -> Stage {
        next.scan.row = Some(row_of(next));
        match self.mode == Mode::Walk || next.scan.second || self.without == Without::SecondLook {
            true => Stage::Done,
            false => Stage::LookAgain(0),
        }
    }

    fn look_again(&self, world: &World, next: &mut World, at: usize) -> Option<Stage> {
        match (self.mode, at) {
            (Mode::Frozen, _) if world.under_way => return None,
            (Mode::Frozen, _) => next.sync(),
            (_, BLOCKS) => next.durable = world.inode,
            (_, at) => {
                next.write_back(at);
                return Some(Stage::LookAgain(at + 1));
            }
        }
        let is_same = world.scan.table == Some(world.inode);
        next.scan.changed = !is_same;
        Some(match is_same && !world.renamed {
            true => Stage::Done,
            false => Stage::Ask,
        })
    }

    /// The second pass: its parent is what the first one stored, unless the name has another path
    /// now.
    fn ask(&self, world: &World, next: &mut World) -> Stage {
        let first = world.scan.row.expect("the first pass made a row");
        let new = self.entry(world.inode);
        let is_there = !world.renamed;
        next.scan.second = true;
        if self.without == Without::KernelInSecondPass && !world.scan.changed {
            return Stage::Device(0);
        }
        next.scan.asked = true;
        let is_kept = is_there
            && (!world.scan.changed || self.without == Without::Moved)
            && self.with_view(&first, |row| metadata_is_unchanged(&new, row))
            && self.with_view(&first, has_no_trouble_but_racy)
            && self.is_not_racy(first.inode.ctime, &world.scan);
        if is_kept {
            return Stage::Done;
        }
        let is_half = is_there && self.with_view(&first, |row| is_change_under_way(&new, row));
        next.scan.flags = if is_half { EntryFlags::RACY.0 } else { 0 };
        next.scan.stat = Some(world.inode);
        Stage::Wait(0)
    }

    fn stands(&self, row: &Row, scan: &Scan) -> bool {
        self.with_view(row, has_no_trouble) && self.is_not_racy(row.inode.ctime, scan)
    }

    /// Does the next backup keep the row? Nobody writes any more.
    fn is_kept(&self, world: &World) -> bool {
        let scan = &world.scan;
        let row = scan.row.expect("the backup is done");
        let was_asked = scan.asked && self.without != Without::ForgettingAsked;
        let has_digest = self.mode == Mode::Frozen && !scan.changed && !was_asked;
        let is_same = match has_digest {
            true => scan.table == Some(world.inode),
            false => false,
        };
        let metadata_is_unchanged = self.with_view(&row, |row| {
            metadata_is_unchanged(&self.entry(world.inode), row)
        });
        (is_same || metadata_is_unchanged) && self.stands(&row, scan)
    }

    /// Every order of these steps; the first world whose next backup is wrong.
    fn find_fault(&self, program: &[Step]) -> Option<World> {
        let mut seen = HashSet::new();
        let mut waiting = vec![World::new()];
        while let Some(world) = waiting.pop() {
            if !seen.insert(world.clone()) {
                continue;
            }
            let is_over = world.crashed || world.done == program.len();
            if world.scan.stage == Stage::Done && is_over && self.is_wrong(&world) {
                return Some(world);
            }
            if !world.crashed {
                waiting.extend(self.after(&world, program));
            }
        }
        None
    }

    fn after(&self, world: &World, program: &[Step]) -> Vec<World> {
        let mut next: Vec<World> = self.scan(world).into_iter().collect();
        let is_done = world.scan.stage == Stage::Done;
        // What a crash leaves of later writes may lack their time: see `what_is_not_proven`.
        if !self.may_crash || self.writes_later || !is_done {
            next.extend(program.get(world.done).and_then(|step| world.write(*step)));
        }
        // So may a write that is under way for long.
        let is_short = !self.may_crash || self.mode == Mode::Frozen || !world.locked;
        if world.tick < START + self.unit.ticks_max() && is_short && !is_done {
            next.push(World {
                tick: world.tick + 1,
                ..world.clone()
            });
        }
        if self.may_crash {
            for at in 0..BLOCKS {
                let mut written = world.clone();
                written.write_back(at);
                next.push(written);
            }
            next.push(World {
                durable: world.inode,
                ..world.clone()
            });
            if is_done {
                next.push(world.crash());
            }
        }
        next
    }

    fn is_wrong(&self, world: &World) -> bool {
        let row = world.scan.row.expect("the backup is done");
        let stored = &row.bytes[..usize::from(row.inode.blocks)];
        self.is_kept(world) && stored != world.content()
    }
}

fn stat(world: &World) -> Inode {
    world.scan.stat.expect("it was looked at")
}

fn row_of(world: &World) -> Row {
    Row {
        inode: stat(world),
        bytes: world.scan.bytes,
        flags: world.scan.flags,
    }
}
