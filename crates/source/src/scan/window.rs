//! The window: what is being worked on ahead of the point of emission, in the order of the stream.
//!
//! A sequence of items. Work is always taken from the front-most item that has some, so the window
//! fills with what the stream needs next. A directory that was listed becomes its entries, followed
//! by its subdirectories yet to be entered; each of these, when a worker takes it, becomes an item
//! before the rest of them. The front item is always workable, whatever is full, so the stream
//! never stalls.

use super::directory::Directory;
use super::names::SortedNames;
use super::pending::{ChildrenReach, Overflow, Pending, Subdirectory};
use super::{ScanItem, WINDOW_BYTES_MAX, WINDOW_TASKS_MAX};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// A directory on its way through the window.
#[derive(Clone)]
pub(super) struct WalkVisit {
    pub(super) directory: Arc<Directory>,
    pub(super) reach: ChildrenReach,
}

/// What a worker does next.
pub(super) enum WalkTask {
    /// List a directory, and stat its entries if they are few.
    List { id: u64, visit: WalkVisit },
    /// Cut the next part from a large directory and stat it.
    Part { id: u64, large: Box<Large> },
    /// Say that subdirectories which waited in a file cannot be read back.
    Lost {
        id: u64,
        directory: Arc<Directory>,
        error: io::Error,
    },
}

/// A directory with more names than one batch holds.
pub(super) struct Large {
    /// The item that holds it, and the item of its subdirectories.
    pub(super) id: u64,
    pub(super) visit: WalkVisit,
    pub(super) path: Bytes,
    pub(super) names: SortedNames,
    /// Last name that was cut.
    pub(super) last: Vec<u8>,
}

/// What a worker made of a task.
pub(super) enum TaskResult {
    /// A directory, or a part of one whose subdirectories belong to item `of`.
    Entries {
        items: Vec<ScanItem>,
        bytes: usize,
        subdirectories: Vec<Subdirectory>,
        of: Option<u64>,
        /// Parent of the subdirectories.
        directory: Arc<Directory>,
    },
    /// A directory that comes in parts; what to say before them.
    Large {
        items: Vec<ScanItem>,
        large: Box<Large>,
    },
}

impl TaskResult {
    /// Nothing but these items.
    pub(super) fn only(
        items: Vec<ScanItem>,
        of: Option<u64>,
        directory: Arc<Directory>,
    ) -> TaskResult {
        TaskResult::Entries {
            items,
            bytes: 0,
            subdirectories: Vec::new(),
            of,
            directory,
        }
    }
}

enum WindowItem {
    /// Where everything begins.
    Root(WalkVisit),
    Working(u64),
    Ready {
        items: Vec<ScanItem>,
        bytes: usize,
        late: Option<(u64, Vec<Subdirectory>)>,
    },
    /// `None` while a worker cuts a part from it.
    Names(u64, Option<Box<Large>>),
    Subdirectories {
        of: u64,
        directory: Arc<Directory>,
        pending: Pending,
    },
}

pub(super) struct Window {
    items: VecDeque<WindowItem>,
    bytes: usize,
    tasks: usize,
    next_id: u64,
    overflow: Overflow,
    bytes_max: usize,
}

/// What stands at the front.
pub(super) enum Front {
    Items(Vec<ScanItem>),
    /// A worker has it, or will.
    Wait,
    End,
}

impl Window {
    /// Begins with what is ready and the first directory.
    pub(super) fn new(items: Vec<ScanItem>, root: WalkVisit, overflow: Overflow) -> Window {
        let ready = WindowItem::Ready {
            items,
            bytes: 0,
            late: None,
        };
        Window {
            items: VecDeque::from([ready, WindowItem::Root(root)]),
            bytes: 0,
            tasks: 1,
            next_id: 1,
            overflow,
            bytes_max: WINDOW_BYTES_MAX,
        }
    }

    /// The same with so many bytes at most.
    pub(super) fn within(self, bytes_max: usize) -> Window {
        Window { bytes_max, ..self }
    }

