//! Images whose journal was not replayed: our replay in memory against the kernel's replay of a
//! copy.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bale_fsimage::ext4::{Ext4, Ext4Error, JournalDamage};
use rustix::fs::{XattrFlags, lsetxattr};

use crate::compare::assert_same;
use crate::fixture::pattern;
use crate::image::{Image, can_run, run};
use crate::scan::scan;

const PROGRAMS: [&str; 5] = ["mke2fs", "mount", "umount", "cp", "debugfs"];
/// Enough for the log of the small journals to go round.
const ROUNDS: u64 = 12;
const JOURNAL_MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// Changes of every kind, so that later transactions overwrite and revoke what earlier ones wrote.
fn churn(root: &Path, round: u64) {
    let dir = root.join(format!("dir{}", round % 5));
    fs::create_dir_all(&dir).unwrap();
    for i in 0..40 {
        let file = dir.join(format!("file{i}-{round}"));
        fs::write(&file, pattern(round * 100 + i, (i * 700) as usize)).unwrap();
        lsetxattr(
            &file,
            "user.round",
            &pattern(round, 300),
            XattrFlags::empty(),
        )
        .unwrap();
    }
    // Freed directory and extent blocks come back as file data: that is what revocations are for.
    if round >= 2 {
        let old = root.join(format!("dir{}", (round - 2) % 5));
        let _ = fs::rename(&old, root.join(format!("renamed{round}")));
        let _ = fs::remove_dir_all(root.join(format!("renamed{}", round - 1)));
    }
    let fragments = fs::File::create(root.join(format!("fragments{round}"))).unwrap();
    for i in 0..60 {
        fragments.write_all_at(&pattern(i, 500), i * 9000).unwrap();
    }
    // Journalled data that looks like a journal block must be escaped.
    fs::write(
        root.join(format!("magic{round}")),
        JOURNAL_MAGIC.repeat(5000),
    )
    .unwrap();
    if round > 0 {
        fs::remove_file(root.join(format!("fragments{}", round - 1))).unwrap();
    }
}

/// Copies of a mounted image, after a sync and without one.
fn replays_as_the_kernel_does(test: &str, mke2fs: &str, options: &str) {
    if !can_run(test, &PROGRAMS) {
        return;
    }
    let image = Image::make(64, mke2fs);
    let mut copies = Vec::new();
    {
        let mount = image.mount(options);
        for round in 0..ROUNDS {
            churn(&mount.path, round);
            match round % 4 {
                0 => mount.sync(),
                // A commit without writing anything back.
                1 => fs::File::open(mount.path.join(format!("magic{round}")))
                    .unwrap()
                    .sync_all()
                    .unwrap(),
                _ => continue,
            }
            copies.push(image.still_copy());
        }
        let last = mount.path.join(format!("magic{}", ROUNDS - 1));
        let _held_open = fs::File::open(&last).unwrap();
        fs::remove_file(&last).unwrap();
        mount.sync();
        copies.push(image.still_copy());
    }
    let mut replaced_blocks = 0;
    for copy in copies {
        assert!(
            Ext4::open(copy.source()).unwrap().needs_recovery().unwrap(),
            "it was mounted"
        );
        replaced_blocks += Ext4::replay(copy.source())
            .unwrap()
            .unwrap()
            .replaced()
            .count();
        same_after_replay(&copy);
    }
    assert!(
        replaced_blocks > 100,
        "only {replaced_blocks} blocks came from the journal"
    );
}

/// Replays `image` in memory, lets the kernel replay a copy of it, and compares the two. The kernel
/// cannot replay through a loop device set up for a read-only mount.
fn same_after_replay(image: &Image) {
    let for_kernel = image.copy();
    let fs = Ext4::open_replayed(image.source()).unwrap();
    assert!(!fs.needs_recovery().unwrap());
    assert_same(&scan(fs), &for_kernel.mount("noatime").path);
}

macro_rules! replays_as_the_kernel_does {
    ($($name:ident: $mke2fs:expr, $options:expr;)*) => { $(
        #[test]
        fn $name() {
            replays_as_the_kernel_does(stringify!($name), $mke2fs, $options);
        }
    )* };
}

