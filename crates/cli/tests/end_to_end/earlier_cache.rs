//! What an earlier version has in its cache is understood or not used: nothing it says makes a
//! later one leave anything out. `testdata/cache-N/` holds a repository and the cache that the
//! version which made both had of it.

use crate::bench::{Bench, Ran, is_root, skipped};
use std::path::Path;

/// A repository of an earlier version, with its cache or without any.
struct Earlier {
    bench: Bench,
}

impl Earlier {
    fn new(has_cache: bool) -> Earlier {
        let bench = Bench::new();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/cache-1");
        bench.sh(&format!("cp -r '{}' earlier", from.display()));
        if !has_cache {
            bench.sh("rm -r earlier/cache; mkdir earlier/cache");
        }
        Earlier { bench }
    }

    fn run(&self, words: &[&str]) -> Ran {
        let mut command = self.bench.command();
        let place = self.bench.path("earlier");
        command
            .args(words)
            .args(["-r", "earlier/repository", "-p", "earlier/password"])
            .env("BALE_CACHE_DIR", place.join("cache"))
            .env("BALE_HOST", "golden");
        Ran::from(command.output().unwrap())
    }

    fn ok(&self, words: &[&str]) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    }
}

#[test]
fn with_the_cache_of_an_earlier_version_everything_is_as_without_one() {
    let (with, without) = (Earlier::new(true), Earlier::new(false));
    for words in [
        &["snapshots", "--json"][..],
        &["ls", "-R", "--json", "latest"],
        &["find", "f1*", "--json"],
        &["diff", "latest~1", "latest", "--json"],
        &["check", "--read-data"],
    ] {
        let (one, other) = (with.ok(words), without.ok(words));
        assert_eq!(one.out, other.out, "{words:?}");
        assert_eq!(one.err, other.err, "{words:?}");
    }
    // Both are gone on from.
    for earlier in [&with, &without] {
        earlier.ok(&["restore", "latest:/mnt", "--target", "out", "--verify"]);
        let changing = "echo changed > out/small/f7; rm out/small/f8; echo new > out/new";
        earlier.bench.sh(changing);
        let words = ["backup", "out", "--parent", "latest", "--json"];
        assert_eq!(earlier.ok(&words).summary()["files"], 42);
        earlier.ok(&["backup", "out", "--json"]);
        let out = format!("latest:{}", earlier.bench.path("out").display());
        earlier.ok(&["restore", &out, "--target", "again", "--verify"]);
        earlier.bench.sh("diff -r --no-dereference out again");
        earlier.ok(&["forget", "--keep-last", "1", "--prune", "--grace", "0"]);
        earlier.ok(&["check", "--read-data"]);
    }
}

/// A backup by inodes knows the file system again, whose inodes are others by now.
#[test]
fn inodes_in_the_cache_of_an_earlier_version_hide_no_change() {
    if !is_root() {
        return skipped("mounting needs root");
    }
    let earlier = Earlier::new(true);
    let inodes = "ls earlier/cache/*/inodes/*.inodes";
    earlier.bench.sh(inodes);
    earlier.ok(&["restore", "latest:/mnt", "--target", "tree"]);
    earlier.bench.mounting_sh(&format!(
        "truncate -s 64M disk.img
        mkfs.ext4 -q -U 01234567-89ab-cdef-0123-456789abcdef -d tree disk.img
        mkdir disk; mount -o loop disk.img disk; rmdir disk/lost+found
        echo changed > disk/small/f7; echo new > disk/new; rm disk/small/f9
        bale() {{ BALE_CACHE_DIR=$place/earlier/cache BALE_HOST=golden {} \"$@\" \
            -r earlier/repository -p earlier/password; }}
        for word in 1 2; do
            bale backup disk --scan inode --parent 9089b4d9
            bale restore latest:$place/disk --target out-$word --verify
            diff -r --no-dereference disk out-$word
        done",
        crate::bench::binary().display()
    ));
}

/// What this machine saw is known though the version that saw it was another one.
#[test]
fn a_snapshot_that_an_earlier_version_saw_is_missed_when_it_is_gone() {
    for has_cache in [true, false] {
        let earlier = Earlier::new(has_cache);
        earlier
            .bench
            .sh("rm earlier/repository/snapshots/9089b4d9*");
        let ran = earlier.ok(&["snapshots"]);
        assert_eq!(ran.err.contains("9089b4d9"), has_cache, "{ran}");
    }
}
