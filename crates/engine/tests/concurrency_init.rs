//! Making a repository where others do the same at that moment (CON-09), on a store that keeps the
//! first object of a name and on one that replaces it, as servers do that know no conditions.

use bale_pipeline::random::OsRandom;
use bale_repository::error::Error;
use bale_repository::repository::{Environment, Made, NewSlot, Repository};
use bale_repository::store::{
    Area, MemoryStore, ObjectInfo, ObjectName, ObjectWriter, Result, Store,
};
use bale_testkit::{Scene, Turns};
use std::sync::Arc;

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