replays_as_the_kernel_does! {
    with_checksums: "-t ext4", "noatime";
    with_a_small_journal_that_wraps: "-t ext4 -b 1024 -J size=1", "noatime";
    with_a_small_journal_without_checksums: "-t ext4 -b 1024 -J size=1 -O \
        ^metadata_csum,^64bit", "noatime";
    with_version_1_checksums: "-t ext4 -O ^metadata_csum,^64bit", "noatime,journal_checksum";
    with_data_in_the_journal: "-t ext4 -b 1024 -J size=16", "noatime,data=journal";
    with_data_in_the_journal_without_checksums: "-t ext4 -J size=16 -O \
        ^metadata_csum", "noatime,data=journal";
    ext3: "-t ext3 -b 1024", "noatime";
    with_an_orphan_file: "-t ext4 -O orphan_file", "noatime";
}

/// A log of 1024 blocks and 50 copies of it: in some of them the log begins near its end and goes
/// on at its start.
#[test]
fn logs_that_go_round_their_end_replay_as_the_kernel_does() {
    if !can_run(
        "logs_that_go_round_their_end_replay_as_the_kernel_does",
        &PROGRAMS,
    ) {
        return;
    }
    let image = Image::make(16, "-t ext4 -b 1024 -J size=1");
    let mut copies = Vec::new();
    {
        let mount = image.mount("noatime");
        for round in 0..50 {
            for i in 0..20 {
                let dir = mount.path.join(format!("{round}-{i}"));
                fs::create_dir(&dir).unwrap();
                fs::write(dir.join("file"), pattern(round, 300)).unwrap();
            }
            if round > 3 {
                (0..20).for_each(|i| {
                    fs::remove_dir_all(mount.path.join(format!("{}-{i}", round - 3))).unwrap()
                });
            }
            fs::File::open(mount.path.join(format!("{round}-0/file")))
                .unwrap()
                .sync_all()
                .unwrap();
            copies.push(image.still_copy());
        }
    }
    copies.iter().for_each(same_after_replay);
}

/// Transactions written by debugfs, which can also write the checksums of version 2 that no current
/// kernel writes.
#[test]
fn crafted_transactions_of_every_version_replay_as_the_kernel_does() {
    if !can_run(
        "crafted_transactions_of_every_version_replay_as_the_kernel_does",
        &PROGRAMS,
    ) {
        return;
    }
    let versions = [
        ("-t ext4 -b 1024 -O ^64bit", "jo -c -v 2"),
        ("-t ext4 -b 1024 -O 64bit", "jo -c -v 2"),
        ("-t ext4 -b 1024 -O ^64bit", "jo -c -v 3"),
        ("-t ext4 -b 1024 -O 64bit", "jo -c -v 3"),
        ("-t ext4 -b 1024 -O ^64bit,^metadata_csum", "jo"),
        ("-t ext4 -b 1024 -O 64bit,^metadata_csum", "jo"),
    ];
    for (mke2fs, open_journal) in versions {
        let image = Image::make(16, mke2fs);
        fs::write(image.mount("noatime").path.join("file"), vec![1; 8 * 1024]).unwrap();
        let seen = scan(Ext4::open(image.source()).unwrap());
        let first = seen.fs.extents(&seen.at("file").raw()).unwrap()[0].device_offset / 1024;
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, content).unwrap();
            path.to_str().unwrap().to_owned()
        };
        // Blocks 0..3 become 2s; 1..2 become 3s later; block 2's first write is revoked; block 5
        // looks like a journal block.
        let (twos, threes) = (write("twos", &[2; 3 * 1024]), write("threes", &[3; 1024]));
        let magic = write("magic", &[&JOURNAL_MAGIC[..], &[4; 1020]].concat());
        let commands = format!(
            "{open_journal}\njw -b {first},{},{} {twos}\njw -b {} {threes}\njw -r {}\njw -b {} \
             {magic}\njc\n",
            first + 1,
            first + 2,
            first + 1,
            first + 2,
            first + 5
        );
        let script = write("script", commands.as_bytes());
        run("debugfs", &["-w", "-f", &script, image.name()]);
        let fs = Ext4::open_replayed(image.source()).unwrap();
        let replayed = scan(fs);
        let file = replayed.at("file");
        let content = replayed.fs.read_content(&file.raw(), 1 << 20).unwrap();
        let firsts: Vec<u8> = content.chunks(1024).map(|block| block[1023]).collect();
        assert_eq!(firsts, [2, 3, 1, 1, 1, 4, 1, 1], "{mke2fs} {open_journal}");
        assert_eq!(content[5 * 1024..5 * 1024 + 4], JOURNAL_MAGIC);
        same_after_replay(&image);
    }
}

