//! Large uploads beside each other take connections beside each other, where they can be had.

use crate::fake::scene::{laid_out, name, open, settle, temporary_files, there};
use crate::fake::{FakeServer, Manners, PATIENCE};
use bale_remote::sftp::SftpStore;
use bale_repository::store::Store;
use std::time::{Duration, Instant};

const LARGE: usize = 2 << 20;

/// A pack, behind which another one is expected.
fn pack(first: u8) -> Vec<u8> {
    vec![first; 4 << 20]
}

fn large(first: u8) -> Vec<u8> {
    vec![first; LARGE]
}

/// A store whose first connection is cut after so many bytes of answers; `None` if that was too
/// early to open it.
fn open_and_cut_after(cut: usize) -> Option<(FakeServer, SftpStore)> {
    let fake = laid_out();
    fake.behave(Manners {
        cut_after: Some(cut),
        ..Manners::default()
    });
    let store = SftpStore::open(fake.reach(PATIENCE)).ok()?;
    Some((fake, store))
}

/// As many uploads at once as there are packs on their way.
fn upload_three(fake: &FakeServer, store: &SftpStore) {
    std::thread::scope(|scope| {
        for first in 1..=3 {
            scope.spawn(move || store.put(&name(first), &large(first)).unwrap());
        }
    });
    settle(store);
    for first in 1..=3 {
        assert_eq!(there(fake, &name(first)), Some(large(first)));
    }
    assert_eq!(temporary_files(fake), Vec::<String>::new());
}

#[test]
fn three_large_uploads_take_three_connections_and_later_ones_use_them_again() {
    let fake = laid_out();
    // Nothing that is written is answered before three connections have written.
    fake.behave(Manners {
        writers_meet: 3,
        ..Manners::default()
    });
    let store = open(&fake);
    upload_three(&fake, &store);
    assert_eq!(fake.connections(), 3);
    store.put(&name(4), &large(4)).unwrap();
    assert_eq!(fake.connections(), 3);
}

#[test]
fn one_upload_after_the_other_and_small_ones_take_one_connection() {
    let fake = laid_out();
    fake.behave(Manners::default());
    let store = open(&fake);
    for first in 1..=3 {
        store.put(&name(first), &large(first)).unwrap();
    }
    std::thread::scope(|scope| {
        for first in 4..=9 {
            let store = &store;
            scope.spawn(move || store.put(&name(first), &[first; 1000]).unwrap());
        }
    });
    assert_eq!(fake.connections(), 1);
}

#[test]
fn a_server_that_allows_one_connection_gets_everything_over_it() {
    let fake = laid_out();
    fake.behave(Manners {
        connections_max: 1,
        ..Manners::default()
    });
    upload_three(&fake, &open(&fake));
}

#[test]
fn an_upload_goes_on_after_its_connection_was_cut_anywhere() {
    let fake = laid_out();
    let store = open(&fake);
    upload_three(&fake, &store);
    drop(store);
    // Answers of the first connection, of which one does not come whole.
    for cut in (0..600).step_by(37) {
        let Some((fake, store)) = open_and_cut_after(cut) else {
            continue;
        };
        std::thread::scope(|scope| {
            for first in 1..=3 {
                let store = &store;
                let put = move || (0..3).any(|_| store.put(&name(first), &large(first)).is_ok());
                scope.spawn(move || assert!(put(), "cut after {cut}"));
            }
        });
        for first in 1..=3 {
            assert_eq!(there(&fake, &name(first)), Some(large(first)), "{cut}");
        }
    }
}

/// What is not waited for is waited for here.
fn wait_until_nothing_is_left(fake: &FakeServer) {
    let began = Instant::now();
    while !temporary_files(fake).is_empty() {
        assert!(began.elapsed() < PATIENCE, "{:?}", temporary_files(fake));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_file_of_the_next_pack_is_open_before_it_comes_and_goes_with_the_store() {
    let fake = laid_out();
    let store = open(&fake);
    store.put(&name(1), &pack(1)).unwrap();
    settle(&store);
    fake.requests();
    store.put(&name(2), &pack(2)).unwrap();
    let requests = fake.requests();
    let at = |what: &str| requests.iter().position(|request| request == what);
    assert!(at("WRITE") < at("OPEN"), "{requests:?}");
    settle(&store);
    assert_eq!(temporary_files(&fake).len(), 1, "the one of a third");
    drop(store);
    wait_until_nothing_is_left(&fake);
    for first in 1..=2 {
        assert_eq!(there(&fake, &name(first)), Some(pack(first)));
    }
}

#[test]
fn a_pack_that_is_there_already_stays_although_the_file_of_another_is_open() {
    let fake = laid_out();
    let store = open(&fake);
    store.put(&name(1), &pack(1)).unwrap();
    store.put(&name(1), &pack(9)).unwrap();
    assert_eq!(there(&fake, &name(1)), Some(pack(1)));
    drop(store);
    wait_until_nothing_is_left(&fake);
}

#[test]
fn packs_one_after_the_other_go_on_after_their_connection_was_cut_anywhere() {
    for cut in (0..1500).step_by(41) {
        let Some((fake, store)) = open_and_cut_after(cut) else {
            continue;
        };
        for first in 1..=3 {
            let put = (0..3).any(|_| store.put(&name(first), &pack(first)).is_ok());
            assert!(put, "cut after {cut}");
            assert!(there(&fake, &name(first)) == Some(pack(first)), "{cut}");
        }
    }
}
