//! Key slots that are damaged, copied, too many, or removed by two at once: nobody is shut out of a
//! repository that one of his keys opens, and nothing that may not open it counts as a key (REP-17
//! .. 19).

use bale_format::ObjectId;
use bale_format::key_slot::{KeySlot, PasswordCost, SlotParameters, SlotSecret};
use bale_format::keys::RootKey;
use bale_repository::error::Error;
use bale_repository::repository::{NewSlot, Repository, Secret, SlotInfo, SlotState};
use bale_repository::store::{self, Area, ObjectInfo, ObjectName, ObjectWriter, Store};
use bale_testkit::{DatedStore, Effect, FaultyStore, InjectedFault, Scene, Verb};

fn other(text: &str) -> NewSlot {
    NewSlot {
        secret: Secret::KeyFile(format!("{text:-<40}").into_bytes()),
        label: text.to_owned(),
    }
}

fn slot_of<'s>(slots: &'s [SlotInfo], kind: &str) -> &'s SlotInfo {
    slots.iter().find(|slot| slot.kind == Some(kind)).unwrap()
}

fn slot_bytes(store: &DatedStore, id: ObjectId) -> Vec<u8> {
    store.get(&ObjectName::key(id), 1 << 20).unwrap()
}

fn flip(store: &DatedStore, id: ObjectId, at: impl Fn(&[u8]) -> usize) {
    let mut bytes = slot_bytes(store, id);
    let at = at(&bytes);
    // Another letter of base64.
    bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
    store.memory().overwrite(&ObjectName::key(id), bytes);
}

fn behind(bytes: &[u8], text: &str) -> usize {
    let found = bytes.windows(text.len()).position(|w| w == text.as_bytes());
    found.unwrap() + text.len()
}

fn is_damaged(slot: &SlotInfo) -> bool {
    matches!(slot.state, SlotState::Damaged(_))
}

fn removed(repository: &Repository, id: ObjectId) -> Result<ObjectId, Error> {
    repository.remove_key(&id.to_string())
}

#[test]
fn a_damaged_slot_is_no_key_that_stays() {
    let scene = Scene::new();
    let repository = scene.repository();
    let slots = repository.list_keys().unwrap();
    let (own, recovery) = (slot_of(&slots, "keyfile"), slot_of(&slots, "recovery"));
    flip(&scene.store, recovery.id, |bytes| {
        behind(bytes, "\"wrapped\": \"")
    });
    let refused = removed(&repository, own.id).unwrap_err().to_string();
    assert!(refused.contains("no other key is sound"), "{refused}");
    scene.open(scene.store.clone()).unwrap();
}

#[test]
fn a_copy_of_a_slot_under_another_name_is_no_second_key() {
    let scene = Scene::new();
    let repository = scene.repository();
    let slots = repository.list_keys().unwrap();
    let (own, recovery) = (slot_of(&slots, "keyfile"), slot_of(&slots, "recovery"));
    let copy = ObjectId([7; 32]);
    let bytes = slot_bytes(&scene.store, own.id);
    scene.store.put(&ObjectName::key(copy), &bytes).unwrap();
    removed(&repository, recovery.id).unwrap();
    assert!(removed(&repository, own.id).is_err());
    let slots = repository.list_keys().unwrap();
    assert!(is_damaged(
        slots.iter().find(|slot| slot.id == copy).unwrap()
    ));
    let current = slots.iter().find(|slot| slot.current).unwrap();
    assert_eq!(current.id, own.id, "sound slots are tried first");
    removed(&repository, copy).unwrap();
    scene.open(scene.store.clone()).unwrap();
}

#[test]
fn the_key_that_opened_goes_only_when_one_made_since_was_opened() {
    let scene = Scene::new();
    let repository = scene.repository();
    let own = repository.slot();
    let refused = removed(&repository, own).unwrap_err().to_string();
    assert!(refused.contains("nothing shows"), "{refused}");
    let new = repository.add_key(&Scene::secret(), &other("new")).unwrap();
    removed(&repository, own).unwrap();
    assert!(removed(&repository, new).is_err());
    let opened = Repository::open(
        std::sync::Arc::new(scene.store.clone()),
        &other("new").secret,
        scene.environment(),
    );
    assert_eq!(opened.unwrap().slot(), new);
    assert!(matches!(
        scene.open(scene.store.clone()),
        Err(Error::WrongKey)
    ));
}

