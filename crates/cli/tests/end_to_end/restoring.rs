//! Bringing back all, parts, again, after a kill; and dumping.

use crate::bench::{Bench, Ran, binary, have, is_root, skipped};
use crate::tree::assert_same;
use std::process::Command;
use std::time::Duration;

fn filled() -> Bench {
    let bench = Bench::new();
    bench.sh(
        "cd source; mkdir -p a/b c; echo one > a/one; echo two > a/b/two.txt; echo three > \
        c/three; ln a/one c/one-again; ln -s one a/link",
    );
    bench.backup();
    bench
}

#[test]
fn parts_of_older_snapshots_come_back() {
    let bench = filled();
    bench.write("source/a/one", "changed");
    bench.backup();
    bench.ok(&[
        "restore",
        &bench.address_in("latest~1", "/a"),
        "--target",
        "older",
    ]);
    assert_eq!(std::fs::read(bench.path("older/one")).unwrap(), b"one\n");
    bench.ok(&["restore", &bench.address("/a/one"), "--target", "file"]);
    let found = bench.path("file");
    let found = if found.is_dir() {
        found.join("one")
    } else {
        found
    };
    assert_eq!(std::fs::read(found).unwrap(), b"changed");

    bench.ok(&[
        "restore",
        &bench.address(""),
        "--target",
        "included",
        "--include",
        "*.txt",
    ]);
    assert!(bench.path("included/a/b/two.txt").exists());
    assert!(!bench.path("included/c/three").exists());
    bench.ok(&[
        "restore",
        &bench.address(""),
        "--target",
        "excluded",
        "--exclude",
        "b",
    ]);
    assert!(!bench.path("excluded/a/b").exists());
    assert!(bench.path("excluded/c/three").exists());
    assert_ne!(
        bench
            .run(&["restore", &bench.address("/missing"), "--target", "no"])
            .code,
        0
    );
}

#[test]
fn what_exists_is_overwritten_as_asked() {
    let bench = filled();
    let address = bench.address("");
    let dry = bench.ok(&[
        "restore",
        &address,
        "--target",
        "out",
        "--dry-run",
        "--json",
    ]);
    assert_eq!(dry.summary()["dry_run"], true);
    assert!(!bench.path("out").exists(), "a dry run makes nothing");
    bench.ok(&["restore", &address, "--target", "out"]);

    let again = bench
        .ok(&["restore", &address, "--target", "out", "--json"])
        .summary();
    assert_eq!(again["files_written"], 0, "{again}");
    bench.sh("cd out; echo other, longer > a/one; echo extra > extra; mkdir more; echo x > more/x");
    bench.ok(&[
        "restore",
        &address,
        "--target",
        "out",
        "--overwrite",
        "never",
    ]);
    assert_eq!(
        std::fs::read(bench.path("out/a/one")).unwrap(),
        b"other, longer\n"
    );
    let dry = bench.ok(&[
        "restore",
        &address,
        "--target",
        "out",
        "--delete",
        "--dry-run",
    ]);
    assert!(bench.path("out/extra").exists(), "{dry}");
    bench.ok(&[
        "restore",
        &address,
        "--target",
        "out",
        "--delete",
        "--overwrite",
        "if-changed",
        "--verify",
    ]);
    assert_same(&bench.source, &bench.path("out"));

    // Same size and time, other content: only `always` sees it.
    bench.sh(
        "cd out; touch -r c/three stamp; printf 'THREE\n' > c/three; touch -r stamp c/three; \
        rm stamp",
    );
    bench.ok(&[
        "restore",
        &address,
        "--target",
        "out",
        "--overwrite",
        "always",
    ]);
    assert_same(&bench.source, &bench.path("out"));
}

