//! `config` stands twice: what a person sees when one of the two is damaged, missing, or something
//! else altogether.

use crate::bench::{Bench, Ran, skipped};
use std::path::PathBuf;

fn with_snapshot() -> Bench {
    let bench = Bench::new();
    bench.write("source/file", "content");
    bench.ok(&["backup", "source"]);
    bench
}

fn file(bench: &Bench, name: &str) -> PathBuf {
    bench.repository().join(name)
}

fn put(bench: &Bench, name: &str, bytes: impl AsRef<[u8]>) {
    let path = file(bench, name);
    std::fs::remove_file(&path).ok();
    std::fs::write(path, bytes).unwrap();
}

/// A digit of the repository's id is another one.
fn flipped(bytes: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(bytes).unwrap();
    let at = text.find("\"repository\":\"").unwrap() + 14;
    let mut bytes = bytes.to_vec();
    bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
    bytes
}

fn says(ran: &Ran, text: &str) {
    assert!(ran.to_string().contains(text), "no word of {text:?}: {ran}");
}

const READING: [&[&str]; 7] = [
    &["snapshots"],
    &["ls", "latest", "-R"],
    &["find", "file"],
    &["stats"],
    &["dump", "latest:/"],
    &["key", "list"],
    &["prune", "--dry-run"],
];

#[test]
fn with_one_config_damaged_everything_goes_on_a_check_names_it_and_a_repair_mends_it() {
    let bench = with_snapshot();
    let whole = std::fs::read(file(&bench, "config")).unwrap();
    assert_eq!(std::fs::read(file(&bench, "config.copy")).unwrap(), whole);
    for (name, other) in [("config", "config.copy"), ("config.copy", "config")] {
        put(&bench, name, flipped(&whole));
        let note = "config is damaged; using config.copy. `bale repair config` writes it again";
        for words in READING {
            let ran = bench.ok(words);
            let told = usize::from(name == "config");
            assert_eq!(ran.err.matches(note).count(), told, "{words:?}: {ran}");
        }
        bench.sh("rm -rf out");
        bench.ok(&["restore", "latest", "--target", "out"]);
        for words in [
            &["check"][..],
            &["check", "--read-data"],
            &["check", "--scrub"],
        ] {
            let ran = bench.run(words);
            assert_eq!(ran.code, 4, "{words:?}: {ran}");
            let found = if words.len() == 2 && words[1] == "--scrub" {
                "config.copy"
            } else {
                name
            };
            says(&ran, &format!("damaged: {found}: "));
            assert!(!ran.err.contains("using"), "it is said already: {ran}");
        }
        let dry = bench.ok(&["repair", "config", "--dry-run"]);
        says(&dry, &format!("would write {name} from {other}"));
        assert!(!dry.err.contains("using"), "{dry}");
        assert_eq!(std::fs::read(file(&bench, name)).unwrap(), flipped(&whole));
        let done = bench.ok(&["repair", "config", "--json"]).summary();
        assert_eq!(done["written"], *name, "{done}");
        assert_eq!(done["dry_run"], false, "{done}");
        assert_eq!(std::fs::read(file(&bench, name)).unwrap(), whole);
        bench.ok(&["check"]);
        bench.ok(&["check", "--scrub"]);
        says(&bench.ok(&["repair", "config"]), "nothing to do");
    }
}

#[test]
fn what_stands_in_the_place_of_config_is_looked_at_with_care() {
    let bench = with_snapshot();
    bench.write("pw", "secret");
    bench.ok(&["init", "-r", "other", "-p", "pw"]);
    let whole = std::fs::read(file(&bench, "config")).unwrap();
    let place = bench.repository().display().to_string();
    for name in ["config", "config.copy"] {
        for script in [
            "rm $C",
            ": > $C",
            "rm $C; mkdir $C",
            "rm $C; mkfifo $C",
            "rm $C; ln -s /dev/zero $C",
            "truncate -s 1G $C",
            "cp ../other/config $C",
            "rm $C; ln -s ../other/config $C",
        ] {
            let script = format!(
                "cd {place}; C={name}; {}",
                script.replace("../other", &bench.path("other").display().to_string())
            );
            bench.sh(&script);
            let ran = bench.ok(&["snapshots"]);
            assert_eq!(
                ran.err.contains("using config.copy"),
                name == "config",
                "{script}: {ran}"
            );
            let check = bench.run(&["check"]);
            assert_eq!(check.code, 4, "{script}: {check}");
            says(&check, &format!("damaged: {name}: "));
            if script.contains("mkdir") {
                let refused = bench.run(&["repair", "config"]);
                assert_eq!(refused.code, 1, "{script}: {refused}");
                says(&refused, "move it away");
                bench.sh(&format!("rmdir {place}/{name}"));
            }
            bench.ok(&["repair", "config"]);
            assert_eq!(
                std::fs::read(file(&bench, name)).unwrap(),
                whole,
                "{script}"
            );
            bench.ok(&["check"]);
        }
    }
}

