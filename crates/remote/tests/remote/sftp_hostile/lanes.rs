//! Large uploads beside each other take connections beside each other, where they can be had.

use super::fake::scene::{laid_out, name, open, settle, temporary_files, there};
use super::fake::{FakeServer, Manners, PATIENCE};
use bale_remote::sftp::SftpStore;
use bale_repository::store::{Next, Store};
use std::ops::Range;
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

/// Uploads at once.
fn upload(fake: &FakeServer, store: &SftpStore, names: Range<u8>) {
    std::thread::scope(|scope| {
        for first in names.clone() {
            scope.spawn(move || store.put(&name(first), &large(first)).unwrap());
        }
    });
    for first in names {
        assert_eq!(there(fake, &name(first)), Some(large(first)));
    }
}

/// Waits until so many connections have a file open for what comes next.
fn wait_until_open(fake: &FakeServer, files: usize) {
    let began = Instant::now();
    while temporary_files(fake).len() != files {
        assert!(began.elapsed() < PATIENCE, "{:?}", temporary_files(fake));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn three_large_uploads_make_three_connections_and_later_ones_use_them() {
    let fake = laid_out();
    let store = open(&fake);
    // As soon as three were under way at once, which nobody can be made to; and later ones.
    let mut rounds = 1..=80;
    while fake.writers() < 3 {
        let round = rounds.next().expect("three are under way at once at times");
        upload(&fake, &store, round * 3..round * 3 + 3);
    }
    wait_until_open(&fake, 3);
    assert_eq!(fake.connections(), 3);
    drop(store);
    wait_until_open(&fake, 0);
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
    let store = open(&fake);
    upload(&fake, &store, 1..4);
    drop(store);
    wait_until_open(&fake, 0);
}

#[test]
fn an_upload_goes_on_after_its_connection_was_cut_anywhere() {
    let fake = laid_out();
    let store = open(&fake);
    upload(&fake, &store, 1..4);
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

#[test]
fn the_file_of_the_next_pack_is_open_before_it_comes_and_goes_with_the_store() {
    let fake = laid_out();
    let store = open(&fake);
    store.put(&name(1), &pack(1)).unwrap();
    settle(&store);
    fake.requests();
    store.put(&name(2), &pack(2)).unwrap();
    let requests = fake.requests();
    assert_eq!(requests[..3], ["LSTAT", "OPEN", "WRITE"]);
    let opens = requests.iter().filter(|request| *request == "OPEN");
    assert_eq!(opens.count(), 1, "that of a third pack: {requests:?}");
    settle(&store);
    assert_eq!(temporary_files(&fake).len(), 1, "the one of a third");
    drop(store);
    wait_until_open(&fake, 0);
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
    wait_until_open(&fake, 0);
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

/// More than may be in flight of all together, and of each alone.
#[test]
fn many_large_transfers_over_one_connection_all_end() {
    let fake = laid_out();
    fake.behave(Manners {
        connections_max: 1,
        ..Manners::default()
    });
    let store = open(&fake);
    let bytes = |first: u8| vec![first; 9 << 20];
    std::thread::scope(|scope| {
        for first in 1..=6 {
            let store = &store;
            scope.spawn(move || {
                store.put(&name(first), &bytes(first)).unwrap();
                let mut read = vec![0; (9 << 20) - 1];
                store.read_at(&name(first), 1, &mut read).unwrap();
                assert!(read == bytes(first)[1..]);
                assert!(store.get(&name(first), 9 << 20).unwrap() == bytes(first));
            });
        }
    });
}

#[test]
fn what_is_said_to_be_read_soon_is_open_before_it_is_read_and_is_read_once_it_is_there() {
    let fake = laid_out();
    let store = open(&fake);
    // Nothing comes of it.
    store.expect(Next::Read(&name(1)));
    store.put(&name(1), b"later").unwrap();
    let mut read = [0; 5];
    store.read_at(&name(1), 0, &mut read).unwrap();
    assert_eq!(&read, b"later");
    for first in 2..=40 {
        store.put(&name(first), &[first; 10]).unwrap();
    }
    settle(&store);
    fake.requests();
    // More than stay open: those that are given up are closed.
    (2..=40).for_each(|first| store.expect(Next::Read(&name(first))));
    settle(&store);
    let requests = fake.requests();
    let count = |what: &str| requests.iter().filter(|it| *it == what).count();
    assert_eq!(count("OPEN"), 39);
    assert!(count("CLOSE") >= 39 - 16, "{requests:?}");
    store.read_at(&name(40), 3, &mut read).unwrap();
    assert_eq!(read, [40; 5]);
    assert_eq!(fake.requests(), ["READ"]);
}
