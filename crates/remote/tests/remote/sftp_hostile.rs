//! Servers that lie, end in the middle, refuse what they announced, or are full: an error that says
//! what was attempted, or the right thing done; never a panic, never a wait without an end, and
//! what was acknowledged is there, whole.

mod fake;
mod lanes;

use bale_format::ObjectId;
use bale_remote::sftp::SftpStore;
use bale_repository::store::{Area, ObjectName, Store, conformance};
use fake::scene::{content, laid_out, name, open, path, settle, temporary_files, there};
use fake::{FakeServer, Manners, NOW, PATIENCE, Twist, file};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_good_server_is_a_store() {
    conformance::run_slow(|| {
        let fake = FakeServer::new(Manners::default());
        Box::new(SftpStore::create(fake.reach(PATIENCE)).expect("create"))
    });
}

#[test]
fn servers_without_extensions_or_that_refuse_them_are_stores() {
    let all = Manners::default().announced;
    let plain = Manners {
        announced: Vec::new(),
        read_bytes_max: 5_000,
        ..Manners::default()
    };
    let refusing = Manners {
        refused: all.clone(),
        rename_replaces: true,
        ..Manners::default()
    };
    for manners in [plain, refusing] {
        conformance::run_slow(|| {
            let fake = FakeServer::new(manners.clone());
            Box::new(SftpStore::create(fake.reach(PATIENCE)).expect("create"))
        });
    }
}

#[test]
fn each_extension_may_be_refused_although_it_is_announced() {
    for refused in Manners::default().announced {
        let fake = laid_out();
        fake.behave(Manners {
            refused: vec![refused],
            ..Manners::default()
        });
        let store = open(&fake);
        for first in [1, 2] {
            store.put(&name(first), &content()).expect(refused);
            assert_eq!(there(&fake, &name(first)), Some(content()), "{refused}");
        }
        settle(&store);
        assert_eq!(temporary_files(&fake), Vec::<String>::new(), "{refused}");
        let again = fake
            .requests()
            .iter()
            .filter(|request| *request == refused)
            .count();
        assert!(again <= 1, "{refused} is asked for again");
    }
}

#[test]
fn an_object_takes_nine_requests_to_write_and_four_to_read() {
    let fake = laid_out();
    let store = open(&fake);
    settle(&store);
    assert_eq!(fake.requests(), ["limits@openssh.com", "LSTAT"]);
    store.put(&name(1), &content()).unwrap();
    let put = [
        "LSTAT",
        "OPEN",
        "WRITE",
        "fsync@openssh.com",
        "CLOSE",
        "LSTAT",
        "hardlink@openssh.com",
        "LSTAT",
        "REMOVE",
        "LSTAT",
    ];
    settle(&store);
    assert_eq!(fake.requests(), put);
    assert_eq!(store.get(&name(1), 3_000).unwrap(), content());
    // Its end is not waited for; the next request comes behind it.
    store.read_at(&name(1), 0, &mut [0; 10]).unwrap();
    store.read_at(&name(1), 100, &mut [0; 10]).unwrap();
    assert_eq!(
        fake.requests(),
        ["LSTAT", "OPEN", "READ", "CLOSE", "OPEN", "READ", "READ"]
    );
    store.put(&name(1), &content()).unwrap();
    assert!(
        !fake.requests().contains(&"WRITE".to_owned()),
        "it is there already"
    );
}

#[test]
fn large_objects_go_with_sixteen_requests_in_flight_answered_in_any_order() {
    let fake = laid_out();
    // It answers nothing before it has sixteen, and then the last first.
    fake.behave(Manners {
        group: 16,
        announced: vec!["hardlink@openssh.com"],
        ..Manners::default()
    });
    let store = open(&fake);
    let bytes: Vec<u8> = (0..(2u32 << 20))
        .map(|at| (at / 7) as u8 ^ (at >> 13) as u8)
        .collect();
    store.put(&name(1), &bytes).unwrap();
    assert!(store.get(&name(1), u64::MAX).unwrap() == bytes);
    let mut part = vec![0; 1 << 20];
    store.read_at(&name(1), 12_345, &mut part).unwrap();
    assert!(part == bytes[12_345..12_345 + (1 << 20)]);
}

