//! Running the walk: workers fill the window, the stream is taken from its front.

use super::directory::{Directory, DirectoryFd, FdCache};
use super::filesystems::Filesystems;
use super::grafts::Grafts;
use super::identity::identity_of;
use super::list::{ListedNames, list};
use super::listing::{DirectoryListing, Missing};
use super::names::Names;
use super::pending::{ChildrenReach, Overflow};
use super::renamed::stat_renamed;
use super::sources::Sources;
use super::stat::{Part, Rules, names_of_marks, names_of_node, reach_of_node};
use super::statted::Statted;
use super::statx::{Atime, entry_of, mount_of, stat_row_at, stay_of};
use super::vanished::{Lost, Unfound};
use super::window::{Front, Large, TaskResult, WalkTask, WalkVisit, Window};
use super::{BATCH_ENTRIES_MAX, Batch, DIRECTORY_FDS_MAX, SCAN_THREADS_MAX, WINDOW_BYTES_MAX};
use super::{EntryPlaces, ScanItem, ScanOptions, ScanProblem, barrier_now};
use bale_format::entry::{Entry, EntryFlags, Key, Time};
use bale_pipeline::filter::Filter;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::on_panic::OnPanic;
use bale_pipeline::spill::Spill;
use bytes::Bytes;
use rustix::fs::CWD;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Stack of a worker: it never recurses.
const WORKER_STACK_BYTES: usize = 256 << 10;

/// A walk under way. Iterating yields the stream; dropping it stops the workers.
pub struct Scanner {
    shared: Arc<WalkShared>,
    workers: Vec<JoinHandle<()>>,
    ready: VecDeque<ScanItem>,
    /// Number in the stream of each file system by the number the workers know.
    numbers: Vec<Option<u32>>,
    filesystems: u32,
    barrier: Time,
}

struct WalkShared {
    state: Mutex<WalkState>,
    work: Condvar,
    front: Condvar,
    rules: Arc<Rules>,
    barrier: Time,
    spill: PathBuf,
    memory: MemoryPlan,
    large: Mutex<()>,
    unfound: Mutex<Unfound>,
}

struct WalkState {
    window: Window,
    stopped: bool,
    idle: usize,
}

impl Scanner {
    /// Starts to walk.
    pub fn start(sources: &Sources, mut options: ScanOptions) -> io::Result<Scanner> {
        let filter = Arc::new(std::mem::take(&mut options.filter));
        Scanner::start_with(sources, options, filter)
    }

    /// Starts to walk, with a filter that others use, too.
    pub(super) fn start_with(
        sources: &Sources,
        options: ScanOptions,
        filter: Arc<Filter>,
    ) -> io::Result<Scanner> {
        let barrier = options.barrier.unwrap_or_else(barrier_now);
        let limits = Limits::of_this_process(options.threads, options.memory);
        let rules = Rules {
            filter,
            filesystems: Filesystems::new(barrier)
                .with_racy_memory(options.protocol.memory_is_racy),
            one_file_system: options.one_file_system,
            left_out: options.left_out,
            atime: Atime::taken_if(options.with_atime),
            stat_access: !rustix::process::geteuid().is_root(),
        };
        let grafts = Grafts::find(sources)?;
        let root = match grafts.child(b"", b"") {
            Some(graft) => graft.c_place()?,
            None => c"/".to_owned(),
        };
        let cache = FdCache::new(limits.directory_fds, grafts);
        let stat = stat_row_at(CWD, &root, rules.atime)?;
        let directory = Directory::root(&cache, identity_of(&stat));
        let mount = mount_of(&stat);
        let mut entry = entry_of(Bytes::new(), Bytes::new(), &stat, rules.atime)
            .ok_or_else(|| io::Error::other("the root is of no known type"))?;
        let fd = directory.open()?;
        let device = directory.identity().device;
        entry.filesystem = rules.filesystems.number(device, mount, fd.as_fd(), c".");
        let batch = Batch {
            places: EntryPlaces::Directory(directory.clone()),
            entries: vec![entry],
        };
        let stay = rules.one_file_system.then(|| stay_of(&stat));
        let reach = reach_of_node(sources.root(), stay);
        let overflow = Overflow::new(&options.spill_directory, options.memory);
        let first = vec![ScanItem::Entries(batch)];
        let window = Window::new(first, WalkVisit { directory, reach }, overflow)
            .within(options.memory.share(WINDOW_BYTES_MAX));
        let shared = Arc::new(WalkShared {
            state: Mutex::new(WalkState {
                window,
                stopped: false,
                idle: 0,
            }),
            work: Condvar::new(),
            front: Condvar::new(),
            rules: Arc::new(rules),
            barrier,
            spill: options.spill_directory,
            memory: options.memory,
            large: Mutex::new(()),
            unfound: Mutex::default(),
        });
        Ok(Scanner {
            workers: start_workers(&shared, limits.threads),
            shared,
            ready: VecDeque::new(),
            numbers: Vec::new(),
            filesystems: 0,
            barrier,
        })
    }

    /// The barrier that the file systems of this scan are recorded with.
    pub fn barrier(&self) -> Time {
        self.barrier
    }

