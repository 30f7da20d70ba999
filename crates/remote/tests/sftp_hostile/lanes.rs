//! Large uploads beside each other take connections beside each other, where they can be had.

use crate::fake::scene::{laid_out, name, open, settle, temporary_files, there};
use crate::fake::{FakeServer, Manners, PATIENCE};
use bale_remote::sftp::SftpStore;
use bale_repository::store::Store;

const LARGE: usize = 2 << 20;

fn large(first: u8) -> Vec<u8> {
    vec![first; LARGE]
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
        let fake = laid_out();
        fake.behave(Manners {
            cut_after: Some(cut),
            ..Manners::default()
        });
        let Ok(store) = SftpStore::open(fake.reach(PATIENCE)) else {
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