#[test]
fn a_killed_restore_goes_on() {
    let bench = Bench::new();
    bench.sh(
        "cd source; for d in $(seq 30); do mkdir d$d; for f in $(seq 100); do echo $d $f > \
        d$d/$f; done; head -c 400000 /dev/urandom > d$d/big; done",
    );
    bench.backup();
    for wait_ms in [60, 150, 400] {
        let mut child = bench
            .command()
            .args(["restore", &bench.address(""), "--target", "out", "-q"])
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        // Dropping the child would leave it running.
        child.kill().unwrap();
        child.wait().unwrap();
    }
    bench.ok(&[
        "restore",
        &bench.address(""),
        "--target",
        "out",
        "--delete",
        "--verify",
    ]);
    assert_same(&bench.source, &bench.path("out"));
}

#[test]
fn dump_prints_a_file_and_tars_a_directory() {
    let bench = filled();
    let file = bench.ok(&["dump", &bench.address("/a/b/two.txt")]);
    assert_eq!(file.out, b"two\n");
    let tar = bench.ok(&["dump", &bench.address("")]);
    std::fs::write(bench.path("tar"), &tar.out).unwrap();
    bench
        .sh("tar tf tar > list; grep -q a/b/two.txt list; mkdir untarred; tar xpf tar -C untarred");
    assert_same(&bench.source, &bench.path("untarred"));
}

/// What a user cannot take back is counted, and the first paths are named; no name steers the
/// terminal.
#[test]
fn losses_are_named_by_path_and_bounded() {
    if !is_root() {
        return skipped("only root can make files that a user cannot restore");
    }
    let bench = Bench::new();
    bench.sh(
        "cd source; for n in $(seq 10 31); do echo x > f$n; chown 12345 f$n; done; mv f10 \
        $'f10\\e[2J'",
    );
    bench.backup();
    bench.sh("chmod 755 .; chown -R 65534:65534 home; mkdir out; chown 65534 out");
    let inner = bench.path("bale");
    std::fs::copy(binary(), &inner).unwrap();
    let mut command = bench.prepared(Command::new("setpriv"));
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(inner)
        .args(["restore", &bench.address(""), "--target", "out"]);
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("entries: owners"), "{ran}");
    assert!(
        !ran.err.contains('\x1b') && ran.err.contains("\\x1b[2J"),
        "{ran}"
    );
    assert!(ran.err.contains("  and 13 more"), "{ran}");
}

/// A socket comes back as what a file system holds of it, and is no reason to doubt the restore.
#[test]
fn a_tree_with_a_socket_restores_completely() {
    let bench = Bench::new();
    let _socket = std::os::unix::net::UnixListener::bind(bench.path("source/socket")).unwrap();
    bench.backup();
    bench.ok(&["restore", &bench.address(""), "--target", "out", "--verify"]);
    let found = bench.path("out/socket").symlink_metadata().unwrap();
    assert!(std::os::unix::fs::FileTypeExt::is_socket(
        &found.file_type()
    ));
    // Again, onto what is there.
    bench.ok(&["restore", &bench.address(""), "--target", "out", "--verify"]);
}