/// A repository of before, and one whose copy is damaged.
#[test]
fn a_command_that_writes_adds_the_copy_and_others_do_not() {
    let bench = with_snapshot();
    let whole = std::fs::read(file(&bench, "config")).unwrap();
    for damaged in [false, true] {
        let spoil = || match damaged {
            true => put(&bench, "config.copy", flipped(&whole)),
            false => std::fs::remove_file(file(&bench, "config.copy")).unwrap(),
        };
        spoil();
        for words in READING {
            assert_eq!(bench.ok(words).err.matches("config.copy").count(), 0);
        }
        bench.ok(&["backup", "source", "--dry-run"]);
        assert_ne!(
            std::fs::read(file(&bench, "config.copy")).ok(),
            Some(whole.clone())
        );
        let ran = bench.ok(&["backup", "source"]);
        says(&ran, "written from config");
        assert_eq!(std::fs::read(file(&bench, "config.copy")).unwrap(), whole);
        bench.ok(&["check"]);
    }
    // That config is damaged is for somebody to hear.
    put(&bench, "config", flipped(&whole));
    says(
        &bench.ok(&["backup", "source"]),
        "config is damaged; using config.copy",
    );
    assert_eq!(
        std::fs::read(file(&bench, "config")).unwrap(),
        flipped(&whole)
    );
}

#[test]
fn a_store_that_cannot_be_written_is_read_with_one_config() {
    let bench = with_snapshot();
    if !crate::bench::is_root() {
        return skipped("a read-only mount needs root");
    }
    let place = bench.repository().display().to_string();
    for name in ["config", "config.copy"] {
        bench.mounting_sh(&format!(
            "rm {place}/{name}; mount --bind {place} {place}; mount -o remount,bind,ro {place}; \
             {bale} snapshots; {bale} ls latest; if {bale} backup source; then exit 9; fi; \
             if {bale} repair config; then exit 9; fi; umount {place}; {bale} repair config; \
             {bale} check",
            bale = crate::bench::binary().display()
        ));
    }
}

#[test]
fn with_both_bad_it_is_said_what_is_wrong_and_what_to_do_and_nothing_is_made() {
    let bench = with_snapshot();
    bench.write("pw", "secret");
    let place = bench.repository().display().to_string();
    for name in ["config", "config.copy"] {
        put(&bench, name, "{}\n");
    }
    for words in [
        &["snapshots"][..],
        &["check"],
        &["backup", "source"],
        &["repair", "config"],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 1, "{words:?}: {ran}");
        says(&ran, "neither config nor config.copy");
        says(&ran, "from a copy of the repository");
    }
    // Whichever is left, it is a repository.
    for name in ["config", "config.copy"] {
        let again = bench.run(&["init", "-r", &place, "-p", "pw", "--force"]);
        assert_eq!(again.code, 1, "{again}");
        says(&again, "already holds a repository");
        std::fs::remove_file(file(&bench, name)).unwrap();
    }
    let none = bench.run(&["snapshots"]);
    assert_eq!(none.code, 10, "{none}");
    says(&none, "config.copy");
}

#[test]
fn a_lone_copy_is_a_repository_to_everybody_who_looks_for_one() {
    let bench = with_snapshot();
    std::fs::remove_file(file(&bench, "config")).unwrap();
    let place = bench.repository().display().to_string();
    bench.ok(&["snapshots"]);
    assert_eq!(bench.run(&["check", "--scrub"]).code, 4);
    let into = bench.run(&["restore", "latest", "--target", &place]);
    assert_eq!(into.code, 2, "{into}");
    says(&into, "is a repository of Bale");
    // Another repository of which only the copy is left is left out of a backup.
    bench.write("pw", "secret");
    bench.sh("mkdir -p home");
    bench.ok(&["init", "-r", "home/store", "-p", "pw"]);
    bench.sh("rm home/store/config");
    let ran = bench.ok(&["backup", "home", "-v"]);
    says(&ran, "marked as a repository of Bale");
}

#[test]
fn no_repository_is_made_inside_of_another() {
    let bench = with_snapshot();
    bench.write("pw", "secret");
    let place = bench.repository().display().to_string();
    for config in ["config", "config.copy"] {
        for below in ["packs/zz", "zz", "keys/a/b", "tmp/x"] {
            let inner = format!("{place}/{below}");
            let ran = bench.run(&["init", "-r", &inner, "-p", "pw", "--force"]);
            assert_eq!(ran.code, 1, "{below}: {ran}");
            says(&ran, "which is a repository of its own");
            assert!(!PathBuf::from(&inner).exists(), "{below}");
        }
        std::fs::remove_file(file(&bench, config)).unwrap();
        if config == "config" {
            bench.sh(&format!("ln -s {place}/packs link"));
            let ran = bench.run(&["init", "-r", "link/zz", "-p", "pw"]);
            assert_eq!(ran.code, 1, "{ran}");
        }
    }
}

#[test]
fn a_repository_without_key_slots_says_so() {
    let bench = with_snapshot();
    let place = bench.repository().display().to_string();
    bench.sh(&format!("rm {place}/keys/*"));
    let ran = bench.run(&["snapshots"]);
    assert_eq!(ran.code, 12, "{ran}");
    says(&ran, "no key slot is left in keys/");
    assert!(!ran.err.contains("wrong password"), "{ran}");
}

#[test]
fn init_names_the_key_slots_of_one_that_did_not_end() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.ok(&["init", "-r", "begun", "-p", "pw"]);
    bench.sh("rm begun/config begun/config.copy");
    let slots = std::fs::read_dir(bench.path("begun/keys")).unwrap();
    let slots: Vec<String> = slots
        .map(|slot| slot.unwrap().file_name().into_string().unwrap())
        .collect();
    let made = bench.ok(&["init", "-r", "begun", "-p", "pw"]);
    says(&made, "of an init that did not end");
    for slot in &slots {
        says(&made, &slot[..8]);
        bench.ok(&["key", "remove", &slot[..8], "-r", "begun", "-p", "pw"]);
    }
    bench.ok(&["check", "-r", "begun", "-p", "pw"]);
}