/// Puts, reads, lists and deletes; says what was acknowledged.
fn use_all(fake: &FakeServer, timeout: Duration) -> Acknowledged {
    let mut done = Acknowledged::default();
    let Ok(store) = SftpStore::open(fake.reach(timeout)) else {
        done.errors += 1;
        return done;
    };
    let mut ok = |result: Result<(), bale_repository::store::StoreError>| {
        let error = result.as_ref().err();
        done.errors += usize::from(error.is_some());
        let kinds = [ErrorKind::NotFound, ErrorKind::AlreadyExists];
        assert!(
            error.is_none_or(|error| !kinds.contains(&error.kind())),
            "{error:?}"
        );
        result.is_ok()
    };
    done.put = ok(store.put(&name(1), &content()));
    done.deleted = ok(store.delete(&name(2)));
    let read = store.get(&name(3), u64::MAX);
    assert!(read.as_ref().is_ok_and(|read| *read == content()) || read.is_err());
    ok(read.map(drop));
    let mut part = [0; 1_000];
    let read = store.read_at(&name(3), 500, &mut part);
    assert!(read.is_err() || part == content()[500..1_500]);
    ok(read);
    let mut found = 0;
    if ok(store.list(Area::Snapshots, &mut |_| found += 1)) {
        assert_eq!(found, 10);
    }
    done
}

#[derive(Default)]
struct Acknowledged {
    put: bool,
    deleted: bool,
    errors: usize,
}

/// A repository with objects to read, to list and to delete.
fn in_use() -> FakeServer {
    let fake = laid_out();
    for first in [2, 3] {
        fake.set(&path(&name(first)), Some(file(&content(), NOW)));
    }
    for first in 0..10 {
        let name = ObjectName::snapshot(ObjectId([first; 32]));
        fake.set(&path(&name), Some(file(b"x", NOW)));
    }
    fake
}

/// Uses a server that misbehaves once, and again when it behaves.
fn survives(manners: Manners, what: &str) -> usize {
    let fake = in_use();
    fake.behave(manners);
    let done = use_all(&fake, PATIENCE);
    let put = there(&fake, &name(1));
    match done.put {
        true => assert_eq!(put, Some(content()), "{what}"),
        false => assert!(put.is_none_or(|put| put == content()), "{what}: half of it"),
    }
    if done.deleted {
        assert_eq!(there(&fake, &name(2)), None, "{what}");
    }
    fake.behave(Manners::default());
    let again = use_all(&fake, PATIENCE);
    assert!(again.errors == 0 && again.put, "{what}: does not go on");
    assert_eq!(there(&fake, &name(1)), Some(content()), "{what}");
    assert_eq!(there(&fake, &name(2)), None, "{what}");
    done.errors
}

/// Answers and bytes of a run without faults.
fn sent() -> (usize, usize) {
    let fake = in_use();
    fake.behave(Manners::default());
    assert_eq!(use_all(&fake, PATIENCE).errors, 0);
    fake.sent()
}

#[test]
fn a_connection_cut_at_any_byte_loses_nothing_that_was_acknowledged() {
    let (_, bytes) = sent();
    assert!(bytes > 5_000, "{bytes}");
    // The data and the listing are long, and alike everywhere.
    let cuts = (0..bytes).filter(|cut| *cut < 600 || cut % 7 == 0);
    let mut errors = 0;
    for cut in cuts {
        let manners = Manners {
            cut_after: Some(cut),
            ..Manners::default()
        };
        errors += survives(manners, &format!("cut after {cut} bytes"));
    }
    assert!(errors > 500, "{errors}");
}

#[test]
fn an_answer_that_is_none_ends_the_connection_and_nothing_else() {
    let (answers, _) = sent();
    assert!(answers > 20, "{answers}");
    for twist in [
        Twist::WrongId,
        Twist::Twice,
        Twist::Oversize,
        Twist::WrongType,
        Twist::Garbage,
        Twist::Empty,
    ] {
        let errors = |at| {
            let manners = Manners {
                twist: Some((at, twist)),
                ..Manners::default()
            };
            survives(manners, &format!("{twist:?} at {at}"))
        };
        let errors: usize = (0..answers).map(errors).sum();
        assert!(errors > 5, "{twist:?}: {errors}");
    }
}

