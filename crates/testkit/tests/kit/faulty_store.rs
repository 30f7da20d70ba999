//! The faults do what they say, so that a test which survives them has shown something.

use std::io::ErrorKind;

use bale_format::ObjectId;
use bale_repository::store::{Area, MemoryStore, ObjectName, Store};
use bale_testkit::{Effect, FaultyStore, InjectedFault, ListFault, RecordingStore, Verb};

const LEN_MAX: u64 = 1 << 20;

fn index(seed: u8) -> ObjectName {
    ObjectName::index(ObjectId([seed; 32]))
}

fn pack(seed: u8) -> ObjectName {
    ObjectName::pack(ObjectId([seed; 32]))
}

fn store() -> (MemoryStore, FaultyStore) {
    let inner = MemoryStore::new();
    (inner.clone(), FaultyStore::over(inner))
}

fn listed(store: &dyn Store) -> Vec<ObjectName> {
    let mut names = Vec::new();
    store
        .list(Area::Index, &mut |info| names.push(info.name))
        .unwrap();
    names
}

/// A small backup: a pack, its index, a look at it, a snapshot.
fn operation(store: &dyn Store) -> bale_repository::store::Result<()> {
    let mut writer = store.begin()?;
    writer.append(b"pack")?;
    writer.publish(&pack(1))?;
    store.put(&index(1), b"index")?;
    store.get(&index(1), LEN_MAX)?;
    store.put(&ObjectName::snapshot(ObjectId([1; 32])), b"snapshot")?;
    store.delete(&index(2))
}

#[test]
fn a_fault_strikes_the_call_it_was_meant_for_and_no_other() {
    let (inner, store) = store();
    store.inject(
        InjectedFault::error()
            .of(Verb::Put)
            .within(Area::Index)
            .after(1),
    );
    store.put(&pack(1), b"another area").unwrap();
    store.put(&index(1), b"the first").unwrap();
    store.put(&index(2), b"the second").unwrap_err();
    store.put(&index(3), b"the third").unwrap();
    assert_eq!(inner.objects().len(), 3);
}

#[test]
fn a_fault_for_ever_stays_until_it_is_healed() {
    let (_, store) = store();
    store.inject(
        InjectedFault::new(Effect::Fail(ErrorKind::TimedOut))
            .of(Verb::Get)
            .for_ever(),
    );
    store.put(&index(1), b"bytes").unwrap();
    for _ in 0..3 {
        assert_eq!(
            store.get(&index(1), LEN_MAX).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
    }
    store.heal();
    assert_eq!(store.get(&index(1), LEN_MAX).unwrap(), b"bytes");
}

#[test]
fn a_lost_answer_leaves_the_work_done() {
    let (inner, store) = store();
    store.inject(
        InjectedFault::new(Effect::FailAfterwards(ErrorKind::ConnectionReset)).of(Verb::Put),
    );
    store.put(&index(1), b"bytes").unwrap_err();
    assert_eq!(inner.get(&index(1), LEN_MAX).unwrap(), b"bytes");
    store.put(&index(1), b"bytes").unwrap();
}

#[test]
fn bytes_are_damaged_on_their_way_and_not_at_rest() {
    let (inner, store) = store();
    store.put(&index(1), &[0; 10]).unwrap();
    store.inject(InjectedFault::new(Effect::FlipBit(9)).of(Verb::Get));
    assert_eq!(
        store.get(&index(1), LEN_MAX).unwrap(),
        [0, 2, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(store.get(&index(1), LEN_MAX).unwrap(), [0; 10]);
    store.inject(InjectedFault::new(Effect::FlipBit(8 * 4)).of(Verb::ReadAt));
    let mut part = [0; 4];
    store.read_at(&index(1), 2, &mut part).unwrap();
    assert_eq!(part, [1, 0, 0, 0], "the position wraps around");
    store.heal();
    store.inject(InjectedFault::new(Effect::CutShort(3)).of(Verb::Get));
    assert_eq!(store.get(&index(1), LEN_MAX).unwrap().len(), 7);
    assert_eq!(inner.get(&index(1), LEN_MAX).unwrap(), [0; 10]);
}

#[test]
fn listings_lie_as_told() {
    let (_, store) = store();
    (1..=4).for_each(|seed| store.put(&index(seed), b"x").unwrap());
    let lie = |fault| {
        store.heal();
        store.inject(InjectedFault::new(Effect::List(fault)));
        listed(&store)
    };
    assert_eq!(lie(ListFault::DropEvery(2)), [index(2), index(4)]);
    assert_eq!(lie(ListFault::Reverse), [4, 3, 2, 1].map(index));
    assert_eq!(
        lie(ListFault::Duplicate),
        [1, 1, 2, 2, 3, 3, 4, 4].map(index)
    );
}

#[test]
fn a_full_store_takes_what_fits_and_can_still_delete() {
    let (inner, store) = store();
    store.full_after(10);
    store.put(&index(1), &[1; 6]).unwrap();
    assert!(store.put(&index(2), &[2; 6]).unwrap_err().is_storage_full());
    assert!(store.put(&index(3), &[3; 1]).unwrap_err().is_storage_full());
    store.delete(&index(1)).unwrap();
    assert!(inner.objects().is_empty());
}

#[test]
fn a_writer_refuses_everything_after_an_error() {
    let (inner, store) = store();
    store.inject(InjectedFault::error().of(Verb::Append));
    let mut writer = store.begin().unwrap();
    writer.append(b"bytes").unwrap_err();
    writer.append(b"bytes").unwrap_err();
    writer.publish(&pack(1)).unwrap_err();
    assert!(inner.objects().is_empty());
}

#[test]
fn a_crash_can_be_put_at_every_call() {
    let mut left = Vec::new();
    for calls in 0.. {
        let (inner, store) = store();
        store.crash_after(calls, false);
        let through = operation(&store).is_ok();
        left.push(inner.objects().len());
        assert_eq!(store.crashed(), !through);
        assert_eq!(
            store.stat(&index(1)).is_err(),
            store.crashed(),
            "nothing answers after a crash"
        );
        if through {
            break;
        }
    }
    // begin, append, publish, put, get, put, delete, and through.
    assert_eq!(left, [0, 0, 0, 1, 2, 2, 3, 3]);
}

#[test]
fn the_call_a_crash_strikes_may_have_had_its_effect() {
    let (inner, store) = store();
    store.crash_after(2, true);
    operation(&store).unwrap_err();
    assert_eq!(inner.objects().into_keys().collect::<Vec<_>>(), [pack(1)]);
    store.get(&pack(1), LEN_MAX).unwrap_err();
}

#[test]
fn every_call_is_recorded_in_order_with_its_bytes() {
    let store = RecordingStore::over(MemoryStore::new());
    operation(&store).unwrap();
    use Verb::{Append, Begin, Delete, Get, Publish, Put};
    let verbs: Vec<_> = store.calls().iter().map(|call| call.verb).collect();
    assert_eq!(verbs, [Begin, Append, Publish, Put, Get, Put, Delete]);
    assert_eq!(store.count(Verb::Put), 2);
    assert_eq!(store.count_in(Verb::Put, Area::Snapshots), 1);
    assert_eq!(store.bytes(Verb::Put), 13);
    assert_eq!(store.bytes(Verb::Get), 5);
    assert_eq!(store.take().len(), 7);
    assert_eq!(store.calls(), []);
}
