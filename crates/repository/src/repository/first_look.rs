//! The first look at a repository that is far away: what opening it and the first steps of a
//! command need is requested at once, before it is needed.
//!
//! First `config`, its copy and listings; then key slots, packs, and objects that the cache does
//! not have. Packs are many: they are listed while others open the repository. Listings are as true
//! as any that were made a moment ago: each is used where the first look of an operation is meant,
//! for two minutes at most, and whoever looks again asks the store. Condemned lists are listed
//! before packs, as by everybody who relies on packs. What is requested here and fails is requested
//! again by whoever needs it, and he says what is wrong.

use crate::error::Error;
use crate::limits::{OBJECT_FLIGHT_BYTES, SLOT_BYTES_MAX};
use crate::metadata_cache::{CachedName, MetadataCache};
use crate::store::{
    Area, ColdClasses, ForeignEntry, Next, ObjectInfo, ObjectLocks, ObjectName, ObjectWriter,
    PackContent, Result, Store, StoreError, StoreShape,
};
use bale_format::RepositoryId;
use bale_format::config::UnverifiedConfig;
use bale_format::sealed::OBJECT_BYTES_MAX;
use bale_pipeline::ahead::Ahead;
use bale_pipeline::ordered::{Flights, in_order_weighed};
use bytes::Bytes;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Requests at once, and bytes of objects that are on their way, with the usual memory.
pub(super) const FLIGHTS: Flights = Flights {
    jobs: 16,
    weight: OBJECT_FLIGHT_BYTES as u64,
};

/// A listing is that of a first look for so long.
const YOUNG: Duration = Duration::from_secs(120);

const CONFIG_BYTES_MAX: u64 = bale_format::limits::CONFIG_BYTES_MAX as u64;

/// Key slots that are requested ahead.
const SLOTS_AHEAD_MAX: usize = 64;

/// What a command will look at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstLooks {
    /// Nothing but what opens the repository.
    #[default]
    Nothing,
    /// Snapshots, and unfinished runs.
    Snapshots,
    /// Chunks of catalogs and files, too.
    Chunks,
    /// And packs: to make a snapshot.
    Packs,
}

impl FirstLooks {
    fn areas(self) -> &'static [Area] {
        use Area::{Condemned, Damaged, Index, Runs, Snapshots};
        match self {
            FirstLooks::Nothing => &[],
            FirstLooks::Snapshots => &[Snapshots, Runs],
            FirstLooks::Chunks | FirstLooks::Packs => &[Condemned, Damaged, Index, Snapshots, Runs],
        }
    }
}

/// Listings of a moment ago.
#[derive(Default)]
pub(super) struct FirstListings {
    moment: Option<(Instant, SystemTime)>,
    listed: Mutex<HashMap<Area, Vec<ObjectInfo>>>,
    has_packs: bool,
}

impl FirstListings {
    /// By both clocks: one of them stands still while a machine sleeps.
    fn is_young(&self, now: SystemTime) -> bool {
        self.moment.is_some_and(|(instant, time)| {
            let apart = now.duration_since(time);
            let apart = apart.unwrap_or_else(|ahead| ahead.duration());
            instant.elapsed() <= YOUNG && apart <= YOUNG
        })
    }

    /// Were packs listed a moment ago, after the lists of condemned ones?
    pub(super) fn has_young_packs(&self, now: SystemTime) -> bool {
        self.has_packs && self.is_young(now)
    }

    /// For several who begin together.
    pub(super) fn share(&self, area: Area, now: SystemTime) -> Option<Vec<ObjectInfo>> {
        let listed = self.lock().get(&area).cloned();
        listed.filter(|_| self.is_young(now))
    }

