//! What was so when a scan began and need not be so when it ends, and what looks like rest and is
//! none.

use super::bench::binary;
use super::walking::{Beside, COUNTING, Unmount, are_of_one_moment, await_first_pack, bench_with};
use std::process::Stdio;

/// XFS: who reads a device does not see what is written meanwhile to what was read-only.
#[test]
fn a_file_system_that_becomes_writable_while_it_is_read_is_read_again() {
    let Some(bench) = bench_with(&["mkfs.xfs"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.sh(
        "truncate -s 400M image; mkfs.xfs -q image; mkdir m; mount -o loop image m
         head -c 150000000 /dev/urandom >m/large; mount -o remount,ro m",
    );
    bench.ok(&["init"]);
    let mut command = bench.command();
    let command = command.args(["backup", "--scan", "inode", "m", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    await_first_pack(&bench, &mut child);
    bench.sh(&format!(
        "kill -STOP {pid}; mount -o remount,rw m
         head -c 150000000 /dev/zero | tr '\\0' N | dd of=m/large conv=notrunc,fsync status=none
         kill -CONT {pid}",
        pid = child.id()
    ));
    let ran = bale_testkit::Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    let address = format!("latest:{}", bench.path("m/large").display());
    let dumped = bench.ok(&["dump", &address]).out;
    assert!(dumped.iter().all(|byte| *byte == b'N'), "{ran}");
}

/// The kernel ends the log of an XFS where nothing was changed for a while; what was written into a
/// file may be in memory for longer.
#[test]
fn a_copy_of_an_xfs_whose_log_is_at_rest_is_not_at_rest() {
    let Some(bench) = bench_with(&["mkfs.xfs"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.ok(&["init"]);
    let often = "/proc/sys/fs/xfs/xfssyncd_centisecs";
    // In memory it may be for thirty seconds.
    bench.sh(&format!(
        "before=$(cat {often}); trap 'echo $before >{often}' EXIT; echo 100 >{often}
         truncate -s 400M image; mkfs.xfs -q image; mkdir m; mount -o loop image m
         head -c 100000 /dev/zero | tr '\\0' O >m/file; sync; head -c 100000 /dev/zero | tr '\\0' N | dd of=m/file conv=notrunc status=none
         for second in $(seq 20); do
             sleep 1; cp --sparse=always image copy; code=0
             {bale} backup --scan inode copy || code=$?
             test $code = 1 || break
         done
         test $code != 1",
        bale = binary().display(),
    ));
    bench.sh("sync; umount m; cp --sparse=always image copy");
    bench.ok(&["backup", "--scan", "inode", "copy"]);
    let address = format!("latest:{}/file", bench.path("copy").display());
    let dumped = bench.ok(&["dump", &address]).text();
    assert!(dumped.bytes().all(|byte| byte == b'N') && dumped.len() == 100_000);
}

/// A store through a map leaves no stamp behind.
#[test]
fn an_image_that_is_written_through_a_map_is_of_one_moment_or_named() {
    let Some(bench) = bench_with(&["mkfs.ext4", "python3"]) else {
        return;
    };
    let _unmount = Unmount(&bench);
    bench.ok(&["init"]);
    bench.sh("mkdir disk memory; mount -t tmpfs tmpfs memory
         truncate -s 128M a; mkfs.ext4 -q a; mount -o loop a disk");
    for (place, how) in [("memory", "map"), ("disk", "map"), ("disk", "write")] {
        let path = bench.path(place).join("image.raw");
        let words = [path.as_os_str(), how.as_ref(), "33554432".as_ref()];
        let writer = Beside::start(COUNTING, &words);
        let ran = bench.run(&["backup".as_ref(), "--image".as_ref(), path.as_os_str()]);
        drop(writer);
        let target = bench.path(&format!("{place}-{how}"));
        let restored = bench.run(&[
            "restore".as_ref(),
            "latest".as_ref(),
            "--target".as_ref(),
            target.as_os_str(),
        ]);
        assert!(matches!(restored.code, 0 | 3), "{place} {how}: {restored}");
        let is_still = || are_of_one_moment(&std::fs::read(&target).unwrap());
        let is_named = ran.code == 3 && ran.err.contains("image.raw");
        assert!(
            is_named || ran.code == 0 && is_still(),
            "{place} {how}: {ran}"
        );
    }
}