#[test]
fn failure_at_any_request_is_an_error_or_does_not_matter() {
    let (answers, _) = sent();
    for twist in [Twist::Fails, Twist::FailsAfter] {
        for at in 0..answers {
            let manners = Manners {
                twist: Some((at, twist)),
                ..Manners::default()
            };
            survives(manners, &format!("{twist:?} at {at}"));
        }
    }
}

/// Requests of a put after the greeting: LSTAT, OPEN, WRITE, then fsync, and in the end the name.
#[test]
fn bytes_and_names_that_a_server_only_says_it_took_are_missed() {
    let (all, none) = (Manners::default().announced, Vec::new());
    for (announced, at) in [(&all, 3), (&all, 7), (&none, 2), (&none, 6)] {
        let fake = laid_out();
        fake.behave(Manners {
            announced: announced.clone(),
            twist: Some((at, Twist::Lies)),
            ..Manners::default()
        });
        let error = open(&fake).put(&name(1), &content()).expect_err("a lie");
        assert_eq!(error.kind(), ErrorKind::WriteZero, "{error}");
        assert_eq!(there(&fake, &name(1)), None);
    }
}

#[test]
fn a_repository_that_is_laid_out_half_is_completed() {
    let fake = FakeServer::new(Manners::default());
    settle(&SftpStore::create(fake.reach(PATIENCE)).unwrap());
    let (whole, (_, bytes)) = (fake.tree(), fake.sent());
    for cut in (0..bytes).step_by(211) {
        let fake = FakeServer::new(Manners {
            cut_after: Some(cut),
            ..Manners::default()
        });
        // The last bytes answer what nobody waits for.
        let _ = SftpStore::create(fake.reach(PATIENCE));
        fake.behave(Manners::default());
        SftpStore::create(fake.reach(PATIENCE)).expect("the rest");
        let has_all = |path: &String| fake.tree().contains_key(path);
        assert!(whole.keys().all(has_all), "cut after {cut} bytes");
    }
    fake.set("repo/config.copy", Some(file(b"x", NOW)));
    let error = SftpStore::create(fake.reach(PATIENCE))
        .err()
        .expect("there is one");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
}

#[test]
fn a_full_server_says_so_where_it_can_and_shows_nothing_half() {
    for (announced, is_full) in [(true, true), (false, false)] {
        let fake = laid_out();
        let used: usize = 200;
        let mut manners = Manners {
            room: used,
            ..Manners::default()
        };
        if !announced {
            manners.announced.clear();
        }
        fake.behave(manners);
        let store = open(&fake);
        let error = store
            .put(&name(1), &content())
            .expect_err("there is no room");
        assert_eq!(error.is_storage_full(), is_full, "{error}");
        assert_eq!(there(&fake, &name(1)), None);
        // Whatever is sent behind it comes behind its removal.
        assert!(store.stat(&name(1)).unwrap().is_none());
        assert_eq!(temporary_files(&fake), Vec::<String>::new());
        store.put(&name(2), b"x").expect("there is room for that");
    }
}

#[test]
fn somebody_who_was_faster_is_believed_only_if_his_object_is_as_long() {
    for announced in [Manners::default().announced, Vec::new()] {
        for (theirs, is_as_good) in [(content(), true), (content()[1..].to_vec(), false)] {
            let fake = laid_out();
            fake.behave(Manners {
                announced: announced.clone(),
                made_meanwhile: Some((path(&name(1)), theirs.clone())),
                ..Manners::default()
            });
            let store = open(&fake);
            let put = store.put(&name(1), &content());
            assert_eq!(put.is_ok(), is_as_good, "{put:?}");
            // Behind the removal of what was written.
            assert!(store.stat(&name(1)).unwrap().is_some());
            assert_eq!(there(&fake, &name(1)), Some(theirs), "it stays");
            assert_eq!(temporary_files(&fake), Vec::<String>::new());
        }
    }
}

