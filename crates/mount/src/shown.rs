//! Which snapshots are shown, and what is above them: looked at again every few seconds, when
//! somebody looks.
//!
//! A snapshot keeps its number and its name as long as the mount lives, also when it is forgotten:
//! then it is not listed any more, and who is in it can go on as long as its data is there.

use crate::limits::{LOOK_AGAIN_EVERY, SNAPSHOTS_MAX};
use crate::numbers::{HostNumber, SnapshotNumber};
use crate::problems::MountProblems;
use crate::snapshot_names::{TimeNames, of_host};
use crate::store::{SnapshotStore, StoreTrouble};
use bale_format::{ObjectId, Snapshot, Time};
use bale_repository::snapshots::is_time_in_future;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// One snapshot.
pub struct ShownSnapshot {
    pub number: SnapshotNumber,
    pub id: ObjectId,
    pub time: Time,
    /// Below `/snapshots` and `/hosts/HOST`.
    pub name: String,
    /// Below `/ids`.
    pub id_name: String,
    pub host: HostNumber,
    /// An unfinished run is never the latest.
    is_complete: bool,
}

/// What is shown at one moment.
#[derive(Clone, Default)]
pub struct ShownNow {
    /// In the order in which they were seen.
    pub snapshots: BTreeMap<SnapshotNumber, Arc<ShownSnapshot>>,
    by_name: HashMap<String, SnapshotNumber>,
    by_id: HashMap<String, SnapshotNumber>,
    /// The newest complete one.
    pub latest: Option<SnapshotNumber>,
    /// Hosts that have snapshots, and the latest of each.
    pub hosts: BTreeMap<HostNumber, Option<SnapshotNumber>>,
    pub host_names: Arc<Vec<String>>,
    /// When the newest one was made; later, if others came or went: the kernel takes a list for new
    /// when this is another time.
    pub changed: Time,
}

impl ShownNow {
    /// `/snapshots/NAME`
    pub fn named(&self, name: &[u8]) -> Option<&Arc<ShownSnapshot>> {
        let number = self.by_name.get(std::str::from_utf8(name).ok()?)?;
        self.snapshots.get(number)
    }

    /// `/ids/ID`
    pub fn of_id(&self, name: &[u8]) -> Option<&Arc<ShownSnapshot>> {
        let number = self.by_id.get(std::str::from_utf8(name).ok()?)?;
        self.snapshots.get(number)
    }

    /// `/hosts/NAME`
    pub fn host_named(&self, name: &[u8]) -> Option<HostNumber> {
        let is_named = |host: &&HostNumber| self.host_name(**host).as_bytes() == name;
        self.hosts.keys().find(is_named).copied()
    }

    pub fn host_name(&self, host: HostNumber) -> &str {
        &self.host_names[usize::from(host.0)]
    }

    /// Never the same time for another list.
    fn changed_since(&mut self, before: &ShownNow) {
        let is_same = self.snapshots.keys().eq(before.snapshots.keys());
        self.changed = match is_same {
            true => before.changed,
            false => self.changed.max(a_moment_later(before.changed)),
        };
    }

    fn of(all: &[Arc<ShownSnapshot>], host_names: Arc<Vec<String>>, now: Time) -> ShownNow {
        let mut shown = ShownNow {
            host_names,
            ..ShownNow::default()
        };
        for snapshot in all {
            let number = snapshot.number;
            shown.by_name.insert(snapshot.name.clone(), number);
            shown.by_id.insert(snapshot.id_name.clone(), number);
            shown.snapshots.insert(number, snapshot.clone());
            shown.changed = shown.changed.max(snapshot.time);
        }
        shown.latest = latest(all.iter(), now);
        let hosts: HashSet<HostNumber> = all.iter().map(|snapshot| snapshot.host).collect();
        shown.hosts = (hosts.into_iter())
            .map(|host| {
                let of_host = all.iter().filter(|snapshot| snapshot.host == host);
                (host, latest(of_host, now))
            })
            .collect();
        shown
    }
}

fn a_moment_later(time: Time) -> Time {
    match time.nanos < 999_999_999 {
        true => Time {
            nanos: time.nanos + 1,
            ..time
        },
        false => Time {
            seconds: time.seconds.saturating_add(1),
            nanos: 0,
        },
    }
}

/// The newest complete one that is not dated in the future, unless all are.
fn latest<'a>(
    all: impl Iterator<Item = &'a Arc<ShownSnapshot>>,
    now: Time,
) -> Option<SnapshotNumber> {
    let complete = all.filter(|snapshot| snapshot.is_complete);
    let newest = complete.max_by_key(|snapshot| {
        let is_believed = !is_time_in_future(snapshot.time, now);
        (is_believed, snapshot.time, Reverse(snapshot.id))
    });
    newest.map(|snapshot| snapshot.number)
}

/// The snapshots of a store, as they are shown.
pub struct ShownSnapshots {
    store: Arc<dyn SnapshotStore>,
    now: RwLock<Arc<ShownNow>>,
    /// All that were ever shown: those that are forgotten, too.
    by_number: RwLock<Vec<Arc<ShownSnapshot>>>,
    seen: Mutex<Seen>,
    problems: Arc<MountProblems>,
}