    /// For whoever comes first.
    pub(super) fn take(&self, area: Area, now: SystemTime) -> Option<Vec<ObjectInfo>> {
        let listed = self.lock().remove(&area);
        listed.filter(|_| self.is_young(now))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Area, Vec<ObjectInfo>>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a first look requests.
enum Request {
    Get(ObjectName),
    List(Area),
    /// An object for the cache.
    Cache(ObjectName),
}

enum Answer {
    Got(ObjectName, Result<Vec<u8>>),
    Listed(Area, Result<Vec<ObjectInfo>>),
    Cached,
}

/// A store of which some answers are there already, each for one request.
pub(super) struct FirstLook {
    pub(super) store: Arc<dyn Store>,
    /// When it began.
    moment: (Instant, SystemTime),
    whole: Mutex<HashMap<ObjectName, Result<Vec<u8>>>>,
    listed: Mutex<HashMap<Area, Result<Vec<ObjectInfo>>>>,
    /// Being listed.
    packs: Option<Ahead<Result<Vec<ObjectInfo>>>>,
}

impl FirstLook {
    /// Requests `config`, its copy and the listings.
    pub(super) fn at(store: Arc<dyn Store>, looks: FirstLooks, now: SystemTime) -> FirstLook {
        let look = FirstLook {
            store,
            moment: (Instant::now(), now),
            whole: Mutex::default(),
            listed: Mutex::default(),
            packs: None,
        };
        let configs = ObjectName::configs().map(Request::Get);
        let areas = [Area::Keys].iter().chain(looks.areas());
        let listings = areas.map(|area| Request::List(*area));
        let requests = configs.into_iter().chain(listings);
        look.request(requests.map(|request| (0, request)), None);
        look
    }

    /// Requests the key slots and what the cache lacks of what was listed; of packs nothing is
    /// waited for.
    pub(super) fn go_on(&mut self, looks: FirstLooks, cache: Option<&MetadataCache>) {
        if looks == FirstLooks::Packs {
            let store = self.store.clone();
            let list = move || listed(&*store, Area::Packs);
            self.packs = Some(Ahead::start(std::iter::once_with(list), 1, 1));
        }
        let mut requests = Vec::new();
        {
            let listed = self.lock_listed();
            let of = |area| match listed.get(&area) {
                Some(Ok(infos)) => &infos[..],
                _ => &[],
            };
            let slots = of(Area::Keys).iter().take(SLOTS_AHEAD_MAX);
            requests.extend(slots.map(|info| (info.len, Request::Get(info.name))));
            let lacks = |name: &ObjectName| {
                let cached = CachedName::of_object(name);
                cached.is_some_and(|cached| cache.is_some_and(|cache| !cache.has(&cached)))
            };
            for info in looks.areas().iter().flat_map(|area| of(*area)) {
                if lacks(&info.name) {
                    requests.push((info.len, Request::Cache(info.name)));
                }
            }
        }
        self.request(requests.into_iter(), cache);
    }

    /// The id in `config`, or in its copy, that nobody has proven yet: a name for a directory. None
    /// if neither says one; an error if neither can be read, or there is no repository.
    pub(super) fn id_in_config(&self) -> crate::error::Result<Option<RepositoryId>> {
        let (mut id, mut is_read, mut trouble) = (None, false, None);
        {
            let whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
            for name in ObjectName::configs() {
                match whole.get(&name) {
                    Some(Ok(bytes)) => {
                        is_read = true;
                        let config = UnverifiedConfig::decode(bytes).ok();
                        id = id.or(config.map(|config| config.repository()));
                    }
                    Some(Err(error)) if error.is_not_found() => {}
                    Some(Err(_)) | None => trouble = trouble.or(Some(name)),
                }
            }
        }
        match trouble {
            _ if is_read => Ok(id),
            None => Err(Error::NoRepository(self.store.place())),
            Some(name) => {
                self.get(&name, CONFIG_BYTES_MAX)?;
                Ok(None)
            }
        }
    }

    /// What was listed, but for key slots.
    pub(super) fn into_listings(self) -> FirstListings {
        let mut listed = self
            .listed
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let packs = self.packs.and_then(|mut packs| packs.next());
        listed.extend(packs.map(|packs| (Area::Packs, packs)));
        let listed = listed.into_iter();
        let listed: HashMap<_, _> = listed
            .filter_map(|(area, infos)| Some((area, infos.ok()?)))
            .collect();
        FirstListings {
            moment: Some(self.moment),
            has_packs: listed.contains_key(&Area::Packs),
            listed: Mutex::new(listed),
        }
    }

    fn request(
        &self,
        requests: impl Iterator<Item = (u64, Request)>,
        cache: Option<&MetadataCache>,
    ) {
        let flights = match self.store.is_remote() {
            true => FLIGHTS,
            false => Flights { jobs: 1, ..FLIGHTS },
        };
        let answer = |request| self.answer(request, cache);
        let done = in_order_weighed(flights, requests, answer, |answer| {
            match answer {
                Answer::Got(name, bytes) => {
                    let whole = self.whole.lock();
                    let mut whole = whole.unwrap_or_else(PoisonError::into_inner);
                    whole.insert(name, bytes);
                }
                Answer::Listed(area, infos) => {
                    self.lock_listed().insert(area, infos);
                }
                Answer::Cached => {}
            }
            Ok::<(), Infallible>(())
        });
        match done {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    fn answer(&self, request: Request, cache: Option<&MetadataCache>) -> Answer {
        match request {
            Request::Get(name) => {
                let len_max = match name.area.is_directory() {
                    true => SLOT_BYTES_MAX,
                    false => CONFIG_BYTES_MAX,
                };
                Answer::Got(name, self.store.get(&name, len_max))
            }
            Request::List(area) => Answer::Listed(area, listed(&*self.store, area)),
            Request::Cache(name) => {
                let bytes = self.store.get(&name, OBJECT_BYTES_MAX as u64);
                let bytes = bytes.ok().filter(|bytes| is_named(&name, bytes));
                let cached = cache.zip(CachedName::of_object(&name)).zip(bytes);
                if let Some(((cache, cached), bytes)) = cached {
                    cache.save(&cached, &bytes);
                }
                Answer::Cached
            }
        }
    }

    fn lock_listed(&self) -> MutexGuard<'_, HashMap<Area, Result<Vec<ObjectInfo>>>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn listed(store: &dyn Store, area: Area) -> Result<Vec<ObjectInfo>> {
    let mut infos = Vec::new();
    store.list(area, &mut |info| infos.push(info))?;
    Ok(infos)
}

/// Has the object of this name these bytes?
pub(super) fn is_named(name: &ObjectName, bytes: &[u8]) -> bool {
    name.id()
        .is_none_or(|id| *blake3::hash(bytes).as_bytes() == id.0)
}

/// For opening: what was requested already is answered once; the rest goes to the store.
impl Store for FirstLook {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.store.put(name, bytes)
    }

    fn upload(
        &self,
        name: &ObjectName,
        pack: &Bytes,
        content: PackContent,
        again: &mut dyn FnMut(&StoreError),
    ) -> Result<()> {
        self.store.upload(name, pack, content, again)
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.store.begin()
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        self.store.begin_pack(content)
    }

    fn takes_streams(&self) -> bool {
        self.store.takes_streams()
    }

    fn begin_stream(&self) -> Result<Box<dyn ObjectWriter>> {
        self.store.begin_stream()
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let found = whole.remove(name);
        drop(whole);
        found.unwrap_or_else(|| self.store.get(name, len_max))
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.store.read_at(name, offset, buf)
    }

    fn expect(&self, next: Next<'_>) {
        self.store.expect(next);
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.store.stat(name)
    }

    fn are_there(&self, names: &[ObjectName]) -> Option<Result<Vec<bool>>> {
        self.store.are_there(names)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        let listed = self.lock_listed().remove(&area);
        match listed {
            Some(infos) => infos.map(|infos| infos.into_iter().for_each(found)),
            None => self.store.list(area, found),
        }
    }

    fn list_foreign(&self, area: Area, found: &mut dyn FnMut(ForeignEntry)) -> Result<()> {
        self.store.list_foreign(area, found)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.store.delete(name)
    }

    fn place(&self) -> String {
        self.store.place()
    }

    fn keeps_the_first(&self) -> bool {
        self.store.keeps_the_first()
    }

    fn is_tiered(&self) -> bool {
        self.store.is_tiered()
    }

    fn tiers(&self) -> Option<[&dyn Store; 2]> {
        self.store.tiers()
    }

    fn hot_failed(&self, error: &StoreError) {
        self.store.hot_failed(error);
    }

    fn shape(&self) -> StoreShape {
        self.store.shape()
    }

    fn is_remote(&self) -> bool {
        self.store.is_remote()
    }

    fn cold_classes(&self) -> Option<&dyn ColdClasses> {
        self.store.cold_classes()
    }

    fn object_locks(&self) -> Option<&dyn ObjectLocks> {
        self.store.object_locks()
    }
}
