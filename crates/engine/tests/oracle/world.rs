//! Everything that a sequence works on: files, a repository, a clock, two machines; and what is
//! known about snapshots.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bale_format::keys::{Keys, RootKey};
use bale_format::{Config, ObjectId, RepositoryId, Time};
use bale_pipeline::clock::ManualClock;
use bale_pipeline::filter::Filter;
use bale_pipeline::monitor::{Monitor, Problem};
use bale_pipeline::random::SeededRandom;
use bale_repository::repository::{Environment, NewSlot, Repository, Secret};
use bale_repository::store::{ObjectName, Store};
use bale_testkit::FaultyStore;
use tempfile::TempDir;

use super::shelf::{Objects, Shelf};
use super::steps::{LeaveOut, Stop};
use super::tree::{PathBytes, Tree};

/// A broken promise, as a sentence that begins with the rule.
pub type Broken = String;
pub type Held<T = ()> = Result<T, Broken>;

/// Where the clock starts.
const BEGIN_SECONDS: u64 = 1_700_000_000;

/// A snapshot that somebody was told he has.
pub struct Kept {
    pub id: ObjectId,
    pub tree: Arc<Tree>,
    /// Paths at or below which the tree lies.
    pub sources: Vec<PathBytes>,
    pub host: String,
    pub tags: Vec<String>,
    pub time: Time,
    /// What can be restored, as of the last look.
    pub whole: BTreeSet<PathBytes>,
    pub is_forgotten: bool,
    pub leave_out: LeaveOut,
    /// The repository, if it is in the tree: a directory without content, whose times nobody holds
    /// still.
    pub own: Option<PathBytes>,
    pub filter: Arc<Filter>,
}

pub struct World {
    pub dir: TempDir,
    pub clock: Arc<ManualClock>,
    /// What the clock would show if it had never been wrong.
    pub right: SystemTime,
    random: Arc<SeededRandom>,
    pub shelf: Shelf,
    pub kept: Vec<Kept>,
    /// The bytes of `config` and its copy.
    pub config: Vec<u8>,
    /// Objects as of the last look, and in which order they were first seen.
    pub objects: Objects,
    pub order: BTreeMap<ObjectName, u64>,
    /// Deleted objects.
    pub gone: Vec<(ObjectName, Arc<Vec<u8>>)>,
    /// Packs that were changed under their length, and nobody has read them since.
    pub silent: HashSet<ObjectId>,
    /// Packs that were, until somebody read them.
    pub read_since: HashSet<ObjectId>,
    /// Something was damaged in this sequence: operations may say no.
    pub is_damaged: bool,
    /// The repository lies in what is backed up.
    pub repository_in_home: bool,
    targets: u64,
}

impl World {
    /// Where nothing has happened yet. The seed decides where the repository is.
    pub fn new(seed: u64) -> World {
        let shm = Path::new("/dev/shm");
        let dir = match shm.is_dir() {
            true => tempfile::Builder::new().prefix("oracle").tempdir_in(shm),
            false => tempfile::tempdir(),
        };
        let dir = dir.expect("a place for temporary files");
        let clock = Arc::new(ManualClock::at_seconds(BEGIN_SECONDS));
        for name in [
            "home/src",
            "home/mail",
            "home/pictures",
            "neighbour",
            "scratch",
        ] {
            fs::create_dir_all(dir.path().join(name)).expect("a directory");
        }
        for name in ["home/pictures/p", "home/notes", "neighbour/config"] {
            fs::write(dir.path().join(name), name).expect("a file");
        }
        let repository_in_home = super::generate::is_in_home(seed);
        let shelf = match seed % 16 {
            3 => Shelf::on_disk(&clock, &dir.path().join("home/repository")),
            7 => Shelf::on_disk(&clock, &dir.path().join("repository")),
            _ => Shelf::in_memory(&clock),
        };
        let mut world = World {
            dir,
            clock,
            right: UNIX_EPOCH + Duration::from_secs(BEGIN_SECONDS),
            random: Arc::new(SeededRandom::new(seed)),
            shelf,
            kept: Vec::new(),
            config: Vec::new(),
            objects: Objects::new(),
            order: BTreeMap::new(),
            gone: Vec::new(),
            silent: HashSet::new(),
            read_since: HashSet::new(),
            is_damaged: false,
            repository_in_home,
            targets: 0,
        };
        let slot = NewSlot {
            secret: secret(),
            label: "test".to_owned(),
        };
        let store: Arc<dyn Store> = Arc::new(world.shelf.clone());
        Repository::init(store, vec![slot], world.environment(0)).expect("a new repository");
        world.look_at_objects();
        world.config = world.objects[&ObjectName::config()].to_vec();
        world
    }

