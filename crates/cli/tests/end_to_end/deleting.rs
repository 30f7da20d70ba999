//! `restore --delete`: nothing goes that was never backed up.

use crate::bench::{Bench, have, interrupted_backup, is_root, skipped};

fn is_there(bench: &Bench, name: &str) -> bool {
    bench.path(name).symlink_metadata().is_ok()
}

/// A repository that a key in the source opens, and a password beside it.
struct TwoSecrets {
    repository: String,
    key: String,
    password: String,
}

impl TwoSecrets {
    fn make(bench: &Bench) -> TwoSecrets {
        bench.sh("echo word > password");
        let place = |name: &str| bench.path(name).display().to_string();
        let made = TwoSecrets {
            repository: place("repository"),
            key: place("source/d/key"),
            password: place("password"),
        };
        bench.ok(&["init", "-r", &made.repository, "--new-key-file", &made.key]);
        let words = ["key", "add", "--new-password-file", &made.password];
        bench.ok(&made.with_key(&words));
        made
    }

    fn with_key<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [&["-r", &self.repository, "--key-file", &self.key], words].concat()
    }

    fn with_password<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [&["-r", &self.repository, "-p", &self.password], words].concat()
    }
}

#[test]
fn nothing_is_deleted_that_was_never_backed_up() {
    let bench = Bench::new();
    bench.sh(
        "cd home; mkdir -p docs mail Pictures; echo d > docs/d; echo m > mail/m; echo p > \
        Pictures/p; echo k > .kept",
    );
    bench.ok(&["backup", "home/docs", "home/mail"]);
    bench.sh("cd home; mkdir docs/newer; echo n > docs/newer/n; echo n > mail/n");
    let home = bench.home.display().to_string();
    let address = format!("latest:{home}");
    let words = ["restore", &address, "--target", &home, "--delete"];

    let refused = bench.run(&words);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.err.contains("--force"), "{refused}");
    assert!(is_there(&bench, "home/docs/newer/n"));

    let dry = bench.ok(&[&words[..], &["-n", "-v"]].concat());
    for path in ["delete docs/newer", "delete docs/newer/n", "delete mail/n"] {
        assert!(dry.err.lines().any(|line| line == path), "{path}: {dry}");
    }
    assert!(dry.err.contains("would delete 3 "), "{dry}");
    assert!(is_there(&bench, "home/docs/newer/n"));

    let ran = bench.ok(&[&words[..], &["--force", "--json", "-v"]].concat());
    assert_eq!(ran.summary()["deleted"], 3, "{ran}");
    let deleted = ran
        .of_type("path")
        .into_iter()
        .filter(|path| path["act"] == "delete");
    assert_eq!(deleted.count(), 3, "{ran}");
    assert!(!is_there(&bench, "home/docs/newer") && !is_there(&bench, "home/mail/n"));
    for name in [
        "home/Pictures/p",
        "home/.kept",
        "home/docs/d",
        "home/mail/m",
    ] {
        assert!(is_there(&bench, name), "{name}");
    }
    bench.ok(&["check", "--read-data"]);
}

#[test]
fn what_the_backup_left_out_stays_also_in_directories_that_go() {
    let bench = Bench::new();
    bench.sh(
        "cd source; mkdir -p a/tmp cache; echo x > a/x; echo o > a/x.o; echo t > a/tmp/t; \
        echo big > cache/data; printf 'Signature: 8a477f597d28d172789f06886806bc55' > \
        cache/CACHEDIR.TAG; echo '*.log' > ../excludes; echo l > a/l.log; head -c 5000 /dev/zero > \
        a/large",
    );
    let words = [
        "backup",
        "source",
        "--exclude",
        "*.o",
        "--iexclude",
        "TMP",
        "--exclude-caches",
    ];
    let more = ["--exclude-file", "excludes", "--exclude-larger-than", "4K"];
    bench.ok(&[&words[..], &more].concat());
    bench.sh(
        "cd source; mkdir new; echo o > new/x.o; echo l > new/l.log; echo n > new/n; mkdir \
        new/TMP gone; echo g > gone/g; echo n > a/n",
    );
    let source = bench.source.display().to_string();
    let ran = bench.ok(&[
        "restore",
        &bench.address(""),
        "--target",
        &source,
        "--delete",
        "--json",
    ]);
    assert_eq!(ran.summary()["deleted"], 4, "{ran}");
    for name in ["new/n", "gone", "a/n"] {
        assert!(!is_there(&bench, &format!("source/{name}")), "{name}");
    }
    for name in [
        "a/x.o",
        "a/tmp/t",
        "a/l.log",
        "a/large",
        "cache/data",
        "new/x.o",
        "new/TMP",
    ] {
        assert!(is_there(&bench, &format!("source/{name}")), "{name}");
    }
}

