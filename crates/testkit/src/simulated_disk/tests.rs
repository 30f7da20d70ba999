//! What the simulated disk promises: what lasts after a crash, and what does not.

use super::nodes::GARBAGE;
use super::*;
use crate::choices::Every;

fn write(disk: &SimulatedDisk, path: &str, bytes: &[u8]) -> Box<dyn NewFile> {
    let mut file = disk.create(path, Expect::Small).unwrap();
    file.append(bytes).unwrap();
    file
}

fn outcomes(disk: &SimulatedDisk) -> BTreeSet<BTreeMap<String, Vec<u8>>> {
    let (mut every, mut outcomes) = (Every::default(), BTreeSet::new());
    while every.more() {
        outcomes.insert(disk.crashed(&mut every).files());
    }
    outcomes
}

#[test]
fn nothing_lasts_without_a_sync() {
    let disk = SimulatedDisk::new();
    drop(write(&disk, "a", &[1; 1_024]));
    let contents = [
        vec![],
        vec![1; 1_024],
        vec![1; 512],
        vec![0; 1_024],
        vec![GARBAGE; 1_024],
    ];
    let with_a = contents.map(|content| BTreeMap::from([("a".to_owned(), content)]));
    assert_eq!(
        outcomes(&disk),
        BTreeSet::from_iter(with_a.into_iter().chain([BTreeMap::new()]))
    );
}

#[test]
fn what_was_synced_lasts() {
    let disk = SimulatedDisk::new();
    write(&disk, "a", b"bytes").sync().unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(outcomes(&disk), BTreeSet::from([disk.files()]));
}

#[test]
fn a_synced_file_may_still_lose_its_name() {
    let disk = SimulatedDisk::new();
    disk.make_dir("d").unwrap();
    disk.sync_dir("").unwrap();
    write(&disk, "a", b"x").sync().unwrap();
    disk.sync_dir("").unwrap();
    disk.rename_new("a", "d/b").unwrap();
    let names: BTreeSet<Vec<String>> = outcomes(&disk)
        .into_iter()
        .map(|files| files.into_keys().collect())
        .collect();
    let (a, b) = ("a".to_owned(), "d/b".to_owned());
    assert_eq!(
        names,
        BTreeSet::from([vec![], vec![a.clone()], vec![b.clone()], vec![a, b]])
    );
}

#[test]
fn a_failed_sync_loses_the_bytes_and_the_next_one_lies() {
    let disk = SimulatedDisk::new();
    drop(disk.create("a", Expect::Small).unwrap());
    disk.sync_dir("").unwrap();
    disk.make_dir("d").unwrap();
    disk.fail_after(0, io::ErrorKind::Other);
    disk.sync_dir("").unwrap_err();
    disk.sync_dir("").unwrap();
    assert!(disk.stat("d").unwrap().is_some(), "programs still see it");
    assert!(
        disk.crashed(&mut Every::default())
            .stat("d")
            .unwrap()
            .is_none()
    );
}