/// Everything that was ever seen by this mount.
#[derive(Default)]
struct Seen {
    looked: Option<Time>,
    /// `None`: it is not to be shown.
    known: HashMap<ObjectId, Option<Arc<ShownSnapshot>>>,
    given: usize,
    names: TimeNames,
    id_names: HashSet<String>,
    host_names: Vec<String>,
    host_numbers: HashMap<String, HostNumber>,
}

impl ShownSnapshots {
    /// Looks for the first time.
    pub fn open(
        store: Arc<dyn SnapshotStore>,
        problems: Arc<MountProblems>,
    ) -> Result<ShownSnapshots, StoreTrouble> {
        let shown = ShownSnapshots {
            store,
            now: RwLock::default(),
            by_number: RwLock::default(),
            seen: Mutex::default(),
            problems,
        };
        shown.look(&mut shown.lock())?;
        Ok(shown)
    }

    /// As it was when somebody looked last.
    pub fn last(&self) -> Arc<ShownNow> {
        self.now
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// As it is now, or was a few seconds ago. What cannot be looked at stays as it was.
    pub fn now(&self) -> Arc<ShownNow> {
        // Whoever comes while another looks is shown what was there before.
        if let Ok(mut seen) = self.seen.try_lock()
            && is_due(seen.looked, self.store.now())
        {
            match self.look(&mut seen) {
                Ok(()) => self.problems.list_can_be_read(),
                Err(trouble) => self.problems.list_cannot_be_read(&*trouble),
            }
        }
        self.last()
    }

    /// Also of one that is forgotten.
    pub fn of_number(&self, number: SnapshotNumber) -> Option<Arc<ShownSnapshot>> {
        let all = self.by_number.read();
        let all = all.unwrap_or_else(PoisonError::into_inner);
        all.get(usize::from(number.0).checked_sub(1)?).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, seen: &mut Seen) -> Result<(), StoreTrouble> {
        // Also after a failure: a store that does not answer is not asked by every look.
        seen.looked = Some(self.store.now());
        let ids = self.store.list()?;
        let mut new: Vec<(ObjectId, Snapshot)> = Vec::new();
        for id in &ids {
            if seen.known.contains_key(id) {
                continue;
            }
            match self.store.read(id) {
                Ok(Some(snapshot)) => new.push((*id, without_rows(snapshot))),
                Ok(None) => {
                    seen.known.insert(*id, None);
                }
                Err(trouble) => self.problems.snapshot_cannot_be_read(id, &*trouble),
            }
        }
        new.sort_by_key(|(id, snapshot)| (snapshot.time, *id));
        for (id, snapshot) in new {
            match seen.add(id, &snapshot) {
                Some(shown) => {
                    let all = self.by_number.write();
                    all.unwrap_or_else(PoisonError::into_inner).push(shown);
                }
                None => self.problems.too_many_snapshots(SNAPSHOTS_MAX),
            }
        }
        let mut shown: Vec<_> = (ids.iter())
            .filter_map(|id| seen.known.get(id)?.clone())
            .collect();
        shown.sort_by_key(|snapshot| snapshot.number);
        let mut now = ShownNow::of(&shown, Arc::new(seen.host_names.clone()), self.store.now());
        now.changed_since(&self.last());
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(now);
        // As long as reading all of them took, they are not read again.
        seen.looked = Some(self.store.now());
        Ok(())
    }
}

/// Also when the clock was set back.
fn is_due(looked: Option<Time>, now: Time) -> bool {
    let every = LOOK_AGAIN_EVERY.as_secs() as i64;
    looked.is_none_or(|looked| now < looked || now.seconds.saturating_sub(looked.seconds) >= every)
}

/// Many records wait for their turn, and what is wanted of them is a line.
fn without_rows(mut snapshot: Snapshot) -> Snapshot {
    snapshot.layers = Vec::new();
    snapshot.problems = Vec::new();
    snapshot.images = Vec::new();
    snapshot.thin = Vec::new();
    snapshot
}

impl Seen {
    /// `None`: there are no numbers left.
    fn add(&mut self, id: ObjectId, snapshot: &Snapshot) -> Option<Arc<ShownSnapshot>> {
        let Some(number) = (self.given < SNAPSHOTS_MAX).then_some(self.given + 1) else {
            self.known.insert(id, None);
            return None;
        };
        self.given = number;
        let host_name = of_host(&snapshot.host);
        let host = match self.host_numbers.get(&host_name) {
            Some(host) => *host,
            None => {
                let host = HostNumber(self.host_names.len() as u16);
                self.host_numbers.insert(host_name.clone(), host);
                self.host_names.push(host_name);
                host
            }
        };
        let mut id_name = id.short();
        if !self.id_names.insert(id_name.clone()) {
            id_name = id.to_string();
        }
        let shown = ShownSnapshot {
            id_name,
            number: SnapshotNumber(number as u16),
            id,
            time: snapshot.time,
            name: self.names.give(snapshot.time),
            host,
            is_complete: !snapshot.partial,
        };
        let shown = Arc::new(shown);
        self.known.insert(id, Some(shown.clone()));
        Some(shown)
    }
}