#[test]
fn a_slot_damaged_since_it_was_added_does_not_replace_the_old_one() {
    let scene = Scene::new();
    let repository = scene.repository();
    let new = repository.add_key(&Scene::secret(), &other("new")).unwrap();
    flip(&scene.store, new, |bytes| behind(bytes, "\"salt\": \""));
    assert!(removed(&repository, repository.slot()).is_err());
    scene.open(scene.store.clone()).unwrap();
}

#[test]
fn a_right_secret_whose_slot_is_damaged_is_told_of_the_damage() {
    let scene = Scene::new();
    let own = scene.repository().slot();
    let name = ObjectName::key(own).to_string();
    for field in ["\"salt\": \"", "\"commitment\": \"", "\"wrapped\": \""] {
        let damaged = scene.store.fork();
        flip(&damaged, own, |bytes| behind(bytes, field));
        let refused = scene.open(damaged).err().unwrap();
        assert!(matches!(refused, Error::KeysDamaged(_)), "{refused}");
        assert!(refused.to_string().contains(&name), "{refused}");
    }
    let empty = scene.store.fork();
    empty.memory().overwrite(&ObjectName::key(own), Vec::new());
    let refused = scene.open(empty).err().unwrap();
    assert!(refused.to_string().contains(&name), "{refused}");
}

#[test]
fn a_slot_whose_label_alone_is_damaged_opens_and_is_called_damaged() {
    let scene = Scene::new();
    let own = scene.repository().slot();
    flip(&scene.store, own, |bytes| behind(bytes, "\"label\": \""));
    let repository = scene.open(scene.store.clone()).unwrap();
    let slots = repository.list_keys().unwrap();
    let current = slots.iter().find(|slot| slot.current).unwrap();
    assert!(current.id == own && is_damaged(current), "{slots:?}");
    let recovery = slot_of(&slots, "recovery").id;
    assert!(
        removed(&repository, recovery).is_err(),
        "the last sound one"
    );
    repository.add_key(&Scene::secret(), &other("new")).unwrap();
    removed(&repository, own).unwrap();
}

#[test]
fn a_damaged_slot_is_listed_named_by_a_check_and_can_be_removed() {
    let scene = Scene::new();
    for bytes in [&b""[..], b"not a slot", &[b' '; 100_000]] {
        let damaged = scene.store.fork();
        let slots = scene.repository().list_keys().unwrap();
        let recovery = slot_of(&slots, "recovery").id;
        let name = ObjectName::key(recovery);
        damaged.memory().overwrite(&name, bytes.to_vec());
        let repository = scene.open(damaged.clone()).unwrap();
        let slots = repository.list_keys().unwrap();
        assert_eq!(slots.iter().filter(|slot| is_damaged(slot)).count(), 1);
        let report = scene.check(&damaged).unwrap();
        let named: Vec<_> = report.damage.iter().map(|damage| &damage.what).collect();
        assert_eq!(named, [&name.to_string()]);
        assert_eq!(removed(&repository, recovery).unwrap(), recovery);
        assert!(scene.check(&damaged).unwrap().is_clean());
    }
}

#[test]
fn of_two_who_remove_each_others_key_at_once_one_stays() {
    let scene = Scene::new();
    let first = scene.repository();
    let slots = first.list_keys().unwrap();
    removed(&first, slot_of(&slots, "recovery").id).unwrap();
    let added = first.add_key(&Scene::secret(), &other("second")).unwrap();
    let first = scene.repository();
    let store = std::sync::Arc::new(scene.store.clone());
    let second = Repository::open(store, &other("second").secret, scene.environment()).unwrap();
    let ends = std::thread::scope(|threads| {
        let one = threads.spawn(|| removed(&first, added).is_ok());
        let two = threads.spawn(|| removed(&second, first.slot()).is_ok());
        [one.join().unwrap(), two.join().unwrap()]
    });
    let stay = scene.store.names(Area::Keys).len();
    assert!(stay >= 1 && !(ends[0] && ends[1]), "{ends:?}, {stay} stay");
}

/// A store in which somebody else removes a slot just before we remove one.
struct Rival {
    store: DatedStore,
    removes: ObjectName,
}