#[test]
fn a_snapshot_becomes_a_file_system_that_the_next_backup_finds_unchanged() {
    let bench = Bench::new();
    crate::source::fill(&bench);
    if !is_root() || !have("e2fsck") {
        return skipped("mounting an image needs root and e2fsck");
    }
    bench.sh(
        "cd source; mknod plain/null c 1 3; setfacl -m u:1234:rwx plain/f3 2>/dev/null || \
        true; chown 1234:77 plain/f4",
    );
    let first = bench.backup();
    let old = bench.address_in(first["snapshot"].as_str().unwrap(), "");
    let image = [
        "restore",
        &bench.address(""),
        "--to-ext4",
        "home.img",
        "--json",
    ];
    let report = bench.ok(&[
        &image[..],
        &["--verify", "--label", "home", "--block-size", "1024"],
    ]
    .concat());
    let summary = report.summary();
    assert!(
        summary["image"]["bytes"].as_u64() >= summary["image"]["needed_bytes"].as_u64(),
        "{report}"
    );
    assert_eq!(summary["differences"], 0, "{report}");
    assert!(
        report
            .of_type("note")
            .iter()
            .any(|note| note["message"].as_str().unwrap().contains("needs"))
    );
    bench.sh("e2fsck -fn home.img; mkdir mounted; mount -o loop,ro home.img mounted");
    let mounted = Mounted(bench.path("mounted"));
    bench.sh("rmdir mounted/lost+found 2>/dev/null || true");
    let left = without_lost_found(&bench.source);
    let right = without_lost_found(&mounted.0);
    assert_eq!(left.len(), right.len());
    for (path, text) in &left {
        assert_eq!(right.get(path), Some(text), "{path:?}");
    }
    // Every field that find can print, the change time too, but what belongs to the place.
    bench.sh(
        "for d in source mounted; do (cd $d; find . -mindepth 1 -path ./lost+found -prune -o \
        -printf '%P %y %m %U %G %T@ %C@ %l %n\\n' -o -true | sort > ../$d.find); done; sed -i \
        '/^$/d' *.find; grep -v ' d ' source.find > a; grep -v ' d ' mounted.find > b; cmp a b",
    );
    let again = bench.ok(&["backup", "mounted", "--json"]).summary();
    assert_eq!(again["problems"], 0);
    let new = format!("latest:{}", mounted.0.display());
    let listed = |address: &str| {
        let out = bench.ok(&["ls", "--recursive", "--json", address]);
        let mut hashes: Vec<String> = out
            .of_type("entry")
            .iter()
            .filter(|entry| entry["kind"] == "file")
            .map(|entry| format!("{} {}", entry["size"], entry["content_hash"]))
            .collect();
        hashes.sort();
        hashes
    };
    assert!(!listed(&new).is_empty());
    assert_eq!(listed(&old), listed(&new), "{old}");
    drop(mounted);

    let refused = bench.run(&image);
    assert!(
        refused.code == 1 && refused.err.contains("not empty"),
        "{refused}"
    );
    bench.sh("truncate -s 1M small.img");
    let small = bench.run(&["restore", &old, "--to-ext4", "new.img", "--fs-size", "1M"]);
    assert!(small.code == 1 && small.err.contains("needs"), "{small}");
    assert!(!bench.path("new.img").exists());
    let words = bench.run(&["restore", "latest", "--target", "x", "--label", "y"]);
    assert_eq!(words.code, 2, "{words}");
}

fn without_lost_found(root: &std::path::Path) -> crate::tree::Tree {
    let mut tree = crate::tree::describe(root);
    tree.retain(|path, _| !path.is_empty() && path != "lost+found");
    tree
}

/// Mounted until dropped.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _told_by_mount = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn what_selects_nothing_is_an_error_and_what_was_written_is_named_on_request() {
    let bench = filled();
    let address = bench.address("");
    let words = ["restore", &address, "--target", "out"];
    let ran = bench.run(&[&words[..], &["--include", "nomatch*"]].concat());
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.err.contains("no path matches --include"), "{ran}");
    assert!(!bench.path("out").exists());
    let ran = bench.ok(&[&words[..], &["-v"]].concat());
    for line in ["restored a/one", "restored a/b/two.txt", "restored a/link"] {
        assert!(ran.err.lines().any(|said| said == line), "{line}: {ran}");
    }
}

