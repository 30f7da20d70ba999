//! Making a repository where others do the same at that moment (CON-09), on a store that keeps the
//! first object of a name and on one that replaces it, as servers do that know no conditions.

use bale_pipeline::random::OsRandom;
use bale_repository::error::Error;
use bale_repository::repository::{Environment, Made, NewSlot, Repository};
use bale_repository::store::{
    Area, MemoryStore, ObjectInfo, ObjectName, ObjectWriter, Result, Store,
};
use bale_testkit::{Effect, FaultyStore, HookedStore, InjectedFault, Scene, Turns, Verb};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Puts whatever is there.
#[derive(Clone, Default)]
struct Replacing(MemoryStore);

impl Store for Replacing {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.0.overwrite(name, bytes.to_vec());
        Ok(())
    }
    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.0.begin()
    }
    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.0.get(name, len_max)
    }
    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(name, offset, buf)
    }
    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.0.stat(name)
    }
    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        self.0.list(area, found)
    }
    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.0.delete(name)
    }
    fn place(&self) -> String {
        self.0.place()
    }
}

fn init(scene: &Scene, store: impl Store + 'static) -> std::result::Result<Made, Error> {
    let slot = NewSlot {
        secret: Scene::secret(),
        label: "test".to_owned(),
    };
    let environment = Environment {
        random: Arc::new(OsRandom),
        ..scene.environment()
    };
    Repository::init(Arc::new(store), vec![slot], environment)
}

/// How many of three made a repository, call by call in an order drawn from `seed`. What is left
/// is the repository of the one, or none.
fn makers<S: Store + Clone + 'static>(scene: &Scene, store: &S, seed: u64) -> usize {
    let turns = Turns::new(seed, |_| {});
    let actors: Vec<_> = (0..3).map(|_| turns.actor(store.clone())).collect();
    let made: Vec<_> = std::thread::scope(|scope| {
        // What was made is dropped there: an actor whose store lives on keeps its turns.
        let make = move |actor| init(scene, actor).map(|made| made.repository.id());
        let start = |actor| scope.spawn(move || make(actor));
        let running: Vec<_> = actors.into_iter().map(start).collect();
        (running.into_iter())
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut ids = Vec::new();
    for one in made {
        match one {
            Ok(id) => ids.push(id),
            Err(Error::RepositoryExists(_) | Error::OthersKeys(_)) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    match scene.open(store.clone()) {
        Ok(repository) => assert_eq!(ids, [repository.id()], "seed {seed}"),
        Err(_) => assert!(ids.is_empty(), "seed {seed}"),
    }
    ids.len()
}

#[test]
fn of_many_inits_at_once_one_makes_the_repository() {
    let scene = Scene::new();
    for seed in 0..200 {
        assert_eq!(makers(&scene, &MemoryStore::new(), seed), 1, "seed {seed}");
    }
}

#[test]
fn of_many_inits_at_once_at_most_one_makes_a_repository_where_the_store_replaces() {
    let scene = Scene::new();
    let made: usize = (0..400)
        .map(|seed| makers(&scene, &Replacing::default(), seed))
        .sum();
    assert!(made > 0, "somebody must come through at times");
}

/// They may be those of one that is under way.
#[test]
fn slots_of_another_init_stop_one_where_the_store_replaces() {
    let scene = Scene::new();
    let store = Replacing::default();
    let left = ObjectName::key(bale_format::ObjectId([7; 32]));
    store.put(&left, b"a slot").unwrap();
    let error = init(&scene, store.clone()).map(drop).unwrap_err();
    assert!(matches!(error, Error::OthersKeys(_)), "{error}");
    assert!(error.to_string().contains("remove keys/"), "{error}");
    assert_eq!(store.0.objects().len(), 1, "nothing is made");
    store.delete(&left).unwrap();
    init(&scene, store).unwrap();
}

/// A store that replaces, with the key slot of an init that was `age` ago by its clock, which is
/// `ahead` of that of its clients.
#[derive(Clone)]
struct WithSlotOfAnother {
    store: Replacing,
    age: Duration,
    now: SystemTime,
}

impl WithSlotOfAnother {
    fn new(scene: &Scene, age: Duration, ahead: Duration) -> WithSlotOfAnother {
        let store = Replacing::default();
        store.put(&WithSlotOfAnother::left(), b"a slot").unwrap();
        let now = scene.environment().clock.now() + ahead;
        WithSlotOfAnother { store, age, now }
    }

    fn left() -> ObjectName {
        ObjectName::key(bale_format::ObjectId([7; 32]))
    }
}

impl Store for WithSlotOfAnother {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.store.put(name, bytes)
    }
    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.store.begin()
    }
    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.store.get(name, len_max)
    }
    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.store.read_at(name, offset, buf)
    }
    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.store.stat(name)
    }
    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        self.store.list(area, &mut |info| {
            let is_left = info.name == WithSlotOfAnother::left();
            let age = if is_left { self.age } else { Duration::ZERO };
            let modified = Some(self.now - age);
            found(ObjectInfo { modified, ..info });
        })
    }
    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.store.delete(name)
    }
    fn place(&self) -> String {
        self.store.place()
    }
}

