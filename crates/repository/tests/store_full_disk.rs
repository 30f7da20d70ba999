//! Goal: on a real file system that runs full under a pack, the error says so, nothing half written
//! stays, and deleting makes room again. Needs root, mkfs.ext4 and a loop device.

use std::path::{Path, PathBuf};
use std::process::Command;

use bale_format::ObjectId;
use bale_repository::store::{Area, LocalStore, ObjectName, Result, Store};

/// Small enough that a few packs fill it.
const DISK_BYTES: u64 = 48 << 20;

const PACK_BYTES: usize = (5 << 20) + 77;

/// A mounted file system of its own; unmounted with the value.
struct SmallDisk {
    scratch: tempfile::TempDir,
    mounted: PathBuf,
}

impl SmallDisk {
    /// What is missing, if it cannot be had.
    fn mount() -> std::result::Result<Self, String> {
        let scratch = tempfile::tempdir().unwrap();
        let (image, mounted) = (scratch.path().join("image"), scratch.path().join("mounted"));
        std::fs::create_dir(&mounted).unwrap();
        std::fs::File::create(&image)
            .unwrap()
            .set_len(DISK_BYTES)
            .unwrap();
        run(
            "mkfs.ext4",
            &["-q".as_ref(), "-m0".as_ref(), "-F".as_ref(), image.as_ref()],
        )?;
        run(
            "mount",
            &[
                "-o".as_ref(),
                "loop".as_ref(),
                image.as_ref(),
                mounted.as_ref(),
            ],
        )?;
        Ok(Self { scratch, mounted })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(why) = run("umount", &[&self.mounted]) {
            eprintln!("{}: {why}", self.scratch.path().display());
        }
    }
}

fn run(tool: &str, arguments: &[&Path]) -> std::result::Result<(), String> {
    match Command::new(tool).args(arguments).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{tool}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("{tool}: {error}")),
    }
}

fn write_pack(store: &dyn Store, name: &ObjectName, bytes: &[u8]) -> Result<()> {
    let mut writer = store.begin()?;
    bytes
        .chunks(300_000)
        .try_for_each(|part| writer.append(part))?;
    writer.publish(name)
}

fn left_over(root: &Path) -> usize {
    std::fs::read_dir(root.join("tmp")).unwrap().count()
}

#[test]
fn a_real_disk_that_runs_full_is_told_apart_and_recovers_by_deleting() {
    let disk = match SmallDisk::mount() {
        Ok(disk) => disk,
        Err(why) => {
            assert!(
                std::env::var_os("BALE_REQUIRE_ALL_TESTS").is_none(),
                "{why}"
            );
            eprintln!("SKIPPED: a real disk that runs full: {why}");
            return;
        }
    };
    let root = disk.mounted.join("repository");
    let store = LocalStore::create(&root).unwrap();
    let names: Vec<_> = (0..20)
        .map(|seed| ObjectName::pack(ObjectId([seed; 32])))
        .collect();
    let bytes = vec![0x5a; PACK_BYTES];
    let failed = names
        .iter()
        .position(|name| match write_pack(&store, name, &bytes) {
            Ok(()) => false,
            Err(error) => {
                assert!(error.is_storage_full(), "{error}");
                true
            }
        });
    let written = failed.expect("20 packs do not fit");
    assert!(written >= 4, "{written} packs fit");
    assert_eq!(left_over(&root), 0);

    // What is left takes some small objects, and says so when it takes no more.
    let small = |seed| ObjectName::index(ObjectId([seed; 32]));
    let full =
        (0..200).find_map(|seed| Some((seed, store.put(&small(seed), &[1; 100_000]).err()?)));
    let (refused, error) = full.expect("200 small objects do not fit");
    assert!(error.is_storage_full(), "{error}");
    assert_eq!(left_over(&root), 0);

    let mut listed = 0;
    let mut check = |info: bale_repository::store::ObjectInfo| {
        assert!(store.get(&info.name, u64::MAX).unwrap() == bytes);
        listed += 1;
    };
    store.list(Area::Packs, &mut check).unwrap();
    assert_eq!(listed, written, "what was acknowledged before is whole");

    store.delete(&names[0]).unwrap();
    store
        .put(&small(refused), &[1; 100_000])
        .expect("deleting made room");
}