    /// The work that the stream needs first, if there is room for what it gives.
    pub(super) fn claim(&mut self) -> Option<WalkTask> {
        let full = self.bytes >= self.bytes_max || self.tasks >= WINDOW_TASKS_MAX;
        let reach = if full { 1 } else { self.items.len() };
        let at = self
            .items
            .iter()
            .take(reach)
            .position(WindowItem::has_work)?;
        self.next_id += 1;
        let id = self.next_id;
        self.tasks += 1;
        match &mut self.items[at] {
            WindowItem::Root(visit) => {
                let visit = visit.clone();
                self.items[at] = WindowItem::Working(id);
                Some(WalkTask::List { id, visit })
            }
            WindowItem::Names(_, large) => {
                let large = large.take()?;
                self.items.insert(at, WindowItem::Working(id));
                Some(WalkTask::Part { id, large })
            }
            WindowItem::Subdirectories {
                directory, pending, ..
            } => {
                let task = match pending.pop(&mut self.overflow) {
                    Ok(next) => {
                        let next = next?;
                        let visit = WalkVisit {
                            directory: directory.child(next.name, next.identity, next.handle),
                            reach: next.reach,
                        };
                        WalkTask::List { id, visit }
                    }
                    Err(error) => WalkTask::Lost {
                        id,
                        directory: directory.clone(),
                        error,
                    },
                };
                self.items.insert(at, WindowItem::Working(id));
                Some(task)
            }
            WindowItem::Working(_) | WindowItem::Ready { .. } => None,
        }
    }

    /// Gives back a large directory from which a part was cut; `None`: nothing is left in it.
    pub(super) fn give_back(&mut self, id: u64, large: Option<Box<Large>>) {
        let at = self.position(|item| matches!(item, WindowItem::Names(names, _) if *names == id));
        match large {
            Some(large) => self.items[at] = WindowItem::Names(id, Some(large)),
            None => drop(self.items.remove(at)),
        }
    }

    /// Puts the result of a task in its place.
    pub(super) fn done(&mut self, id: u64, done: TaskResult) {
        let at =
            self.position(|item| matches!(item, WindowItem::Working(working) if *working == id));
        match done {
            TaskResult::Entries {
                items,
                bytes,
                subdirectories,
                of,
                directory,
            } => {
                self.bytes += bytes;
                let late = match of {
                    Some(of) => Some((of, subdirectories)),
                    None => {
                        self.insert_subdirectories(at + 1, id, directory, subdirectories);
                        None
                    }
                };
                self.items[at] = WindowItem::Ready { items, bytes, late };
            }
            TaskResult::Large { items, mut large } => {
                let id = self.new_id();
                large.id = id;
                let subdirectories = WindowItem::Subdirectories {
                    of: id,
                    directory: large.visit.directory.clone(),
                    pending: Pending::default(),
                };
                self.items[at] = WindowItem::Ready {
                    items,
                    bytes: 0,
                    late: None,
                };
                self.items
                    .insert(at + 1, WindowItem::Names(id, Some(large)));
                self.items.insert(at + 2, subdirectories);
            }
        }
    }

    /// Takes what the stream emits next.
    pub(super) fn take_front(&mut self) -> Front {
        loop {
            match self.items.front_mut() {
                None => return Front::End,
                Some(WindowItem::Ready { .. }) => return Front::Items(self.take_ready()),
                // All its parts came before: nothing can be added any more.
                Some(WindowItem::Subdirectories { pending, .. }) if pending.is_empty() => {
                    self.items.pop_front();
                }
                Some(_) => return Front::Wait,
            }
        }
    }

    fn take_ready(&mut self) -> Vec<ScanItem> {
        let Some(WindowItem::Ready { items, bytes, late }) = self.items.pop_front() else {
            unreachable!("the caller saw that it is ready")
        };
        self.bytes -= bytes;
        self.tasks -= 1;
        if let Some((of, subdirectories)) = late {
            let is_it = |item: &WindowItem| match item {
                WindowItem::Subdirectories { of: it, .. } => *it == of,
                _ => false,
            };
            let at = self.position(is_it);
            if let WindowItem::Subdirectories { pending, .. } = &mut self.items[at] {
                pending.append(subdirectories, &mut self.overflow);
            }
        }
        items
    }

    fn insert_subdirectories(
        &mut self,
        at: usize,
        of: u64,
        directory: Arc<Directory>,
        subdirectories: Vec<Subdirectory>,
    ) {
        if !subdirectories.is_empty() {
            let mut pending = Pending::default();
            pending.append(subdirectories, &mut self.overflow);
            let item = WindowItem::Subdirectories {
                of,
                directory,
                pending,
            };
            self.items.insert(at, item);
        }
    }

    /// The window is short, and what is looked for is near its front.
    fn position(&self, is_it: impl Fn(&WindowItem) -> bool) -> usize {
        let at = self.items.iter().position(is_it);
        at.expect("an item that is worked on stays in the window")
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

impl WindowItem {
    fn has_work(&self) -> bool {
        match self {
            WindowItem::Root(_) | WindowItem::Names(_, Some(_)) => true,
            WindowItem::Subdirectories { pending, .. } => !pending.is_empty(),
            WindowItem::Working(_) | WindowItem::Ready { .. } | WindowItem::Names(_, None) => false,
        }
    }
}