    /// That of another repository.
    pub fn foreign_config(&self) -> Vec<u8> {
        let id = RepositoryId([7; 16]);
        let keys = Keys::derive(&RootKey::from_bytes([7; 32]), id);
        Config::new(id, 1).encode(&keys).expect("a config")
    }

    /// The one of `config` and its copy that does not say what it did when it was made.
    pub fn damaged_config(&self) -> Option<ObjectName> {
        // Its last line needs no end.
        let line = self.config.trim_ascii_end();
        let is_whole = |name: &ObjectName| {
            let bytes = self.objects.get(name);
            bytes.is_some_and(|bytes| **bytes == self.config || **bytes == line)
        };
        ObjectName::configs()
            .into_iter()
            .find(|name| !is_whole(name))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn cache(&self, host: usize) -> PathBuf {
        self.path(["cache0", "cache1"][usize::from(host > 0)])
    }

    pub fn host_name(host: usize) -> &'static str {
        ["host", "other", "host"][host % 3]
    }

    fn environment(&self, host: usize) -> Environment {
        Environment {
            clock: self.clock.clone(),
            random: self.random.clone(),
            cache_dir: self.cache(host),
        }
    }

    /// Opens the repository, as a new process would.
    pub fn open(&self, host: usize) -> Held<Arc<Repository>> {
        self.open_over(host, self.shelf.reopened())
    }

    pub fn open_over(&self, host: usize, store: impl Store + 'static) -> Held<Arc<Repository>> {
        let opened = Repository::open(Arc::new(store), &secret(), self.environment(host));
        opened
            .map(Arc::new)
            .map_err(|error| format!("open: {error}"))
    }

    /// The store as an operation meets it that ends before its end.
    pub fn store_until(&self, stop: Stop) -> FaultyStore {
        let store = FaultyStore::over(self.shelf.reopened());
        if let Stop::Killed { calls, is_done } = stop {
            store.crash_after(calls, is_done);
        }
        store
    }

    /// A directory of a number of its own.
    pub fn fresh(&mut self, name: &str) -> PathBuf {
        self.targets += 1;
        self.path(&format!("scratch/{name}{}", self.targets))
    }

    /// Looks at all objects; tells what was there before.
    pub fn look_at_objects(&mut self) -> Objects {
        let now = self.shelf.objects();
        for name in now.keys() {
            let next = self.order.len() as u64;
            self.order.entry(*name).or_insert(next);
        }
        std::mem::replace(&mut self.objects, now)
    }

    /// Snapshots that were not forgotten, newest first.
    pub fn kept_now(&self) -> Vec<&Kept> {
        let mut kept: Vec<&Kept> = self.kept.iter().filter(|kept| !kept.is_forgotten).collect();
        kept.reverse();
        kept
    }
}

pub fn secret() -> Secret {
    Secret::KeyFile(b"the key file of a test, long enough to be one".to_vec())
}

/// Counts problems, and asks for the end when its time has come.
#[derive(Default)]
pub struct Watch {
    pub problems: std::sync::Mutex<Vec<Problem>>,
    pub notes: std::sync::Mutex<Vec<String>>,
    asked: AtomicU64,
    end_after: Option<u64>,
}

impl Watch {
    pub fn until(stop: Stop) -> Watch {
        let end_after = match stop {
            Stop::Asked { calls } => Some(calls),
            _ => None,
        };
        Watch {
            end_after,
            ..Watch::default()
        }
    }

    pub fn problems(&self) -> Vec<Problem> {
        self.problems.lock().expect("no panics while held").clone()
    }
}

impl Monitor for Watch {
    fn problem(&self, problem: &Problem) {
        let mut problems = self.problems.lock().expect("no panics while held");
        problems.push(problem.clone());
    }

    fn note(&self, text: &str) {
        let mut notes = self.notes.lock().expect("no panics while held");
        notes.push(text.to_owned());
    }

    fn interrupted(&self) -> bool {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        self.end_after.is_some_and(|after| asked >= after)
    }
}
