//! A damaged repository, from the first word of a check until monitoring is green again.

use crate::bench::{Bench, Ran};
use std::path::{Path, PathBuf};

fn objects(bench: &Bench, area: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![bench.repository().join(area)];
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(directory) else {
            continue;
        };
        for path in entries.map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => waiting.push(path),
                false => found.push(path),
            }
        }
    }
    found
}

fn largest_pack(bench: &Bench) -> PathBuf {
    let len = |path: &PathBuf| path.metadata().unwrap().len();
    objects(bench, "packs").into_iter().max_by_key(len).unwrap()
}

/// In the middle, where file content is.
fn flip_byte(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, &bytes).unwrap();
}

fn with_damaged_file() -> Bench {
    let bench = Bench::new();
    bench.sh("head -c 500000 /dev/urandom > source/victim");
    bench.backup();
    flip_byte(&largest_pack(&bench));
    bench
}

fn restores(bench: &Bench, snapshot: &str) {
    bench.sh("rm -rf target");
    bench.ok(&[
        "restore",
        &bench.address_in(snapshot, ""),
        "--target",
        "target",
    ]);
    bench.sh("diff -r --no-dereference source target");
}

fn says(ran: &Ran, text: &str) {
    assert!(
        format!("{ran}").contains(text),
        "no word of {text:?}: {ran}"
    );
}

/// A check finds the damage and marks it; the next backup heals what the sources have.
fn found_and_healed(bench: &Bench) -> Ran {
    let found = bench.run(&["check", "--read-data"]);
    assert_eq!(found.code, 4, "{found}");
    says(&found, "/victim: its content is damaged or missing");
    says(
        &found,
        "the next backup stores again what the sources still have",
    );
    assert_eq!(objects(bench, "damaged").len(), 1);
    assert_eq!(bench.run(&["check"]).code, 4, "known, and not healed yet");
    // So many of the few rows change that the new snapshot needs nothing of the older catalog.
    bench.sh("chmod 700 source; chmod 600 source/victim");
    bench.backup();
    restores(bench, "latest");
    let healed = bench.run(&["check", "--read-data", "--json"]);
    assert_eq!(healed.summary()["paths_lost"], 0, "{healed}");
    healed
}

fn is_green_after_repair_packs(bench: &Bench) {
    bench.ok(&["repair", "packs"]);
    for words in [&["check", "--read-data"][..], &["check"]] {
        says(&bench.ok(words), "a prune removes it");
    }
    let snapshots = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    restores(bench, snapshots[0]["id"].as_str().unwrap());
}

#[test]
fn after_a_check_has_marked_it_damage_is_healed_by_the_next_backup_and_checks_are_green() {
    let bench = Bench::new();
    bench.sh("head -c 500000 /dev/urandom > source/victim");
    bench.backup();
    // Nothing that is left needs the damaged pack but for the victim.
    bench.write("source/another", "stored in a later pack");
    bench.backup();
    bench.ok(&["forget", "latest~1"]);
    flip_byte(&largest_pack(&bench));
    let healed = found_and_healed(&bench);
    assert_eq!(healed.code, 0, "{healed}");
    is_green_after_repair_packs(&bench);
}

/// A file that only the older snapshot has opens, and stands in the damaged pack only: with so
/// little memory there is one thread that encodes, and one pack of data.
#[test]
fn what_opens_and_only_a_damaged_pack_holds_is_named_until_repair_packs_has_saved_it() {
    let bench = Bench::new();
    bench.sh("head -c 500000 /dev/urandom > source/victim");
    bench.sh("yes words | head -c 600000 > source/gone");
    bench.ok(&["backup", "source", "--memory", "128MiB"]);
    assert_eq!(objects(&bench, "packs").len(), 2);
    flip_byte(&largest_pack(&bench));
    bench.sh("mv source/gone gone");
    let healed = found_and_healed(&bench);
    assert_eq!(healed.code, 4, "{healed}");
    says(
        &bench.run(&["check"]),
        "No path is lost: `bale repair packs` saves what only damaged packs hold",
    );
    bench.sh("mv gone source/gone");
    is_green_after_repair_packs(&bench);
}

#[test]
fn a_check_that_may_not_mark_says_that_backups_go_on_relying_on_it() {
    let bench = with_damaged_file();
    let found = bench.run(&["check", "--read-data", "--no-mark"]);
    assert_eq!(found.code, 4, "{found}");
    says(
        &found,
        "backups go on relying on it, but for `bale backup --force`",
    );
    assert!(
        !found.to_string().contains("the next backup stores again"),
        "{found}"
    );
    assert!(objects(&bench, "damaged").is_empty());
    bench.ok(&["backup", "source", "--force"]);
    restores(&bench, "latest");
}