/// Whatever single byte of the log is wrong: we refuse, or show exactly what the kernel shows;
/// where only the kernel refuses, the damage lies in a block that a later transaction replaced, and
/// we show what an intact log shows.
#[test]
fn damaged_journals_are_never_silently_stale() {
    if !can_run("damaged_journals_are_never_silently_stale", &PROGRAMS) {
        return;
    }
    let made = Image::make(16, "-t ext4 -b 1024 -J size=1");
    let image = {
        let mount = made.mount("noatime");
        for round in 0..3 {
            for i in 0..5 {
                fs::write(
                    mount.path.join(format!("file{round}-{i}")),
                    pattern(round, 3000),
                )
                .unwrap();
            }
            mount.sync();
        }
        made.still_copy()
    };
    let (mut refused, mut replayed) = (0, 0);
    let intact = scan(Ext4::open_replayed(image.source()).unwrap());
    let whole = fs::read(&image.path).unwrap();
    let magics = (0..whole.len())
        .step_by(1024)
        .filter(|at| whole[*at..].starts_with(&JOURNAL_MAGIC));
    for (i, at) in magics
        .flat_map(|at| [at + 8, at + 20, at + 1024 + 100])
        .enumerate()
    {
        let copy = image.copy();
        let file = fs::OpenOptions::new().write(true).open(&copy.path).unwrap();
        file.write_all_at(&[whole[at] ^ (1 << (i % 8))], at as u64)
            .unwrap();
        match Ext4::open_replayed(copy.source()) {
            Err(Ext4Error::Journal { .. }) => refused += 1,
            Err(other) => panic!("byte {at}: {other:?}"),
            Ok(fs) => {
                replayed += 1;
                let ours = scan(fs);
                match copy.copy().try_mount("noatime") {
                    Ok(mount) => assert_same(&ours, &mount.path),
                    Err(_) => assert!(
                        ours.paths == intact.paths && ours.problems.is_empty(),
                        "byte {at}"
                    ),
                }
            }
        }
    }
    assert!(
        refused > 0 && replayed > 0,
        "{refused} refused, {replayed} replayed"
    );
}

#[test]
fn fast_commits_and_external_journals_are_refused() {
    if !can_run("fast_commits_and_external_journals_are_refused", &PROGRAMS) {
        return;
    }
    let refusal = |image: &Image| match Ext4::open_replayed(image.source()) {
        Err(Ext4Error::Journal { source }) => source,
        other => panic!("{:?}", other.err()),
    };
    let image = Image::make(32, "-t ext4 -O fast_commit");
    let copy = {
        let mount = image.mount("noatime");
        fs::write(mount.path.join("file"), "x").unwrap();
        fs::File::open(mount.path.join("file"))
            .unwrap()
            .sync_all()
            .unwrap();
        image.still_copy()
    };
    assert_eq!(refusal(&copy), JournalDamage::FastCommit);
    // Unmounted there is nothing to replay, and nothing to refuse.
    Ext4::open_replayed(image.source()).unwrap();
    let external = Image::make(32, "-t ext4");
    let features = "set_super_value feature_incompat 0x2c6";
    run(
        "debugfs",
        &[
            "-w",
            "-R",
            "set_super_value journal_inum 0",
            external.name(),
        ],
    );
    run("debugfs", &["-w", "-R", features, external.name()]);
    assert_eq!(refusal(&external), JournalDamage::External);
}