    /// The next items of the window's front; false at the end.
    fn refill(&mut self) -> bool {
        let mut state = self.shared.lock();
        loop {
            match state.window.take_front() {
                Front::End => return false,
                Front::Items(items) => {
                    if state.idle > 0 {
                        self.shared.work.notify_one();
                    }
                    drop(state);
                    items.into_iter().for_each(|item| self.push(item));
                    return true;
                }
                Front::Wait if self.workers.is_empty() => {
                    let task = state.window.claim();
                    drop(state);
                    self.shared
                        .run(task.expect("without workers, the front waits for us"));
                    state = self.shared.lock();
                }
                Front::Wait => {
                    assert!(!state.stopped, "a worker of the scan panicked");
                    let waited = self.shared.front.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Numbers file systems in the order of the stream.
    fn push(&mut self, mut item: ScanItem) {
        match &mut item {
            ScanItem::Entries(batch) => {
                for entry in &mut batch.entries {
                    entry.filesystem = self.number(entry.filesystem);
                }
            }
            ScanItem::Listed(listing) => listing.filesystem = self.number(listing.filesystem),
            ScanItem::Missing(missing) => {
                missing.listing.filesystem = self.number(missing.listing.filesystem);
            }
            _ => {}
        }
        self.ready.push_back(item);
    }

    /// In the stream, by what the workers know it by.
    fn number(&mut self, provisional: u32) -> u32 {
        let at = provisional as usize;
        if self.numbers.len() <= at {
            self.numbers.resize(at + 1, None);
        }
        if let Some(number) = self.numbers[at] {
            return number;
        }
        let filesystem = self.shared.rules.filesystems.get(provisional);
        self.ready.push_back(ScanItem::Filesystem(filesystem));
        let number = self.filesystems;
        self.numbers[at] = Some(number);
        self.filesystems += 1;
        number
    }
}

impl Iterator for Scanner {
    type Item = ScanItem;

    fn next(&mut self) -> Option<ScanItem> {
        while self.ready.is_empty() {
            if !self.refill() {
                let barrier = self.shared.barrier;
                self.ready.extend(self.shared.unfound().look_again(barrier));
                return self.ready.pop_front();
            }
        }
        self.ready.pop_front()
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.shared.stop();
        for worker in self.workers.drain(..) {
            // A panic was reported where it happened.
            let _ = worker.join();
        }
    }
}

/// What this process may use.
struct Limits {
    threads: usize,
    directory_fds: usize,
}

impl Limits {
    /// A quarter of the open files for directories kept, an eighth for workers, who hold two at a
    /// time.
    fn of_this_process(threads: Option<usize>, memory: MemoryPlan) -> Limits {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let files = limit.current.unwrap_or(u64::MAX).min(1 << 20) as usize;
        Limits {
            threads: threads.unwrap_or((files / 8).clamp(1, memory.share(SCAN_THREADS_MAX))),
            directory_fds: (files / 4).clamp(4, DIRECTORY_FDS_MAX),
        }
    }
}

/// As many as the system allows; with none, the stream does the work itself.
fn start_workers(shared: &Arc<WalkShared>, threads: usize) -> Vec<JoinHandle<()>> {
    let mut workers = Vec::new();
    for _ in 0..threads {
        let shared = shared.clone();
        let builder = std::thread::Builder::new()
            .name("scan".to_string())
            .stack_size(WORKER_STACK_BYTES);
        match builder.spawn(move || shared.work()) {
            Ok(worker) => workers.push(worker),
            Err(_) => break,
        }
    }
    workers
}

impl WalkShared {
    fn lock(&self) -> MutexGuard<'_, WalkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.work.notify_all();
        self.front.notify_all();
    }

    fn work(&self) {
        let _guard = OnPanic(|| self.stop());
        while let Some(task) = self.wait_for_task() {
            self.run(task);
        }
    }

    fn wait_for_task(&self) -> Option<WalkTask> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(task) = state.window.claim() {
                // Where one found work, another may.
                if state.idle > 0 {
                    self.work.notify_one();
                }
                return Some(task);
            }
            state.idle += 1;
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    fn run(&self, task: WalkTask) {
        let (id, done) = match task {
            WalkTask::List { id, visit } => (id, self.list(visit)),
            WalkTask::Part { id, large } => (id, self.part(large)),
            WalkTask::Lost {
                id,
                directory,
                error,
            } => {
                let path = Bytes::from(directory.path());
                let items = unreadable(&path, "remember what is in", error);
                (id, TaskResult::only(items, None, directory))
            }
        };
        let mut state = self.lock();
        state.window.done(id, done);
        if state.idle > 0 {
            self.work.notify_one();
        }
        drop(state);
        self.front.notify_one();
    }

    fn unfound(&self) -> MutexGuard<'_, Unfound> {
        self.unfound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for what was not found, when there is enough of it.
    fn look_for(&self, lost: Vec<Lost>) -> Vec<ScanItem> {
        let full = {
            let mut unfound = self.unfound();
            lost.into_iter().for_each(|lost| unfound.push(lost));
            unfound.take_full()
        };
        full.map_or_else(Vec::new, |mut full| full.look_again(self.barrier))
    }

    fn spill(&self) -> Spill<'_> {
        Spill {
            directory: &self.spill,
            memory: self.memory,
        }
    }

    fn list(&self, visit: WalkVisit) -> TaskResult {
        let path = Bytes::from(visit.directory.path());
        let fd = match visit.directory.open() {
            Ok(fd) => fd,
            Err(error) => return self.not_entered(visit, &path, error),
        };
        let names = match &visit.reach {
            ChildrenReach::Only(node) => names_of_node(node),
            ChildrenReach::Marks => names_of_marks(&self.rules.filter),
            ChildrenReach::All(_) | ChildrenReach::AllAnd(..) => {
                let listed = list(&fd, self.spill(), &self.large);
                let mut items = Vec::new();
                if let Some(error) = listed.error {
                    items = unreadable(&path, "list", error);
                }
                let listing = DirectoryListing::of(&self.rules, &visit, &path);
                items.extend(listing.map(ScanItem::Listed));
                match listed.names {
                    ListedNames::Many(names) => {
                        let last = Vec::new();
                        let large = Box::new(Large {
                            id: 0,
                            visit,
                            path,
                            names,
                            last,
                        });
                        return TaskResult::Large { items, large };
                    }
                    ListedNames::Few(names) => {
                        return self.stat(&visit, &fd, path, names, items, None);
                    }
                }
            }
        };
        self.stat(&visit, &fd, path, names, Vec::new(), None)
    }

    /// A directory that was seen but cannot be opened: gone, or refused, or another one now.
    fn not_entered(&self, visit: WalkVisit, path: &Bytes, error: io::Error) -> TaskResult {
        let items = match Lost::of_directory(&visit.directory, &error) {
            Some(lost) => self.look_for(vec![lost]),
            None => unreadable(path, "enter", error),
        };
        TaskResult::only(items, None, visit.directory)
    }

    fn part(&self, mut large: Box<Large>) -> TaskResult {
        let mut names = Names::default();
        let mut items = Vec::new();
        let (id, visit, path) = (large.id, large.visit.clone(), large.path.clone());
        let more = large.names.take(BATCH_ENTRIES_MAX, &mut names);
        let more = more.unwrap_or_else(|error| {
            items = unreadable(&path, "sort", error);
            false
        });
        if !names.items.is_empty() {
            if names.get(0) == large.last {
                let error = io::Error::other("listed twice in one directory");
                items.extend(unreadable(&path, "list", error));
                names.items.remove(0);
            }
            if let Some(last) = names.items.len().checked_sub(1) {
                large.last = names.get(last).to_vec();
            }
        }
        let mut state = self.lock();
        state.window.give_back(id, more.then_some(large));
        if state.idle > 0 {
            self.work.notify_one();
        }
        drop(state);
        match visit.directory.open() {
            Ok(fd) => self.stat(&visit, &fd, path, names, items, Some(id)),
            Err(error) => {
                items.extend(unreadable(&path, "list", error));
                TaskResult::only(items, Some(id), visit.directory)
            }
        }
    }

    fn stat(
        &self,
        visit: &WalkVisit,
        fd: &DirectoryFd,
        path: Bytes,
        names: Names,
        mut items: Vec<ScanItem>,
        of: Option<u64>,
    ) -> TaskResult {
        let mut arena_bytes = names.arena.len();
        let part = Part {
            rules: &self.rules,
            directory: &visit.directory,
            fd,
            reach: &visit.reach,
            path: &path,
            last_filesystem: Cell::new(None),
            last_racy: Cell::new(None),
        };
        let mut statted: Statted = part.stat(names);
        if of.is_none() {
            arena_bytes += stat_renamed(&part, &mut statted);
        }
        if statted.incomplete {
            items.push(amend(&path, EntryFlags::UNREADABLE));
        }
        items.extend(statted.problems.into_iter().map(ScanItem::Problem));
        items.extend(statted.notes.into_iter().map(ScanItem::Note));
        let missing = Missing::among(&statted.unfound, (&self.rules, visit, &path));
        items.extend(missing.into_iter().map(ScanItem::Missing));
        items.extend(self.look_for(statted.unfound));
        let bytes = statted.entries.len() * size_of::<Entry>() + arena_bytes + path.len();
        if !statted.entries.is_empty() {
            items.push(ScanItem::Entries(Batch {
                places: EntryPlaces::Directory(visit.directory.clone()),
                entries: statted.entries,
            }));
        }
        TaskResult::Entries {
            items,
            bytes,
            subdirectories: statted.subdirectories,
            of,
            directory: visit.directory.clone(),
        }
    }
}

fn unreadable(path: &Bytes, action: &'static str, error: io::Error) -> Vec<ScanItem> {
    let problem = ScanProblem {
        path: path.to_vec(),
        action,
        error,
    };
    vec![
        amend(path, EntryFlags::UNREADABLE),
        ScanItem::Problem(problem),
    ]
}

fn amend(path: &Bytes, flags: EntryFlags) -> ScanItem {
    ScanItem::Amend {
        key: Key::of_path(path),
        flags,
    }
}