#[test]
fn the_repository_the_cache_and_the_key_in_use_are_never_deleted() {
    let bench = Bench::new();
    bench.sh("cd source; echo x > x; mkdir d");
    let place = |name: &str| bench.path(name).display().to_string();
    let repository = place("source/new/deep/repository");
    let key = place("source/d/key");
    bench.sh("mkdir elsewhere; cp -a source elsewhere/source");
    bench.ok(&[
        "init",
        "-r",
        &place("repository"),
        "--new-key-file",
        &place("key"),
    ]);
    let open = ["-r", &place("repository"), "--key-file", &place("key")];
    bench.ok(&[&open[..], &["backup", "source"]].concat());
    bench.sh(
        "mkdir -p source/new/deep source/new/other; mv repository source/new/deep/; mv key \
        source/d/; echo y > source/new/y",
    );
    let source = bench.source.display().to_string();
    let cache = place("source/d/cache");
    let open = ["-r", &repository, "--key-file", &key, "--cache-dir", &cache];
    let address = bench.address("");
    let words = ["restore", &address, "--target", &source, "--delete"];
    let ran = bench.ok(&[&open[..], &words].concat());
    assert!(ran.err.contains("in use"), "{ran}");
    assert!(!is_there(&bench, "source/new/y") && !is_there(&bench, "source/new/other"));
    bench.ok(&[&open[..], &["check", "--read-data"]].concat());

    // In a directory that is a target itself, too.
    let words = ["restore", &address, "--target", &repository, "--delete"];
    let ran = bench.run(&[&open[..], &words, &["--force"]].concat());
    assert_eq!(ran.code, 3, "{ran}");
    assert!(
        is_there(&bench, "source/new/deep/repository/config"),
        "{ran}"
    );
}

#[test]
fn a_repository_that_is_in_the_snapshot_itself_loses_nothing() {
    let bench = Bench::new();
    bench.sh("cd source; echo x > x");
    let repository = bench.path("source/repository").display().to_string();
    bench.sh("echo word > password");
    let password = bench.path("password").display().to_string();
    let open = ["-r", &repository, "-p", &password];
    bench.ok(&[&open[..], &["init"]].concat());
    bench.ok(&[&open[..], &["backup", "source"]].concat());
    bench.sh("echo y > source/y");
    bench.ok(&[&open[..], &["backup", "source"]].concat());
    let source = bench.source.display().to_string();
    let address = bench.address_in("latest~1", "");
    let words = ["restore", &address, "--target", &source, "--delete"];
    bench.ok(&[&open[..], &words].concat());
    assert!(!is_there(&bench, "source/y"));
    bench.ok(&[&open[..], &["check", "--read-data"]].concat());
    bench.ok(&[
        &open[..],
        &["restore", &bench.address(""), "--target", "out"],
    ]
    .concat());
}

#[test]
fn nothing_is_deleted_beyond_a_mount() {
    if !is_root() {
        return skipped("mounting takes root");
    }
    let bench = Bench::new();
    bench.sh("cd source; mkdir -p kept/m plain; echo x > kept/x");
    bench.backup();
    bench.mounting_sh(&format!(
        "mkdir other; echo precious > other/file; mkdir source/new source/new/bound; echo n > \
         source/new/n
         mount --bind other source/new/bound; mount --bind other source/kept/m
         rc=0; {} restore {} --target source --delete || rc=$?
         [ $rc = 3 ]; [ -e other/file ]; [ ! -e source/new/n ]",
        crate::bench::binary().display(),
        bench.address("")
    ));
    assert!(is_there(&bench, "other/file"));
}

