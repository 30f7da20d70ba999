//! FTP in front of a server that lies: what comes back is what was stored or an error, what is
//! acknowledged is there, and none takes memory or time without end.

use crate::ftp_fake::{FtpFake, Lie};
use bale_format::ObjectId;
use bale_repository::store::{Area, ObjectName, Store};
use std::io::ErrorKind;

const LEN_MAX: u64 = 1 << 20;

fn name(first: u8) -> ObjectName {
    ObjectName::index(ObjectId([first; 32]))
}

fn content() -> Vec<u8> {
    (0..3_000_u32).map(|at| (at % 251) as u8).collect()
}

/// With one object in it.
fn in_use() -> FtpFake {
    let fake = FtpFake::new();
    fake.store().put(&name(1), &content()).unwrap();
    assert_eq!(fake.file(&name(1).path()), Some(content()));
    assert_eq!(fake.store().get(&name(1), LEN_MAX).unwrap(), content());
    fake
}

#[test]
fn what_a_read_brings_is_what_was_promised_or_an_error() {
    let fake = in_use();
    for lie in [
        Lie::LongerBy(1),
        Lie::SendsLess(1),
        Lie::SendsLess(3_000),
        Lie::SendsMore(1),
        Lie::SendsMore(1 << 20),
        Lie::OtherName,
    ] {
        fake.lie(lie);
        let store = fake.store();
        assert!(store.get(&name(1), LEN_MAX).is_err(), "{lie:?}");
        // Whoever lied is not believed for what comes next.
        fake.lie(Lie::None);
        assert_eq!(store.get(&name(1), LEN_MAX).unwrap(), content(), "{lie:?}");
    }
    fake.lie(Lie::SendsLess(100));
    let mut part = [0; 200];
    let error = fake
        .store()
        .read_at(&name(1), 2_800, &mut part)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
    fake.store().read_at(&name(1), 2_700, &mut part).unwrap();
    assert!(part == content()[2_700..2_900]);
}

#[test]
fn what_a_server_only_says_it_took_is_missed() {
    for lie in [
        Lie::KeepsLess(1),
        Lie::KeepsLess(3_000),
        Lie::DoneBefore,
        Lie::RenamesNothing,
        Lie::LongerBy(1),
    ] {
        let fake = in_use();
        fake.lie(lie);
        let put = fake.store().put(&name(2), &content());
        assert!(put.is_err(), "{lie:?}");
        assert_eq!(fake.file(&name(2).path()), None, "{lie:?}");
        fake.lie(Lie::None);
        fake.store().put(&name(2), &content()).unwrap();
        assert_eq!(fake.file(&name(2).path()), Some(content()), "{lie:?}");
    }
}

#[test]
fn a_listing_is_whole_or_an_error_and_foreign_names_are_skipped() {
    let fake = in_use();
    let listed = |lie| {
        fake.lie(lie);
        let mut found = Vec::new();
        let listed = (fake.store()).list(Area::Index, &mut |info| found.push(info.name));
        listed.map(|()| found).map_err(|error| error.kind())
    };
    let foreign: [&[u8]; 5] = [
        b"type=file;size=1; ..\r\n",
        b"type=file;size=1; a\rb\r\n",
        b"type=file;size=1; ../keys/x\r\n",
        b"type=file;size=1; \xff\xfe\r\n",
        b"type=dir; x\r\n\r\n",
    ];
    for first in foreign {
        assert_eq!(listed(Lie::Lists(first)), Ok(vec![name(1)]), "{first:?}");
    }
    let wrong: [&[u8]; 4] = [
        b"total 17\r\n",
        b"type=file; x\r\n",
        b"type=file;size=-1; x\r\n",
        b"size=1; x\r\n",
    ];
    for first in wrong {
        let listed = listed(Lie::Lists(first));
        assert_eq!(listed, Err(ErrorKind::InvalidData), "{first:?}");
    }
    assert_eq!(listed(Lie::EndlessLine), Err(ErrorKind::InvalidData));
    assert_eq!(listed(Lie::None), Ok(vec![name(1)]));
}

#[test]
fn a_reply_without_an_end_is_an_error() {
    let fake = in_use();
    fake.lie(Lie::EndlessReply);
    let error = fake.store().stat(&name(1)).unwrap_err();
    assert!(!error.is_not_found(), "{error}");
}

#[test]
fn a_server_without_room_is_said_to_be_full() {
    let fake = in_use();
    for words in [
        "552 exceeded",
        "452 insufficient",
        "426 No space left on device; transfer aborted.",
        "451 Disk full",
        "550 Disk quota exceeded",
    ] {
        fake.lie(Lie::Full(words));
        let error = fake.store().put(&name(2), &content()).unwrap_err();
        assert!(error.is_storage_full(), "{words}: {error}");
        assert_eq!(fake.file(&name(2).path()), None);
    }
    fake.lie(Lie::Full("426 The connection was closed."));
    let error = fake.store().put(&name(2), &content()).unwrap_err();
    assert!(error.may_pass(), "{error}");
}
