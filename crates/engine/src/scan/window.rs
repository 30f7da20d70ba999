//! The window: what is being worked on ahead of the point of emission, in the order of the stream.
//!
//! A sequence of items. Work is always taken from the front-most item that has some, so the window fills with what the
//! stream needs next. A directory that was listed becomes its entries, followed by its subdirectories yet to be
//! entered; each of these, when a worker takes it, becomes an item before the rest of them. The front item is always
//! workable, whatever is full, so the stream never stalls.

use super::directory::Directory;
use super::names::SortedNames;
use super::pending::{Overflow, Pending, Reach, Subdirectory};
use super::{ScanItem, WINDOW_BYTES_MAX, WINDOW_TASKS_MAX};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// A directory on its way through the window.
#[derive(Clone)]
pub(super) struct Visit {
    pub(super) directory: Arc<Directory>,
    pub(super) reach: Reach,
}

/// What a worker does next.
pub(super) enum Task {
    /// List a directory, and stat its entries if they are few.
    List { id: u64, visit: Visit },
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
    pub(super) visit: Visit,
    pub(super) path: Bytes,
    pub(super) names: SortedNames,
    /// Last name that was cut.
    pub(super) last: Vec<u8>,
}

/// What a worker made of a task.
pub(super) enum Done {
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

impl Done {
    /// Nothing but these items.
    pub(super) fn only(items: Vec<ScanItem>, of: Option<u64>, directory: Arc<Directory>) -> Done {
        Done::Entries {
            items,
            bytes: 0,
            subdirectories: Vec::new(),
            of,
            directory,
        }
    }
}

enum Item {
    /// Where everything begins.
    Root(Visit),
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

/// The window.
pub(super) struct Window {
    items: VecDeque<Item>,
    bytes: usize,
    tasks: usize,
    next_id: u64,
    overflow: Overflow,
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
    pub(super) fn new(items: Vec<ScanItem>, root: Visit, overflow: Overflow) -> Window {
        let ready = Item::Ready {
            items,
            bytes: 0,
            late: None,
        };
        Window {
            items: VecDeque::from([ready, Item::Root(root)]),
            bytes: 0,
            tasks: 1,
            next_id: 1,
            overflow,
        }
    }

    /// The work that the stream needs first, if there is room for what it gives.
    pub(super) fn claim(&mut self) -> Option<Task> {
        let full = self.bytes >= WINDOW_BYTES_MAX || self.tasks >= WINDOW_TASKS_MAX;
        let reach = if full { 1 } else { self.items.len() };
        let at = self.items.iter().take(reach).position(Item::has_work)?;
        self.next_id += 1;
        let id = self.next_id;
        self.tasks += 1;
        match &mut self.items[at] {
            Item::Root(visit) => {
                let visit = visit.clone();
                self.items[at] = Item::Working(id);
                Some(Task::List { id, visit })
            }
            Item::Names(_, large) => {
                let large = large.take()?;
                self.items.insert(at, Item::Working(id));
                Some(Task::Part { id, large })
            }
            Item::Subdirectories {
                directory, pending, ..
            } => {
                let task = match pending.pop(&mut self.overflow) {
                    Ok(next) => {
                        let next = next?;
                        let visit = Visit {
                            directory: directory.child(next.name, next.identity, next.handle),
                            reach: next.reach,
                        };
                        Task::List { id, visit }
                    }
                    Err(error) => Task::Lost {
                        id,
                        directory: directory.clone(),
                        error,
                    },
                };
                self.items.insert(at, Item::Working(id));
                Some(task)
            }
            Item::Working(_) | Item::Ready { .. } => None,
        }
    }

    /// Gives back a large directory from which a part was cut; `None`: nothing is left in it.
    pub(super) fn give_back(&mut self, id: u64, large: Option<Box<Large>>) {
        let at = self.position(|item| matches!(item, Item::Names(names, _) if *names == id));
        match large {
            Some(large) => self.items[at] = Item::Names(id, Some(large)),
            None => drop(self.items.remove(at)),
        }
    }

    /// Puts the result of a task in its place.
    pub(super) fn done(&mut self, id: u64, done: Done) {
        let at = self.position(|item| matches!(item, Item::Working(working) if *working == id));
        match done {
            Done::Entries {
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
                self.items[at] = Item::Ready { items, bytes, late };
            }
            Done::Large { items, mut large } => {
                let id = self.new_id();
                large.id = id;
                let subdirectories = Item::Subdirectories {
                    of: id,
                    directory: large.visit.directory.clone(),
                    pending: Pending::default(),
                };
                self.items[at] = Item::Ready {
                    items,
                    bytes: 0,
                    late: None,
                };
                self.items.insert(at + 1, Item::Names(id, Some(large)));
                self.items.insert(at + 2, subdirectories);
            }
        }
    }

    /// Takes what the stream emits next.
    pub(super) fn take_front(&mut self) -> Front {
        loop {
            match self.items.front_mut() {
                None => return Front::End,
                Some(Item::Ready { .. }) => return Front::Items(self.take_ready()),
                // All its parts came before: nothing can be added any more.
                Some(Item::Subdirectories { pending, .. }) if pending.is_empty() => {
                    self.items.pop_front();
                }
                Some(_) => return Front::Wait,
            }
        }
    }

    fn take_ready(&mut self) -> Vec<ScanItem> {
        let Some(Item::Ready { items, bytes, late }) = self.items.pop_front() else {
            unreachable!("the caller saw that it is ready")
        };
        self.bytes -= bytes;
        self.tasks -= 1;
        if let Some((of, subdirectories)) = late {
            let is_it =
                |item: &Item| matches!(item, Item::Subdirectories { of: it, .. } if *it == of);
            let at = self.position(is_it);
            if let Item::Subdirectories { pending, .. } = &mut self.items[at] {
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
            let item = Item::Subdirectories {
                of,
                directory,
                pending,
            };
            self.items.insert(at, item);
        }
    }

    /// The window is short, and what is looked for is near its front.
    fn position(&self, is_it: impl Fn(&Item) -> bool) -> usize {
        let at = self.items.iter().position(is_it);
        at.expect("an item that is worked on stays in the window")
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

impl Item {
    fn has_work(&self) -> bool {
        match self {
            Item::Root(_) | Item::Names(_, Some(_)) => true,
            Item::Subdirectories { pending, .. } => !pending.is_empty(),
            Item::Working(_) | Item::Ready { .. } | Item::Names(_, None) => false,
        }
    }
}