/// Of two, one was misspelt: half came back, and nothing said so.
#[test]
fn an_include_that_matches_nothing_is_named_and_is_no_success() {
    let bench = filled();
    let address = bench.address("");
    let words = ["restore", &address, "-i", "/a", "-i", "threee"];
    for to in [["-t", "out"], ["-t", "dry"], ["--to-ext4", "image"]] {
        let dry: &[&str] = if to[1] == "dry" { &["-n"] } else { &[] };
        let ran = bench.run(&[&words[..], &to, dry].concat());
        assert_eq!(ran.code, 3, "{to:?}: {ran}");
        assert_eq!(ran.err.matches("threee").count(), 1, "{to:?}: {ran}");
        assert!(!ran.err.contains("/a\""), "{to:?}: {ran}");
    }
    assert!(bench.path("out/a/one").exists());
    let ran = bench.run(&[&words[..], &["-t", "out", "--verify", "--json"]].concat());
    assert_eq!(ran.code, 3, "{ran}");
    let unmatched = serde_json::json!(["threee"]);
    assert_eq!(ran.summary()["includes_unmatched"], unmatched, "{ran}");
    // One is in what another brings, one is taken back, one is excluded, and one takes back what is
    // not there.
    let fine = ["-i", "a", "-i", "one", "-i", "/a/b/two.txt", "-i", "three"];
    let back = ["-i", "!three", "-i", "!nothing", "-e", "/a/b"];
    let to = ["restore", &address, "-t", "other", "--json"];
    let ran = bench.ok(&[&to[..], &fine, &back].concat());
    assert_eq!(ran.summary()["includes_unmatched"], serde_json::json!([]));
    assert!(bench.path("other/a/one").exists());
    let ran = bench.ok(&["restore", &address, "-t", "all", "--json"]);
    assert_eq!(ran.summary()["includes_unmatched"], serde_json::json!([]));
}

#[test]
fn a_verified_restore_says_what_helps() {
    let bench = filled();
    let address = bench.address("");
    bench.ok(&["restore", &address, "--target", "out"]);
    bench.sh(
        "cd out; touch -r c/three stamp; printf 'THREE\n' > c/three; touch -r stamp c/three; \
        rm stamp",
    );
    let words = ["restore", &address, "--target", "out", "--verify"];
    let ran = bench.run(&words);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("--overwrite always"), "{ran}");
    bench.ok(&[&words[..], &["--overwrite", "always"]].concat());
}

#[test]
fn patterns_of_a_restore_that_can_match_nothing_are_refused_before_anything_is_written() {
    let bench = Bench::new();
    bench.write("source/f", "1");
    bench.backup();
    let address = bench.address("");
    for option in ["--include", "--exclude"] {
        for pattern in ["./f", "!f", "~/f", "", "*.{a,b}"] {
            let words = ["restore", &address, "--target", "out", option, pattern];
            let ran = bench.run(&words);
            assert_eq!(ran.code, 2, "{option} {pattern}: {ran}");
            assert!(ran.err.contains("can match nothing"), "{ran}");
        }
    }
    assert!(!bench.path("out").exists());
}

/// Nothing comes to lie among the objects of a repository, of this one or another, unless that is
/// meant.
#[test]
fn a_target_in_a_repository_is_refused() {
    let bench = Bench::new();
    bench.write("source/file", "1");
    bench.backup();
    bench.ok(&["init", "-r", "other", "--new-key-file", "other.key"]);
    bench.sh(
        "ln -s other/packs link; mkdir around; mv other around/; ln -sfn around/other/packs link",
    );
    let own = bench.repository().join("packs").display().to_string();
    let address = bench.address("");
    let refused = |way: &str, target: &str| {
        let ran = bench.run(&["restore", &address, way, target]);
        assert_eq!(ran.code, 2, "{target}: {ran}");
        assert!(ran.err.contains("restore to another place"), "{ran}");
    };
    for target in ["around/other", "around/other/new/deep", "link/aa", &own] {
        refused("--target", target);
    }
    refused("--to-ext4", "around/other/image");
    assert!(!bench.path("around/other/new").exists());
    assert!(!bench.path("around/other/image").exists());
    bench.ok(&["restore", &address, "--target", "around"]);
    bench.ok(&["restore", &address, "--target", "around/other", "--force"]);
    assert!(bench.path("around/other/file").exists());
}