/// A file was renamed in the target, and the repository has lost its content: the renamed one is
/// the last copy.
#[test]
fn nothing_is_deleted_while_some_content_could_not_be_had() {
    let bench = Bench::new();
    bench.sh(
        "head -c 300000 /dev/urandom > source/report; cp source/report copy; echo o > source/other",
    );
    bench.backup();
    bench.sh("mv source/report source/report-2026");
    bench.sh(&format!(
        "pack=$(find {}/packs -type f -printf '%s %p\\n' | sort -n | tail -1 | cut -d ' ' -f 2)
         printf 'xyz' | dd of=$pack bs=1 seek=150000 conv=notrunc status=none",
        bench.repository().display()
    ));
    let address = bench.address("");
    let words = ["restore", &address, "--target", "source", "--delete"];
    let ran = bench.run(&[&words[..], &["--json"]].concat());
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(ran.summary()["deleted"], 0, "{ran}");
    assert!(ran.err.contains("nothing is deleted") || ran.text().contains("nothing is deleted"));
    bench.sh("cmp source/report-2026 copy");
    // Without what is lost, the rest is as it was.
    bench.ok(&[&words[..], &["--exclude", "report"]].concat());
    assert!(!is_there(&bench, "source/report-2026"));
}

/// What lies below a mount was in no backup.
#[test]
fn nothing_is_deleted_where_something_was_mounted_at_the_backup_and_is_not_now() {
    if !is_root() {
        return skipped("mounting takes root");
    }
    let bench = Bench::new();
    bench.sh(
        "mkdir source/disk; echo only > source/disk/written-while-unmounted; echo a > source/a",
    );
    bench.mounting_sh(&format!(
        "bale={}; mount -t tmpfs none source/disk; echo d > source/disk/data; mkdir source/disk/sub
         $bale backup source; umount source/disk
         mkdir source/disk/sub; echo only > source/disk/sub/too; echo n > source/new; rc=0
         $bale restore {} --target source --delete || rc=$?
         [ $rc = 3 ]; [ -e source/disk/data ]; [ ! -e source/new ]",
        crate::bench::binary().display(),
        bench.address("")
    ));
    assert!(is_there(&bench, "source/disk/written-while-unmounted"));
    assert!(is_there(&bench, "source/disk/sub/too"));
}