#[test]
fn a_directory_that_somebody_makes_meanwhile_is_as_good() {
    for announced in [Manners::default().announced, Vec::new()] {
        let fake = laid_out();
        fake.behave(Manners {
            announced,
            dirs_appear: true,
            ..Manners::default()
        });
        let name = ObjectName::run([1; 16], ObjectId([1; 32]));
        open(&fake).put(&name, &content()).unwrap();
        assert_eq!(there(&fake, &name), Some(content()));
    }
}

#[test]
fn an_area_that_is_missing_is_not_empty_and_not_made_again() {
    let fake = laid_out();
    let store = open(&fake);
    for area in [Area::Keys, Area::Index, Area::Snapshots] {
        fake.set(&format!("repo/{area}"), None);
        let error = store.list(area, &mut |_| {}).expect_err("it is missing");
        assert!(error.to_string().contains("is not there"), "{error}");
    }
    let snapshot = ObjectName::snapshot(ObjectId([1; 32]));
    let error = store.put(&snapshot, b"x").expect_err("it is missing");
    assert!(error.to_string().contains("is not there"), "{error}");
    assert!(!fake.tree().contains_key("repo/snapshots"));
    // These come and go.
    fake.set("repo/condemned", None);
    store
        .list(Area::Condemned, &mut |_| {})
        .expect("nothing is condemned");
    store
        .put(&ObjectName::condemned(ObjectId([1; 32])), b"x")
        .expect("it is made");
    fake.set("repo/condemned", None);
    fake.set("repo", None);
    store
        .list(Area::Condemned, &mut |_| {})
        .expect_err("the repository itself is gone");
}

#[test]
fn a_listing_without_an_end_is_an_error() {
    let fake = laid_out();
    fake.behave(Manners {
        endless_listing: true,
        ..Manners::default()
    });
    let error = open(&fake)
        .list(Area::Index, &mut |_| {})
        .expect_err("no end");
    assert!(error.to_string().contains("no end"), "{error}");
}

#[test]
fn no_answer_is_an_error_in_time_for_everybody_who_waits() {
    let fake = in_use();
    // The answer to `limits` is 0, for which only large objects wait; those to a put are next.
    for (at, bytes) in [(0, vec![1; 100_000]), (1, content()), (3, content())] {
        fake.behave(Manners {
            twist: Some((at, Twist::Silent)),
            ..Manners::default()
        });
        let store = SftpStore::open(fake.reach(Duration::from_millis(300))).expect("it says hello");
        let error = store.put(&name(1), &bytes).expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(error.to_string().contains("has not answered"), "{error}");
    }
}

#[test]
fn threads_share_a_connection_and_its_end() {
    let fake = in_use();
    fake.behave(Manners {
        cut_after: Some(4_000),
        ..Manners::default()
    });
    let store = Arc::new(open(&fake));
    std::thread::scope(|scope| {
        for first in 10..18 {
            let (store, fake) = (store.clone(), &fake);
            scope.spawn(move || {
                for round in 0..20 {
                    let name = name(first + round * 8);
                    if let Err(error) = store.put(&name, &content()) {
                        assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
                        store.put(&name, &content()).expect("on a new connection");
                    }
                    assert_eq!(there(fake, &name), Some(content()));
                }
            });
        }
    });
}

#[test]
fn what_dead_processes_left_is_removed_by_the_servers_clock() {
    let fake = laid_out();
    let day = 24 * 60 * 60;
    let temporary = |digit: &str| format!("repo/tmp/.tmp-{}", digit.repeat(32));
    fake.set(&temporary("1"), Some(file(b"old", NOW - day - 1)));
    fake.set(&temporary("2"), Some(file(b"young", NOW - day)));
    fake.set(&temporary("3"), Some(file(b"of tomorrow", NOW + day)));
    fake.set("repo/tmp/foreign", Some(file(b"not ours", 0)));
    fake.behave(Manners::default());
    let store = SftpStore::open_to_write(fake.reach(PATIENCE)).unwrap();
    // Behind the removal of the file that told the time.
    assert!(store.stat(&name(1)).unwrap().is_none());
    let left = [
        temporary("2"),
        temporary("3"),
        "repo/tmp/foreign".to_owned(),
    ];
    assert_eq!(temporary_files(&fake), left);
}