#[test]
fn a_dry_run_of_deleting_goes_on_where_a_directory_would_replace_something_else() {
    let bench = Bench::new();
    bench.sh("mkdir -p source/d/e source/l; echo x > source/d/e/f; echo x > source/l/f");
    bench.backup();
    bench.sh("mkdir -p out/elsewhere; echo file > out/d; ln -s elsewhere out/l");
    let words = [&bench.address(""), "--target", "out", "--delete"];
    let dry = bench.ok(&[&["restore", "-n"], &words[..]].concat());
    assert!(!dry.text().contains("Not a directory"), "{dry}");
    bench.sh("[ -f out/d ]; [ -L out/l ]; [ -d out/elsewhere ]");
    bench.ok(&[&["restore"], &words[..]].concat());
    bench.sh("[ -f out/d/e/f ]; [ -f out/l/f ]; [ ! -L out/l ]; [ ! -e out/elsewhere ]");
}

/// XFS lists each access control list twice, and a backup has it once.
#[test]
fn access_control_lists_on_xfs_are_verified_and_differ_in_nothing() {
    let bench = Bench::new();
    let have = |tool: &str| {
        let found = std::process::Command::new("which").arg(tool).output();
        found.is_ok_and(|found| found.status.success())
    };
    if !crate::bench::is_root() || !have("mkfs.xfs") || !have("setfacl") {
        return crate::bench::skipped("an XFS with access control lists needs root and its tools");
    }
    bench.sh(
        "cd source; mkdir d; echo a > d/a; echo b > plain; setfacl -m u:12:rw d/a
        setfacl -m u:12:rwx -m d:g:34:rx d; truncate -s 400M ../xfs.img; mkfs.xfs -q ../xfs.img",
    );
    bench.backup();
    bench.sh("mkdir disk");
    bench.mounting_sh(&format!(
        "mount -o loop xfs.img disk; {0} restore {1} --target disk/out --verify
        setfacl -m u:99:r disk/out/plain; setfacl -m u:99:r disk/out/d/a
        code=0; {0} restore {1} --target disk/out --metadata-only > said 2>&1 || code=$?
        echo $code > code; {0} restore {1} --target disk/out --verify > verified 2>&1
        cd source; getfacl . d d/a plain > ../before; cd ../disk/out; getfacl . d d/a plain > ../../after",
        crate::bench::binary().display(),
        bench.address("")
    ));
    let read = |name: &str| std::fs::read_to_string(bench.path(name)).unwrap();
    let said = read("said");
    assert_eq!(read("code").trim(), "0", "{said}");
    assert!(
        said.contains("metadata is as in the snapshot: 2 entries, 2 directories"),
        "{said}"
    );
    assert!(
        read("verified").contains("0 differences"),
        "{}",
        read("verified")
    );
    assert_eq!(read("before"), read("after"));
}

/// Each of them gets what could be had, and none is left out.
#[test]
fn all_names_of_a_damaged_file_come_back_with_what_could_be_had() {
    let bench = Bench::new();
    bench.sh(
        "head -c 5000000 /dev/urandom > source/one; mkdir source/deep
        ln source/one source/other; ln source/one source/deep/third",
    );
    bench.backup();
    bench.sh(&format!(
        "pack=$(find {}/packs -type f -printf '%s %p\\n' | sort -n | tail -1 | cut -d ' ' -f 2)
         chmod u+w $pack; printf damaged! | dd of=$pack bs=1 seek=2000000 conv=notrunc status=none",
        bench.repository().display()
    ));
    let address = bench.address("");
    let ran = bench.run(&["restore", &address, "--target", "out", "--json"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(ran.summary()["incomplete"], 3, "{ran}");
    for name in ["one", "other", "deep/third"] {
        let back = std::fs::read(bench.path("out").join(name)).unwrap();
        let was = std::fs::read(bench.source.join(name)).unwrap();
        assert_eq!(back.len(), was.len());
        let lost = back.iter().zip(&was).filter(|(back, was)| back != was);
        let lost = lost.count();
        assert!((1..4_900_000).contains(&lost), "{name}: {lost}");
    }
    // And a repository that has it gives it back.
    bench.ok(&["backup", "source", "--force"]);
    bench.ok(&["restore", &address, "--target", "out", "--verify"]);
    bench.sh("cmp out/one source/one; test out/one -ef out/other; test out/one -ef out/deep/third");
}