/// What is mounted there is the same directory: neither emptied nor backed up; nor is a home that
/// is mounted elsewhere.
#[test]
fn areas_of_the_repository_and_homes_are_known_wherever_they_are_mounted() {
    if !is_root() {
        return skipped("mounting takes root");
    }
    let bench = Bench::new();
    bench.sh("mkdir source/keys target homely; echo f > source/keys/f");
    bench.backup();
    bench.mounting_sh(&format!(
        "bale={}; repository={}; mount --bind $repository/keys target
         rc=0; $bale restore {} --target target --delete --force || rc=$?
         [ $rc != 0 ]; [ -n \"$(ls $repository/keys)\" ]
         umount target; mount --bind $repository/packs source/keys
         $bale backup source --json | grep '\"left_out\":1'; umount source/keys
         mount --bind home homely; rc=0
         $bale restore {} --target homely --delete || rc=$?; [ $rc = 2 ]
         rc=0; $bale restore latest --to-ext4 $repository/config --force || rc=$?; [ $rc = 2 ]
         $bale check",
        crate::bench::binary().display(),
        bench.repository().display(),
        bench.address("/keys"),
        bench.address(""),
    ));
}

#[test]
fn an_unfinished_run_deletes_nothing() {
    let (bench, unfinished) = interrupted_backup(|bench| {
        bench.sh(
            "cd source; for d in $(seq 40); do mkdir d$d; for f in 1 2 3 4; do head -c 1500000 \
            /dev/urandom > d$d/$f; done; done",
        );
    });
    let address = bench.address_in(unfinished["id"].as_str().unwrap(), "");
    let ran = bench.run(&["restore", &address, "--target", "source", "--delete"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.err.contains("unfinished"), "{ran}");
    assert!(is_there(&bench, "source/d40/4") && is_there(&bench, "source/d9/1"));
}

/// The key that a backup worked with is in no snapshot: whoever restores with the recovery key or a
/// password still has it afterwards.
#[test]
fn the_key_of_the_backup_stays_when_another_secret_opens_the_restore() {
    let bench = Bench::new();
    bench.sh("cd source; mkdir d; echo x > d/x");
    let secrets = TwoSecrets::make(&bench);
    bench.ok(&secrets.with_key(&["backup", "source"]));
    bench.sh("echo y > source/d/y");
    let source = bench.source.display().to_string();
    let address = bench.address("");
    let words = ["restore", &address, "--target", &source, "--delete"];
    bench.ok(&secrets.with_password(&words));
    assert!(!is_there(&bench, "source/d/y"));
    assert!(is_there(&bench, "source/d/key"));
}

/// Backups leave repositories out: one that was made after the snapshot is not in it, and stays.
#[test]
fn another_repository_is_never_deleted() {
    let bench = Bench::new();
    bench.sh("cd source; mkdir d; echo x > d/x");
    bench.backup();
    bench.ok(&[
        "init",
        "-r",
        "source/d/new/other",
        "--new-key-file",
        "made.key",
    ]);
    bench.sh("echo y > source/d/new/y");
    let source = bench.source.display().to_string();
    let address = bench.address("");
    bench.ok(&["restore", &address, "--target", &source, "--delete"]);
    assert!(!is_there(&bench, "source/d/new/y"));
    assert!(is_there(&bench, "source/d/new/other/config"));
}

/// What a restore kept of a damaged file may be all there is of it.
#[test]
fn a_second_restore_spares_what_the_first_could_save() {
    let bench = Bench::new();
    bench.sh("mkdir source/d; echo x > source/d/x");
    bench.backup();
    bench.sh(
        "mkdir -p kept/d kept/gone; echo s > kept/d/x.bale-salvaged; echo s > \
        kept/gone/y.bale-salvaged.2; echo n > kept/d/n.bale-salvaged.old",
    );
    let words = [
        "restore",
        &bench.address(""),
        "--target",
        "kept",
        "--delete",
    ];
    let ran = bench.ok(&[&words[..], &["--json", "-v"]].concat());
    assert_eq!(ran.summary()["deleted"], 1, "{ran}");
    assert_eq!(ran.summary()["spared"], 2, "{ran}");
    let left = ran.of_type("path");
    let left = left.iter().filter(|path| path["act"] == "leave");
    assert_eq!(left.count(), 2, "{ran}");
    for name in ["kept/d/x.bale-salvaged", "kept/gone/y.bale-salvaged.2"] {
        assert!(is_there(&bench, name), "{name}");
    }
    assert!(!is_there(&bench, "kept/d/n.bale-salvaged.old"));
}

/// Also where the snapshot has the directory as a plain one, or a file of its name.
#[test]
fn a_repository_made_in_the_place_of_something_in_the_snapshot_stays() {
    let bench = Bench::new();
    bench.sh("cd source; mkdir d; echo x > d/x; echo f > f");
    bench.backup();
    bench.sh("rm source/d/x source/f");
    for place in ["source/d", "source/f"] {
        bench.ok(&[
            "init",
            "-r",
            place,
            "--new-key-file",
            &format!("{place}.key"),
        ]);
    }
    let source = bench.source.display().to_string();
    let address = bench.address("");
    let ran = bench.run(&["restore", &address, "--target", &source, "--delete"]);
    assert_eq!(ran.code, 3, "the file has no room: {ran}");
    assert!(ran.err.contains("a repository of Bale"), "{ran}");
    for name in ["source/d", "source/f"] {
        for part in ["config", "keys", "packs"] {
            assert!(is_there(&bench, &format!("{name}/{part}")), "{name}: {ran}");
        }
    }
    assert!(!is_there(&bench, "source/d.key"), "{ran}");
}

#[test]
fn areas_of_the_repository_that_are_links_are_in_use_where_they_lead() {
    let bench = Bench::new();
    let repository = bench.path("repository").display().to_string();
    bench.sh("echo word > password; cd source; mkdir d; echo x > d/x");
    let password = bench.path("password").display().to_string();
    let open = ["-r", &repository, "-p", &password];
    bench.ok(&[&open[..], &["init"]].concat());
    bench.ok(&[&open[..], &["backup", "source"]].concat());
    bench.sh(
        "mkdir source/new; mv repository/packs source/new/packs; ln -s ../source/new/packs \
        repository/packs; mv repository/index source/d/index; ln -s ../source/d/index \
        repository/index; echo y > source/new/y",
    );
    let source = bench.source.display().to_string();
    let address = bench.address("");
    let words = ["restore", &address, "--target", &source, "--delete"];
    bench.ok(&[&open[..], &words].concat());
    assert!(!is_there(&bench, "source/new/y"));
    bench.ok(&[&open[..], &["check", "--read-data"]].concat());

    let again = [&open[..], &["backup", "source", "--json"]].concat();
    let again = bench.ok(&again).summary();
    assert_eq!(
        (&again["files"], &again["left_out"]),
        (&1.into(), &2.into()),
        "{again}"
    );
}

#[test]
fn room_for_a_file_is_not_made_on_another_mount() {
    if !is_root() {
        return skipped("mounting takes root");
    }
    let bench = Bench::new();
    bench.sh("cd source; mkdir m; echo f > m/f");
    bench.backup();
    bench.mounting_sh(&format!(
        "mkdir -p target/m other/f; echo precious > other/f/p; mount --bind other target/m
         rc=0; {} restore {} --target target --delete || rc=$?
         [ $rc = 3 ]; [ -e other/f/p ]",
        crate::bench::binary().display(),
        bench.address("")
    ));
    assert!(is_there(&bench, "other/f/p"));
}

/// Its key has other names, and what is bound over a path hides it: the record of the snapshot
/// names what it has no row of.
#[test]
fn other_names_of_the_key_of_the_backup_stay() {
    let bench = Bench::new();
    bench.sh("cd source; mkdir d e; echo x > d/x");
    let secrets = TwoSecrets::make(&bench);
    bench.sh("ln source/d/key source/e/second");
    let made = bench.ok(&secrets.with_key(&["backup", "source", "--json"]));
    assert_eq!(made.summary()["left_out"], 2, "{made}");
    bench.sh("echo y > source/e/y");
    let source = bench.source.display().to_string();
    let address = bench.address("");
    let words = ["restore", &address, "--target", &source, "--delete"];
    let ran = bench.ok(&secrets.with_password(&[&words[..], &["--json", "-v"]].concat()));
    assert!(!is_there(&bench, "source/e/y"));
    assert!(is_there(&bench, "source/e/second"), "{ran}");
    assert_eq!(ran.summary()["spared"], 2, "{ran}");
    let left = ran.of_type("path");
    let left = left.iter().filter(|path| path["act"] == "leave");
    assert_eq!(left.count(), 2, "{ran}");
}

/// The second backup reads nothing but the tables of inodes, and says again what the first one left
/// out.
#[test]
fn other_names_of_the_key_stay_after_a_backup_that_only_found_nothing_changed() {
    if !is_root() || !have("mkfs.ext4") {
        return skipped("mounting takes root");
    }
    let bench = Bench::new();
    let place = |name: &str| bench.path(name).display().to_string();
    bench.mounting_sh(&format!(
        "bale={}; echo word > password; mkfs.ext4 -q disk.img 32M; mkdir m; mount -o loop disk.img m
         mkdir m/d m/e; echo x > m/d/x
         export BALE_REPOSITORY=$place/repository
         $bale init --new-key-file m/d/key
         $bale --key-file m/d/key key add --new-password-file password
         ln m/d/key m/e/second; sync; sleep 1
         for n in 1 2 3; do $bale --key-file m/d/key backup m --scan inode -v >> log 2>&1; done
         echo y > m/e/y
         $bale -p password restore latest:{} --target m --delete --json > restored
         [ ! -e m/e/y ]; [ -e m/d/key ]; [ -e m/e/second ]",
        crate::bench::binary().display(),
        place("m"),
    ));
}

/// A backup of today would leave out what is in it, so that it is in no snapshot at all.
#[test]
fn what_is_in_a_directory_that_was_marked_since_the_backup_stays() {
    let bench = Bench::new();
    bench.sh(
        "cd source; mkdir -p a/cache/deep b/scratch plain; echo x > a/cache/deep/x; echo x > \
        b/scratch/x; echo f > f",
    );
    let marks = ["--exclude-caches", "--exclude-if-present", ".nobackup"];
    bench.ok(&[&["backup", "source"][..], &marks].concat());
    bench.sh(
        "cd source; rm f; mkdir f; printf 'Signature: 8a477f597d28d172789f06886806bc55' | tee \
        a/cache/CACHEDIR.TAG f/CACHEDIR.TAG CACHEDIR.TAG > b/CACHEDIR.TAG.not; touch \
        b/scratch/.nobackup
              for d in a a/cache a/cache/deep b b/scratch plain f; do echo n > $d/new; done",
    );
    let source = bench.source.display().to_string();
    let words = [
        "restore",
        &bench.address(""),
        "--target",
        &source,
        "--delete",
        "--json",
    ];
    let ran = bench.run(&words);
    assert_eq!(ran.code, 3, "the file has no room: {ran}");
    assert!(ran.text().contains("marked since the backup"), "{ran}");
    for name in ["a/cache", "a/cache/deep", "b/scratch", "f"] {
        assert!(
            is_there(&bench, &format!("source/{name}/new")),
            "{name}: {ran}"
        );
    }
    // A source is never left out, whatever is in it.
    for name in ["a/new", "b/new", "plain/new", "CACHEDIR.TAG"] {
        assert!(
            !is_there(&bench, &format!("source/{name}")),
            "{name}: {ran}"
        );
    }
    assert_eq!(ran.summary()["spared"], 3, "{ran}");
}

/// Of today's size alone nobody could know it.
#[test]
fn what_was_left_out_for_its_size_stays_when_it_is_small_by_now() {
    let bench = Bench::new();
    bench.sh("cd source; mkdir logs; echo f > logs/f; head -c 5000 /dev/zero > logs/log");
    let words = ["backup", "source", "--exclude-larger-than", "4K"];
    bench.ok(&words);
    bench.sh("cd source; truncate -s 10 logs/log; echo n > logs/new");
    let source = bench.source.display().to_string();
    let address = bench.address("");
    let restore = ["restore", &address, "--target", &source, "--delete"];
    let ran = bench.ok(&[&restore[..], &["--json"]].concat());
    assert!(is_there(&bench, "source/logs/log"), "{ran}");
    assert!(!is_there(&bench, "source/logs/new"), "{ran}");
    assert_eq!(ran.summary()["spared"], 1, "{ran}");
}

#[test]
fn files_stay_that_the_snapshot_does_not_have_if_more_were_left_out_for_their_size_than_it_names() {
    let bench = Bench::new();
    bench.sh(
        "cd source; echo f > f; mkdir d; for n in $(seq 1001 2001); do truncate -s 5000 d/$n; done",
    );
    bench.ok(&["backup", "source", "--exclude-larger-than", "4K"]);
    bench.sh("cd source; truncate -s 10 d/2001 d/1001; echo n > d/new; mkdir -p new/empty; rm f");
    let source = bench.source.display().to_string();
    let address = bench.address("");
    let restore = ["restore", &address, "--target", &source, "--delete"];
    let ran = bench.ok(&[&restore[..], &["--json"]].concat());
    for name in ["d/1001", "d/2001", "d/new", "f"] {
        assert!(is_there(&bench, &format!("source/{name}")), "{name}: {ran}");
    }
    assert!(!is_there(&bench, "source/new"), "a directory goes: {ran}");
    assert_eq!(ran.summary()["spared"], 1002, "{ran}");
    assert!(ran.text().contains("more files than its record"), "{ran}");
}