const HOUR: Duration = Duration::from_secs(60 * 60);

/// By the store's clock: that of this machine may be off.
#[test]
fn slots_of_an_init_that_did_not_end_stop_nobody_once_they_are_an_hour_old() {
    let scene = Scene::new();
    for (age, ahead, is_old) in [
        (HOUR, Duration::ZERO, true),
        (HOUR - Duration::from_secs(1), Duration::ZERO, false),
        (Duration::ZERO, Duration::ZERO, false),
        (2 * HOUR, HOUR, true),
    ] {
        let store = WithSlotOfAnother::new(&scene, age, ahead);
        match init(&scene, store.clone()) {
            Ok(made) => {
                assert!(is_old, "{age:?}");
                assert_eq!(made.slots_before, [WithSlotOfAnother::left().id().unwrap()]);
            }
            Err(Error::OthersKeys(_)) => {
                assert!(!is_old, "{age:?}");
                assert_eq!(store.store.0.objects().len(), 1, "nothing is made");
            }
            Err(error) => panic!("{error}"),
        }
    }
    // A clock of this machine that is ahead makes none of them old.
    let behind = WithSlotOfAnother {
        now: scene.environment().clock.now() - 2 * HOUR,
        ..WithSlotOfAnother::new(&scene, Duration::ZERO, Duration::ZERO)
    };
    let error = init(&scene, behind.clone()).map(drop).unwrap_err();
    assert!(matches!(error, Error::OthersKeys(_)), "{error}");
    assert_eq!(behind.store.0.objects().len(), 1, "nothing is left");
}

#[test]
fn of_many_inits_at_once_at_most_one_makes_a_repository_beside_old_slots() {
    let scene = Scene::new();
    let made: usize = (0..400)
        .map(|seed| {
            let store = WithSlotOfAnother::new(&scene, HOUR, Duration::ZERO);
            makers(&scene, &store, seed)
        })
        .sum();
    assert!(made > 0, "somebody must come through at times");
}

/// Others do not wait for it any more.
#[test]
fn an_init_that_stood_still_for_too_long_makes_nothing() {
    let scene = Scene::new();
    let store = Replacing::default();
    let clock = scene.clock.clone();
    let slow = HookedStore::over(store.clone(), move |call| {
        if call.verb == Verb::Put {
            clock.advance(HOUR / 4);
        }
    });
    let error = init(&scene, slow).map(drop).unwrap_err();
    assert!(error.to_string().contains("try again"), "{error}");
    assert!(store.0.objects().is_empty());
}

/// Whoever gives up leaves the place as it was, whatever failed before `config` was sent.
#[test]
fn an_init_that_fails_before_its_config_leaves_no_key_slot() {
    let scene = Scene::new();
    for (verb, area, after) in [
        (Verb::Put, Area::Keys, 1),
        (Verb::Put, Area::Config, 0),
        (Verb::List, Area::Keys, 1),
    ] {
        let store = Replacing::default();
        let faulty = FaultyStore::over(store.clone());
        let refused = Effect::Fail(ErrorKind::PermissionDenied);
        let fault = InjectedFault::new(refused).of(verb).within(area);
        faulty.inject(fault.after(after).for_ever());
        init(&scene, faulty).map(drop).unwrap_err();
        assert!(store.0.objects().is_empty(), "{verb:?} of {area}");
        init(&scene, store).unwrap();
    }
}

/// An answer that was lost says nothing: the `config` may be there, and needs its slots.
#[test]
fn an_init_whose_config_may_be_there_keeps_its_key_slots() {
    let scene = Scene::new();
    for kind in [ErrorKind::TimedOut, ErrorKind::Other] {
        let store = Replacing::default();
        let faulty = FaultyStore::over(store.clone());
        let lost = Effect::FailAfterwards(kind);
        let fault = InjectedFault::new(lost).of(Verb::Put).within(Area::Config);
        faulty.inject(fault);
        init(&scene, faulty).map(drop).unwrap_err();
        scene.open(store).unwrap();
    }
}

#[test]
fn an_init_that_may_not_delete_names_the_slots_that_it_leaves() {
    let scene = Scene::new();
    let store = Replacing::default();
    let faulty = FaultyStore::over(store.clone());
    let refused = |verb| InjectedFault::new(Effect::Fail(ErrorKind::PermissionDenied)).of(verb);
    faulty.inject(refused(Verb::Delete).for_ever());
    faulty.inject(refused(Verb::Put).within(Area::Config).for_ever());
    let error = init(&scene, faulty).map(drop).unwrap_err();
    let left: Vec<_> = store.0.objects().into_keys().collect();
    assert_eq!(left.len(), 2);
    for name in left {
        assert!(error.to_string().contains(&name.path()), "{error}");
    }
}
