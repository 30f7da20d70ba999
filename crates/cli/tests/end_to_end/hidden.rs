//! Repositories that list less than they hold: nothing is deleted by such a listing, and it is
//! said.

use crate::bench::{Bench, Ran, is_root, skipped};

/// Three snapshots, each with a file of its own.
fn three() -> (Bench, Vec<String>) {
    let bench = Bench::new();
    let ids = (0..3).map(|number| {
        bench.sh(&format!("head -c 300000 /dev/urandom >source/f{number}"));
        bench.backup()["snapshot"].as_str().unwrap().to_owned()
    });
    let ids = ids.collect();
    (bench, ids)
}

fn says(ran: &Ran, text: &str) {
    assert!(ran.err.contains(text) || ran.text().contains(text), "{ran}");
}

fn moved(bench: &Bench, what: &str, there: bool) {
    let (inside, away) = (bench.repository().join(what), bench.path("away"));
    let (from, to) = if there {
        (away, inside)
    } else {
        (inside, away)
    };
    std::fs::rename(from, to).unwrap();
}

/// Everything restores and checks clean.
fn is_whole(bench: &Bench, ids: &[String]) {
    bench.ok(&["check", "--read-data"]);
    for id in ids {
        let target = format!("out-{id}");
        bench.ok(&["restore", &bench.address_in(id, ""), "--target", &target]);
    }
    crate::tree::assert_same(
        &bench.source,
        &bench.path(&format!("out-{}", ids.last().unwrap())),
    );
}

/// REP-10
#[test]
fn without_the_directory_of_snapshots_nothing_is_pruned() {
    let (bench, ids) = three();
    moved(&bench, "snapshots", false);
    for words in [
        &["prune", "--grace", "0"][..],
        &["prune", "--grace", "0"],
        &["prune", "--dry-run"],
        &["forget", "--keep-last", "1", "--prune", "--grace", "0"],
        &["check"],
        &["snapshots"],
        &["backup", "source"],
    ] {
        let refused = bench.run(words);
        assert_eq!(refused.code, 1, "{words:?}: {refused}");
        says(&refused, "snapshots is not there: bring it back");
    }
    moved(&bench, "snapshots", true);
    is_whole(&bench, &ids);
}

/// REP-10
#[test]
fn without_the_directory_of_packs_or_of_the_index_the_way_back_is_named() {
    let (bench, ids) = three();
    for area in ["packs", "index"] {
        moved(&bench, area, false);
        for words in [&["prune", "--grace", "0"][..], &["check"]] {
            let refused = bench.run(words);
            assert_eq!(refused.code, 1, "{words:?}: {refused}");
            says(&refused, &format!("{area} is not there: bring it back"));
        }
        bench.ok(&["snapshots"]);
        moved(&bench, area, true);
    }
    // The index is lost for good: as the message says.
    moved(&bench, "index", false);
    let refused = bench.run(&["repair", "index"]);
    says(&refused, "make an empty one (mkdir)");
    std::fs::create_dir(bench.repository().join("index")).unwrap();
    bench.ok(&["repair", "index"]);
    is_whole(&bench, &ids);
}

/// REP-10: tools that copy a repository leave out what is empty, and no snapshot depends on these.
#[test]
fn without_the_directories_that_are_mostly_empty_nothing_that_a_snapshot_needs_is_pruned() {
    let (bench, ids) = three();
    for area in ["runs", "condemned", "damaged"] {
        moved(&bench, area, false);
        bench.ok(&["prune", "--grace", "0"]);
        bench.ok(&["backup", "source"]);
        is_whole(&bench, &ids);
        bench.sh("rm -rf out-* away");
    }
}

