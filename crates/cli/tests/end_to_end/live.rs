//! Storage snapshots and mounted file systems, through the binary.

use super::bench::{Bench, binary, is_root, skipped};

#[test]
fn an_interrupt_while_a_snapshot_is_held_ends_with_its_release() {
    let bench = Bench::new();
    bench.write("source/a", "a");
    bench.backup();
    let command = format!(
        "trap 'echo released >>{}' EXIT; echo directory $BALE_SOURCE; kill -INT $PPID; sleep 1; \
         echo ready; cat >/dev/null",
        bench.path("log").display()
    );
    let ran = bench.run(&[
        "backup",
        "source",
        "--force",
        "--snapshot-command",
        &command,
    ]);
    assert_eq!(ran.code, 130, "{ran}");
    let log = std::fs::read_to_string(bench.path("log")).unwrap();
    assert_eq!(log, "released\n");
}

/// Who was writing when it was taken cannot be asked of a snapshot: what changed within a minute
/// before is in doubt.
#[test]
fn what_changed_shortly_before_a_snapshot_is_read_again_by_the_next_backup() {
    let bench = Bench::new();
    bench.write("source/a", "content");
    // A walk would take it for settled.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let command = "echo directory $BALE_SOURCE; echo ready; cat >/dev/null";
    let words = ["backup", "source", "--json", "--snapshot-command", command];
    let read = || bench.ok(&words).summary()["bytes_read"].clone();
    assert_eq!([read(), read()], [7, 7]);
}

#[test]
fn a_file_system_is_frozen_also_by_a_program_that_was_deleted_meanwhile() {
    let bench = Bench::new();
    if !is_root() {
        return skipped("mounting needs root");
    }
    bench.mounting_sh(&format!(
        "truncate -s 64M image; mkfs.ext4 -q image; mkdir disk; mkfifo list; cp {} own
        mount -o loop image disk; echo content >disk/file
        ./own backup --scan inode --files-from - <list 2>told &
        exec 3>list
        until readlink /proc/$!/exe | grep -q own; do sleep 0.1; done
        rm own; echo $PWD/disk >&3; exec 3>&-; wait $!
        umount disk",
        binary().display()
    ));
    let told = std::fs::read_to_string(bench.path("told")).unwrap();
    assert!(
        told.contains("inode scan of") && !told.contains("not frozen"),
        "{told}"
    );
}

#[test]
fn another_part_of_a_file_system_at_the_same_place_is_not_taken_for_unchanged() {
    let bench = Bench::new();
    if !is_root() {
        return skipped("mounting needs root");
    }
    // What mkfs makes has times of whole seconds, which settle after two.
    bench.mounting_sh(&format!(
        "truncate -s 64M image; mkfs.ext4 -q image; mkdir disk place
        mount -o loop image disk; mkdir disk/one disk/two; echo 1 >disk/one/a; echo 2 >disk/two/b; \
        sync; sleep 2.1
        mount --bind disk/one place
        for i in 1 2 3; do {bale} backup --scan inode place 2>told.$i; done
        umount place; mount --bind disk/two place
        {bale} backup --scan inode place
        umount place disk",
        bale = binary().display()
    ));
    let told = std::fs::read_to_string(bench.path("told.3")).unwrap();
    assert!(told.contains("no inode was changed"), "{told}");
    let listed = bench.ok(&["ls", "-R", "latest"]).text();
    assert!(
        listed.contains("place/b") && !listed.contains("place/a"),
        "{listed}"
    );
}

/// It was called another file system, and is a directory of the same one.
#[test]
fn a_bind_mount_below_a_source_is_not_called_another_file_system() {
    let bench = Bench::new();
    if !is_root() {
        return skipped("mounting needs root");
    }
    bench.mounting_sh(&format!(
        "truncate -s 64M image; mkfs.ext4 -q image; mkdir disk
        mount -o loop image disk; mkdir disk/a disk/b; mount --bind disk/a disk/b
        ! {bale} scan --scan inode disk 2>told
        umount disk/b disk",
        bale = binary().display()
    ));
    let told = std::fs::read_to_string(bench.path("told")).unwrap();
    assert!(
        told.contains("disk/b") && told.contains("another directory of this one"),
        "{told}"
    );
    assert!(!told.contains("another file system"), "{told}");
}

#[test]
fn every_way_of_naming_sources_has_an_example_in_the_help() {
    let bench = Bench::new();
    let help = bench.ok(&["backup", "--help"]).text();
    let (_, examples) = help.split_once("Examples:").unwrap();
    for option in [
        "--files-from ",
        "--files-from0",
        "--exclude-file",
        "--exclude-larger-than",
        "--snapshot-command",
        "-x ",
    ] {
        assert!(examples.contains(option), "{option}: {examples}");
    }
}