#[test]
fn repair_packs_names_what_is_lost_and_what_was_saved() {
    let bench = with_damaged_file();
    let none = bench.ok(&["repair", "packs"]);
    says(&none, "bale check --read-data finds those that are");
    let pack = largest_pack(&bench);
    let id = pack.file_name().unwrap().to_str().unwrap();
    let plan = bench.run(&["repair", "packs", &id[..12], "--dry-run"]);
    assert_eq!(plan.code, 4, "{plan}");
    assert!(objects(&bench, "damaged").is_empty(), "a dry run");
    let done = bench.run(&["repair", "packs", &id[..12], "--json"]);
    assert_eq!(done.code, 4, "{done}");
    assert_eq!(done.of_type("pack")[0]["pack"], id);
    assert_eq!(done.summary()["chunks_lost"], 1, "{done}");
    let lost = done.of_type("lost");
    assert!(
        lost[0]["path"].as_str().unwrap().ends_with("/victim"),
        "{done}"
    );
    assert_eq!(bench.run(&["repair", "packs", "zzz"]).code, 2);
    bench.backup();
    restores(&bench, "latest");
    bench.ok(&["check", "--read-data"]);
    bench.ok(&["repair", "packs"]);
}

#[test]
fn a_check_names_repair_index_after_index_objects_were_lost_or_damaged() {
    for lost in [true, false] {
        let bench = Bench::new();
        bench.backup();
        for index in objects(&bench, "index") {
            match lost {
                true => std::fs::remove_file(index).unwrap(),
                false => flip_byte(&index),
            }
        }
        let found = bench.run(&["check"]);
        assert_eq!(found.code, 4, "{found}");
        says(&found, "`bale repair index` lists them again");
        bench.ok(&["repair", "index"]);
        bench.ok(&["check", "--read-data"]);
        restores(&bench, "latest");
        bench.ok(&["prune"]);
    }
}

fn green(bench: &Bench) {
    let ran = bench.ok(&["check", "--read-data"]);
    says(&ran, "no damage found");
}

/// The id of an object: its file's name.
fn id_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_record_that_cannot_be_read_is_let_go_of_as_the_check_says() {
    let bench = Bench::new();
    bench.write("source/a", "first");
    bench.backup();
    bench.write("source/a", "second");
    bench.backup();
    let snapshot = objects(&bench, "snapshots").remove(0);
    flip_byte(&snapshot);
    let found = bench.run(&["check"]);
    assert_eq!(found.code, 4, "{found}");
    says(
        &found,
        "1 object cannot be read: bring it back from a copy of the repository, or let go of it \
         with `bale forget ID`",
    );
    let forgot = bench.ok(&["forget", &id_of(&snapshot)]);
    says(
        &forgot,
        "removed 1 snapshot\nWhat only it used comes back with: bale prune",
    );
    green(&bench);
}

#[test]
fn what_no_source_has_any_more_is_let_go_of_as_the_check_says() {
    let bench = with_damaged_file();
    let snapshots = objects(&bench, "snapshots");
    bench.sh("rm source/victim; echo other >source/other");
    bench.run(&["check", "--read-data"]);
    let pruned = bench.run(&["prune"]);
    assert_eq!(pruned.code, 3, "{pruned}");
    says(
        &pruned,
        "`bale repair packs` saves what opens of it, and `bale check` then says what is lost",
    );
    says(&pruned, "1 pack left in place, listed above");
    let repaired = bench.run(&["repair", "packs"]);
    assert_eq!(repaired.code, 4, "{repaired}");
    says(
        &repaired,
        "`bale forget ID` lets go of a snapshot that is named",
    );
    bench.backup();
    let left = bench.run(&["check"]);
    assert_eq!(left.code, 4, "{left}");
    assert!(
        !format!("{left}").contains("repair packs"),
        "it has nothing to save: {left}"
    );
    says(
        &left,
        "What a check names after that does not come back: `bale forget ID`",
    );
    bench.ok(&["forget", &id_of(&snapshots[0])]);
    says(&bench.ok(&["check"]), "a prune removes it");
    bench.ok(&["prune", "--grace", "0"]);
    green(&bench);
}

#[test]
fn a_pack_of_foreign_bytes_goes_as_prune_and_repair_say() {
    let bench = Bench::new();
    bench.write("source/a", "a");
    bench.backup();
    let id = "ab".repeat(32);
    let place = bench.repository().join("packs/ab");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join(&id), [7; 5000]).unwrap();
    let removes = format!("bale forget {id} removes it");
    let pruned = bench.run(&["prune", "--grace", "0"]);
    assert_eq!(pruned.code, 3, "{pruned}");
    says(&pruned, &removes);
    assert!(
        !format!("{pruned}").contains("in use"),
        "nothing of it is: {pruned}"
    );
    let repaired = bench.run(&["repair", "index"]);
    assert_eq!(repaired.code, 4, "{repaired}");
    says(&repaired, &removes);
    let forgot = bench.ok(&["forget", &id]);
    assert!(
        !forgot.err.contains("bale prune"),
        "its space is back: {forgot}"
    );
    bench.ok(&["prune", "--grace", "0"]);
    green(&bench);
}
