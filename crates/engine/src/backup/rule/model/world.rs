//! The file of the model, the device below it, and what each step makes of them.

use super::{BLOCKS, FOREIGN, Inode, START, Scan, Step};

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) tick: u8,
    pub(super) inode: Inode,
    pub(super) pages: [u8; BLOCKS],
    /// Not written back.
    pub(super) dirty: [bool; BLOCKS],
    /// Through a map, without anybody noticing; never longer than dirty.
    pub(super) writable: [bool; BLOCKS],
    pub(super) locked: bool,
    /// A freeze waits.
    pub(super) under_way: bool,
    pub(super) renamed: bool,
    /// Two places on the device.
    pub(super) blocks: [[u8; BLOCKS]; 2],
    /// What a crash leaves of the inode.
    pub(super) durable: Inode,
    pub(super) crashed: bool,
    /// Steps that the writer has done.
    pub(super) done: usize,
    pub(super) scan: Scan,
}

impl World {
    pub(super) fn new() -> World {
        let inode = Inode {
            blocks: BLOCKS as u8,
            ctime: 0,
            place: 0,
        };
        World {
            tick: START,
            inode,
            pages: [1; BLOCKS],
            dirty: [false; BLOCKS],
            writable: [false; BLOCKS],
            locked: false,
            under_way: false,
            renamed: false,
            blocks: [[1; BLOCKS], [FOREIGN; BLOCKS]],
            durable: inode,
            crashed: false,
            done: 0,
            scan: Scan::default(),
        }
    }

    /// `None`: it must wait.
    pub(super) fn write(&self, step: Step) -> Option<World> {
        let mut next = self.clone();
        next.done += 1;
        match step {
            Step::Lock if self.locked => return None,
            Step::Lock => (next.locked, next.under_way) = (true, true),
            Step::Unlock => (next.locked, next.under_way) = (false, false),
            Step::BeginDirect => next.under_way = true,
            Step::EndDirect => next.under_way = false,
            Step::Stamp => next.inode.ctime = self.tick,
            Step::Page(at, value) => (next.pages[at], next.dirty[at]) = (value, true),
            Step::Block(at, value) => {
                next.blocks[self.inode.place][at] = value;
                next.pages[at] = value;
            }
            Step::Store(at, _) if !self.writable[at] => {
                next.inode.ctime = self.tick;
                (next.dirty[at], next.writable[at]) = (true, true);
                next.done = self.done;
            }
            Step::Store(at, value) => next.pages[at] = value,
            Step::Cut(blocks) => next.inode.blocks = blocks,
            Step::Move => {
                next.blocks[1 - self.inode.place] = self.pages;
                (next.dirty, next.writable) = ([false; BLOCKS], [false; BLOCKS]);
                next.inode.place = 1 - self.inode.place;
            }
            Step::Reuse => {
                // Not before it is certain that they are free.
                next.durable = self.inode;
                next.blocks[1 - self.inode.place] = [FOREIGN; BLOCKS];
            }
            Step::Rename => next.renamed = true,
        }
        Some(next)
    }

    pub(super) fn write_back(&mut self, at: usize) {
        if self.dirty[at] {
            self.blocks[self.inode.place][at] = self.pages[at];
            (self.dirty[at], self.writable[at]) = (false, false);
        }
    }

    pub(super) fn sync(&mut self) {
        (0..BLOCKS).for_each(|at| self.write_back(at));
        self.durable = self.inode;
    }

    pub(super) fn crash(&self) -> World {
        let mut next = self.clone();
        next.inode = self.durable;
        next.pages = self.blocks[self.durable.place];
        (next.dirty, next.writable) = ([false; BLOCKS], [false; BLOCKS]);
        (next.locked, next.under_way, next.crashed) = (false, false, true);
        next
    }

    /// What the file holds.
    pub(super) fn content(&self) -> &[u8] {
        &self.pages[..usize::from(self.inode.blocks)]
    }
}