impl Store for Rival {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> store::Result<()> {
        self.store.put(name, bytes)
    }
    fn begin(&self) -> store::Result<Box<dyn ObjectWriter>> {
        self.store.begin()
    }
    fn get(&self, name: &ObjectName, len_max: u64) -> store::Result<Vec<u8>> {
        self.store.get(name, len_max)
    }
    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> store::Result<()> {
        self.store.read_at(name, offset, buf)
    }
    fn stat(&self, name: &ObjectName) -> store::Result<Option<ObjectInfo>> {
        self.store.stat(name)
    }
    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> store::Result<()> {
        self.store.list(area, found)
    }
    fn delete(&self, name: &ObjectName) -> store::Result<()> {
        self.store.delete(&self.removes)?;
        self.store.delete(name)
    }
    fn place(&self) -> String {
        self.store.place()
    }
}

#[test]
fn a_key_whose_remover_lost_his_own_meanwhile_is_put_back() {
    let scene = Scene::new();
    let slots = scene.repository().list_keys().unwrap();
    let (own, recovery) = (slot_of(&slots, "keyfile"), slot_of(&slots, "recovery"));
    let rival = Rival {
        store: scene.store.clone(),
        removes: ObjectName::key(own.id),
    };
    let refused = removed(&scene.open(rival).unwrap(), recovery.id).unwrap_err();
    assert!(refused.to_string().contains("meanwhile"), "{refused}");
    assert_eq!(
        scene.store.names(Area::Keys),
        [ObjectName::key(recovery.id)]
    );
}

#[test]
fn a_slot_that_does_not_read_back_is_not_called_added() {
    let scene = Scene::new();
    let bytes = slot_bytes(&scene.store, scene.repository().slot()).len() as u64;
    for bit in (0..8 * bytes).step_by(97) {
        let disk = scene.store.fork();
        let store = FaultyStore::over(disk.clone());
        // Two slots are read for the secret, and two are counted.
        let flip = InjectedFault::new(Effect::FlipBit(bit))
            .of(Verb::Get)
            .within(Area::Keys);
        let repository = scene.open(store.clone()).unwrap();
        store.inject(flip.after(4));
        let added = repository.add_key(&Scene::secret(), &other("new"));
        assert!(added.is_err(), "bit {bit}");
        let written = disk.names(Area::Keys).len();
        assert_eq!(written, 3, "bit {bit}: another read failed");
        assert!(
            removed(&repository, repository.slot()).is_err(),
            "bit {bit}"
        );
    }
}

#[test]
fn many_slots_shut_nobody_out() {
    let scene = Scene::new();
    let repository = scene.repository();
    for number in 0..70 {
        let new = other(&format!("number {number}"));
        repository.add_key(&Scene::secret(), &new).unwrap();
    }
    for number in 0..70 {
        let store = std::sync::Arc::new(scene.store.clone());
        let secret = other(&format!("number {number}")).secret;
        Repository::open(store, &secret, scene.environment()).unwrap();
    }
    scene.open(scene.store.clone()).unwrap();
}

/// Cheap ones, for derivations take time.
fn add_password(scene: &Scene, number: u8) {
    let new = SlotParameters {
        label: "of another",
        created: i64::from(number),
        salt: [number; 32],
        cost: PasswordCost {
            m_kib: 8,
            t: 1,
            p: 1,
        },
    };
    let root = RootKey::from_bytes([number; 32]);
    let secret = SlotSecret::Password(b"another password");
    let slot = KeySlot::create(&root, scene.repository().id(), secret, &new).unwrap();
    let bytes = slot.encode();
    let id = ObjectId(*blake3::hash(&bytes).as_bytes());
    scene.store.put(&ObjectName::key(id), &bytes).unwrap();
}

#[test]
fn a_password_too_many_is_refused_and_other_keys_open_all_the_same() {
    let scene = Scene::new();
    let password = NewSlot {
        secret: Secret::Password("a password".to_owned()),
        label: String::new(),
    };
    (0..64).for_each(|number| add_password(&scene, number));
    let repository = scene.open(scene.store.clone()).unwrap();
    let refused = repository.add_key(&Scene::secret(), &password);
    assert!(refused.unwrap_err().to_string().contains("64 passwords"));
    repository
        .add_key(&Scene::secret(), &other("a key file"))
        .unwrap();
    add_password(&scene, 64);
    let store = std::sync::Arc::new(scene.store.clone());
    let refused = Repository::open(store, &password.secret, scene.environment());
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("1 more were not tried"), "{refused}");
}