/// REP-10: this machine knows that there was a newer one.
#[test]
fn while_the_newest_snapshot_is_hidden_nothing_is_pruned_until_it_is_acknowledged() {
    let (bench, ids) = three();
    let newest = format!("snapshots/{}", ids[2]);
    moved(&bench, &newest, false);
    let acknowledges = format!("bale forget {}", &ids[2][..8]);
    for words in [
        &["prune", "--grace", "0"][..],
        &["prune", "--grace", "0"],
        &["forget", "--keep-last", "1", "--prune", "--grace", "0"],
        &["forget", "latest", "--prune", "--grace", "0"],
    ] {
        let refused = bench.run(words);
        assert_eq!(refused.code, 1, "{words:?}: {refused}");
        says(&refused, &acknowledges);
    }
    let listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    assert_eq!(listed.len(), 2, "and nothing was forgotten");
    for words in [
        &["prune", "--dry-run", "--json"][..],
        &["forget", "--keep-last", "2", "--dry-run", "--json"],
    ] {
        let notes = bench.ok(words).of_type("note");
        assert!(notes.iter().any(|note| {
            let text = note["message"].as_str().unwrap();
            text.contains(&acknowledges)
        }));
    }
    moved(&bench, &newest, true);
    is_whole(&bench, &ids);
    moved(&bench, &newest, false);
    bench.ok(&["forget", &ids[2]]);
    bench.ok(&["prune", "--grace", "0"]);
    bench.ok(&["check", "--read-data"]);
}

/// REP-10: its blocks name them all, but its hashes are of another seed, so the kernel lists what
/// it cannot find.
#[test]
fn a_damaged_directory_of_snapshots_is_not_taken_for_an_empty_one() {
    if !is_root() {
        return skipped("loop mounts need root");
    }
    let bench = Bench::new();
    bench.write("source/file", "content");
    let script = format!(
        "truncate -s 64M image; mkfs.ext4 -q -F -b 4096 -O ^metadata_csum image; mkdir mount; \
         mount -o loop image mount
        export BALE_REPOSITORY=$PWD/mount/repository BALE_PASSWORD=p
        {bale} init; for i in $(seq 3); do echo $i >>source/file; {bale} backup source; done
        # Enough names for a directory that is hashed.
        cd mount/repository/snapshots; for i in $(seq 2000); do : >$(printf %064d $i); done; cd \
        ../../..
        before=$(find mount/repository/packs -type f | wc -l)
        umount mount
        debugfs -w -R 'set_super_value hash_seed 01234567-89ab-cdef-0123-456789abcdef' image
        mount -o loop image mount
        unfound=0; for name in $(ls mount/repository/snapshots); do
            test -e mount/repository/snapshots/$name || unfound=1; done
        echo $unfound >unfound
        for words in 'prune --grace 0' 'prune --grace 0' check snapshots; do
            code=0; {bale} $words >>said 2>&1 || code=$?; echo $code >>codes; done
        test $before = $(find mount/repository/packs -type f | wc -l)",
        bale = crate::bench::binary().display()
    );
    bench.mounting_sh(&script);
    let read = |name: &str| std::fs::read_to_string(bench.path(name)).unwrap();
    assert_eq!(read("unfound"), "1\n", "nothing is damaged");
    let said = read("said");
    assert_eq!(read("codes"), "1\n1\n1\n1\n", "{said}");
    assert_eq!(
        said.matches("is listed, and not found").count(),
        4,
        "{said}"
    );
}

/// A source without a UUID, as NFS is one. The empty snapshots of three nights were of its group:
/// `--keep-last 3` removed all others.
#[test]
fn the_nights_in_which_a_network_source_is_not_mounted_take_no_snapshot_away() {
    let bench = Bench::new();
    if !is_root() {
        return skipped("mounting needs root");
    }
    bench.mounting_sh(&format!(
        "mount -t tmpfs server:/export source; echo 1 >source/1
        for night in 1 2 3; do {0} backup source -q; done
        umount source
        for night in 1 2 3; do {0} backup source -q 2>>told && exit 1 || [ $? = 3 ]; done",
        crate::bench::binary().display()
    ));
    let told = std::fs::read_to_string(bench.path("told")).unwrap();
    assert_eq!(
        told.matches("is its file system mounted?").count(),
        3,
        "{told}"
    );
    let forgot = bench.ok(&["forget", "--keep-last", "3", "--json"]);
    assert_eq!(forgot.summary()["removed"], 0, "{forgot}");
    let snapshots = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    let on =
        |snapshot: &serde_json::Value| snapshot["source_filesystems"][0] == "tmpfs:server:/export";
    assert_eq!(snapshots.iter().filter(|snapshot| on(snapshot)).count(), 3);
}
