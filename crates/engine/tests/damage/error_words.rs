//! Errors of all crates say every reason, and each once.

use bale_format::error::{Fault, FormatError};
use bale_pipeline::error::{with_causes, without_name};
use bale_repository::error::Error;
use bale_repository::store::StoreError;
use bale_restore::RestoreError;
use bale_restore::dump::DumpError;
use bale_source::image::ImageError;
use bale_source::scan::snapshot_command::SnapshotError;
use std::io;
use std::path::PathBuf;

fn os() -> io::Error {
    io::Error::other("no room on device")
}

fn object() -> Error {
    Error::Object {
        object: "snapshots/1234".to_owned(),
        source: FormatError::Damaged {
            what: "object",
            fault: Fault::Seal,
        },
    }
}

fn store() -> StoreError {
    StoreError {
        action: "read",
        object: "packs/1234".to_owned(),
        source: os(),
    }
}

/// Every type of error that holds another one.
fn errors() -> Vec<Box<dyn std::error::Error + Send + Sync>> {
    let path = || PathBuf::from("x");
    vec![
        Box::new(object()),
        Box::new(Error::local("read", "x")(os())),
        Box::new(Error::Store(store())),
        Box::new(RestoreError::Catalog(Box::new(object()))),
        Box::new(RestoreError::Scratch(os())),
        Box::new(RestoreError::Threads(os())),
        Box::new(RestoreError::Target {
            action: "make the target",
            path: path(),
            source: os(),
        }),
        Box::new(DumpError::Catalog(Box::new(Error::Store(store())))),
        Box::new(DumpError::Scratch(os())),
        Box::new(DumpError::Output(os())),
        Box::new(ImageError::Open {
            path: "x".to_owned(),
            source: os(),
        }),
        Box::new(SnapshotError::Run {
            program: "x".to_owned(),
            source: os(),
        }),
    ]
}

#[test]
fn every_reason_is_said_and_said_once() {
    for error in errors() {
        let text = with_causes(&*error);
        let reasons = ["no room on device", "authentication tag does not match"];
        let said = reasons.map(|reason| text.matches(reason).count());
        assert_eq!(said.iter().sum::<usize>(), 1, "{text}");
    }
}

#[test]
fn a_name_is_not_said_twice() {
    let text = object().to_string();
    let rest = without_name("snapshots/1234", &text);
    assert_eq!(rest, "object is damaged: authentication tag does not match");
    assert_eq!(without_name("snapshots/12", &text), text);
}
