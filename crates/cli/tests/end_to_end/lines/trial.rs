//! What a run requests of its store, through a line that goes wrong, and what must hold then: what
//! was acknowledged is there, whole, and nothing half is visible.

use super::served::{Patience, Served};
use bale_format::ObjectId;
use bale_remote::Opening;
use bale_repository::store::{Area, ObjectInfo, ObjectName, Result, Store, StoreError};
use bale_testkit::LineFault;
use std::cell::Cell;
use std::io::ErrorKind;
use std::sync::Arc;

const LEN_MAX: u64 = 1 << 20;

const WRITTEN: [(Area, usize); 4] = [
    (Area::Packs, 3000),
    (Area::Index, 100),
    (Area::Runs, 200),
    (Area::Snapshots, 50),
];

/// A repository on a server.
pub struct Trial<'a> {
    served: &'a Served,
    direct: Arc<dyn Store>,
    /// Of runs so far: each has objects of its own.
    runs: Cell<u64>,
}

/// How a run has ended.
pub struct Ended {
    /// The store was opened.
    pub is_open: bool,
    pub result: std::result::Result<(), (Option<ErrorKind>, String)>,
    /// The fault has come.
    pub has_struck: bool,
    /// Bytes to the server, to us, and answers.
    pub counts: (u64, u64, u64),
}

/// What a store has said is done.
#[derive(Default)]
struct Acknowledged {
    put: Vec<ObjectName>,
    deleted: Vec<ObjectName>,
}

impl<'a> Trial<'a> {
    pub fn new(served: &'a Served) -> Trial<'a> {
        let at = served.address();
        let direct = served.open(at, "r", Opening::Create, Patience::Usual);
        let direct = direct.unwrap();
        direct.put(&ObjectName::config(), b"config").unwrap();
        Trial {
            served,
            direct,
            runs: Cell::new(0),
        }
    }

    /// A run over such a line, and a look at what it has left.
    pub fn run(&self, fault: LineFault, patience: Patience) -> Ended {
        let number = self.runs.get();
        self.runs.set(number + 1);
        let line = self.served.line(fault);
        let mut acknowledged = Acknowledged::default();
        let opened = (self.served).open(line.address(), "r", Opening::Write, patience);
        let is_open = opened.is_ok();
        let result = match opened {
            Err(error) => Err((None, error.to_string())),
            Ok(store) => a_run(&*store, number, &mut acknowledged)
                .map_err(|error| (Some(error.kind()), error.to_string())),
        };
        let (has_struck, counts) = (line.has_struck(), line.counts());
        drop(line);
        self.look(number, &acknowledged, fault);
        Ended {
            is_open,
            result,
            has_struck,
            counts,
        }
    }

    fn look(&self, number: u64, acknowledged: &Acknowledged, fault: LineFault) {
        for (area, len) in WRITTEN {
            let (name, bytes) = object(area, len, number);
            match self.direct.get(&name, LEN_MAX) {
                Ok(there) => {
                    assert!(there == bytes, "{fault:?}: {name} is half");
                    let is_deleted = acknowledged.deleted.contains(&name);
                    assert!(!is_deleted, "{fault:?}: {name} is there again");
                }
                Err(error) if error.is_not_found() => {
                    let deletes = area == Area::Runs;
                    let is_lost = acknowledged.put.contains(&name) && !deletes;
                    assert!(!is_lost, "{fault:?}: {name} is lost");
                }
                Err(error) => panic!("{fault:?}: {name}: {error}"),
            }
        }
    }

    /// Whatever was tried: all that is visible in the end is whole.
    pub fn expect_whole(&self) {
        for (area, _) in WRITTEN {
            let mut names = Vec::new();
            let found = &mut |info: ObjectInfo| names.push(info.name);
            self.direct.list(area, found).unwrap();
            assert!(!names.is_empty() || area == Area::Runs);
            for name in names {
                let bytes = self.direct.get(&name, LEN_MAX).unwrap();
                let id = ObjectId(*blake3::hash(&bytes).as_bytes());
                assert!(name.to_string().contains(&id.to_string()), "{name} is half");
            }
        }
    }
}

/// Every kind of request; every answer is compared.
fn a_run(store: &dyn Store, number: u64, acknowledged: &mut Acknowledged) -> Result<()> {
    for (area, len) in WRITTEN {
        let (name, bytes) = object(area, len, number);
        expect(store.stat(&name)?.is_none(), "stat")?;
        store.put(&name, &bytes)?;
        acknowledged.put.push(name);
        // Whoever reads an object compares its hash, and so sees an answer that is another's.
        expect(store.get(&name, LEN_MAX)? == bytes, "read")?;
        let there = store.stat(&name)?.map(|info| info.len);
        expect(there == Some(len as u64), "stat")?;
    }
    let (pack, bytes) = object(Area::Packs, 3000, number);
    let mut part = [0; 500];
    store.read_at(&pack, 1234, &mut part)?;
    expect(part == bytes[1234..1734], "read")?;
    let index = object(Area::Index, 100, number).0;
    let mut times_found = 0;
    store.list(Area::Index, &mut |info| {
        times_found += u32::from(info.name == index);
    })?;
    expect(times_found == 1, "list")?;
    let run = object(Area::Runs, 200, number).0;
    store.delete(&run)?;
    acknowledged.deleted.push(run);
    Ok(())
}

/// An answer that is not that to the request. A line that is only cut gives none but, over FTP, a
/// listing that is not whole.
fn expect(is_right: bool, action: &'static str) -> Result<()> {
    match is_right {
        true => Ok(()),
        false => Err(StoreError {
            action,
            object: "an object".to_owned(),
            source: ErrorKind::UnexpectedEof.into(),
        }),
    }
}

/// An object of a run: bytes of this length, and the name that is their hash.
fn object(area: Area, len: usize, number: u64) -> (ObjectName, Vec<u8>) {
    let mut bytes = vec![0; len];
    let mut stream = blake3::Hasher::new();
    stream
        .update(area.text().as_bytes())
        .update(&number.to_le_bytes());
    stream.finalize_xof().fill(&mut bytes);
    let id = ObjectId(*blake3::hash(&bytes).as_bytes());
    let name = match area {
        Area::Packs => ObjectName::pack(id),
        Area::Index => ObjectName::index(id),
        Area::Snapshots => ObjectName::snapshot(id),
        _ => ObjectName::run([number as u8; 16], id),
    };
    (name, bytes)
}
