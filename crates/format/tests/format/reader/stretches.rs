//! The reader finds packs in stretches, with and without their records.

use super::{
    REPOSITORY, SECONDS, check_restored, only_pack, reader, reader_can_run, write_repository,
};
use bale_format::{
    Config, Keys, ObjectId, ObjectType, RootKey, StretchEntry, StretchName, StretchRecord,
    StretchTable,
};
use std::fs;
use std::path::{Path, PathBuf};

/// Nobody's, in front of the pack: what was written and given up.
const GAP: usize = 777;

fn keys() -> Keys {
    Keys::derive(&RootKey::from_bytes([1; 32]), REPOSITORY)
}

fn write_configs(repository: &Path, config: &Config) {
    let bytes = config.encode(&keys()).unwrap();
    for name in ["config", "config.copy"] {
        fs::write(repository.join(name), &bytes).unwrap();
    }
}

/// A repository whose pack is in a stretch.
struct Stretched {
    scratch: tempfile::TempDir,
    big: Vec<u8>,
    stretch: PathBuf,
    record: PathBuf,
    /// Where the pack would be.
    pack: PathBuf,
    table_offset: usize,
}

impl Stretched {
    fn new() -> Stretched {
        let scratch = tempfile::tempdir().unwrap();
        let repository = scratch.path().join("repository");
        let big = vec![7; 300_000];
        write_repository(&repository, &big);
        let pack = only_pack(&repository);
        let bytes = fs::read(&pack).unwrap();
        fs::remove_file(&pack).unwrap();
        let entries = vec![StretchEntry {
            pack: ObjectId(*blake3::hash(&bytes).as_bytes()),
            offset: GAP as u64,
            len: bytes.len() as u64,
        }];
        let table = StretchTable::new(entries).unwrap();
        let table_offset = GAP + bytes.len();
        let end = keys().seal_stretch_end(&table, table_offset as u64, [30; 32]);
        let content = [&[0xee; GAP][..], &bytes, &end.unwrap()].concat();
        let name = StretchName {
            run: [0xcd; 16],
            number: 11,
        };
        let stretch = repository.join(name.to_string());
        fs::create_dir_all(stretch.parent().unwrap()).unwrap();
        fs::write(&stretch, &content).unwrap();
        let record = StretchRecord {
            stretch: name,
            len: content.len() as u64,
            hash: *blake3::hash(&content).as_bytes(),
            table,
        };
        let plain = record.encode().unwrap();
        let sealed = keys().seal_object(ObjectType::Stretched, &plain, [31; 32]);
        let sealed = sealed.unwrap();
        let record = repository.join("stretched");
        fs::create_dir_all(&record).unwrap();
        let record = record.join(blake3::hash(&sealed).to_hex().as_str());
        fs::write(&record, sealed).unwrap();
        write_configs(
            &repository,
            &Config::new(REPOSITORY, SECONDS).with_stretches(1 << 30),
        );
        Stretched {
            scratch,
            big,
            stretch,
            record,
            pack,
            table_offset,
        }
    }

    /// Exit code and what was said; what is restored is right if all is.
    fn restore(&self, name: &str) -> (Option<i32>, String) {
        let target = self.scratch.path().join(name);
        let restored = reader(&[
            &self.scratch.path().join("repository"),
            Path::new("--key-file"),
            &self.scratch.path().join("keyfile"),
            Path::new("restore"),
            Path::new("latest"),
            &target,
        ]);
        (
            restored.status.code(),
            String::from_utf8_lossy(&restored.stderr).into_owned(),
        )
    }

    fn assert_whole(&self, name: &str) {
        check_restored(&self.scratch.path().join(name), &self.big);
    }

    fn flip(&self, path: &Path, at: usize) {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn the_reader_finds_packs_by_the_record_of_their_stretch_alone() {
    if !reader_can_run() {
        return;
    }
    let stretched = Stretched::new();
    // The table says nothing while there is a record.
    stretched.flip(&stretched.stretch, stretched.table_offset + 100);
    assert_eq!(stretched.restore("target"), (Some(0), String::new()));
    stretched.assert_whole("target");
}

#[test]
fn the_reader_finds_packs_by_the_table_of_their_stretch_without_its_record() {
    if !reader_can_run() {
        return;
    }
    let stretched = Stretched::new();
    stretched.flip(&stretched.record, 300);
    let (code, said) = stretched.restore("damaged");
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("stretched/"), "{said}");
    stretched.assert_whole("damaged");
    fs::remove_file(&stretched.record).unwrap();
    assert_eq!(stretched.restore("missing"), (Some(0), String::new()));
    stretched.assert_whole("missing");
    // Now nothing says where the pack is.
    for at in [100, 4096, 4096 + 8] {
        stretched.flip(&stretched.stretch, stretched.table_offset + at);
        let (code, said) = stretched.restore(&format!("nothing-{at}"));
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("bale_read: stretches/"), "{said}");
        stretched.flip(&stretched.stretch, stretched.table_offset + at);
    }
}

#[test]
fn the_reader_takes_a_pack_from_wherever_it_is_good() {
    if !reader_can_run() {
        return;
    }
    let stretched = Stretched::new();
    let bytes = fs::read(&stretched.stretch).unwrap();
    fs::write(&stretched.pack, &bytes[GAP..stretched.table_offset]).unwrap();
    // The first record of the pack, in the stretch.
    stretched.flip(&stretched.stretch, GAP + 48 + 16 + 3);
    assert_eq!(stretched.restore("alone"), (Some(0), String::new()));
    stretched.assert_whole("alone");
    fs::remove_file(&stretched.stretch).unwrap();
    assert_eq!(stretched.restore("gone"), (Some(0), String::new()));
    stretched.assert_whole("gone");
    fs::write(&stretched.stretch, &bytes).unwrap();
    stretched.flip(&stretched.pack, 48 + 16 + 3);
    assert_eq!(stretched.restore("in-stretch"), (Some(0), String::new()));
    stretched.assert_whole("in-stretch");
    stretched.flip(&stretched.stretch, GAP + 48 + 16 + 3);
    let (code, said) = stretched.restore("nowhere");
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("d/first") && said.contains("seal broken"),
        "{said}"
    );
}

#[test]
fn the_reader_refuses_a_feature_that_it_does_not_know() {
    if !reader_can_run() {
        return;
    }
    let stretched = Stretched::new();
    let mut config = Config::new(REPOSITORY, SECONDS).with_stretches(1 << 30);
    config.features_read.push("knots".to_owned());
    write_configs(&stretched.scratch.path().join("repository"), &config);
    let (code, said) = stretched.restore("target");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("knots") && !said.contains("stretches"),
        "{said}"
    );
}
