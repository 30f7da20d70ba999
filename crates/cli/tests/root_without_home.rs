//! Where root has no home directory, the cache is the system's. Needs root.
//!
//! A program of its own: its mount namespace begins with a copy of every mount, which would hold
//! the file systems of tests beside it after they unmounted them.

#[path = "end_to_end/bench.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod bench;

use bench::{Bench, have, is_root, skipped};

/// Issue 13, 17: a unit of systemd has no HOME.
#[test]
fn root_without_a_home_directory_uses_the_cache_of_the_system() {
    if !is_root() || !have("unshare") {
        return skipped("mounting needs root");
    }
    let bench = Bench::new();
    bench.write("source/file", "content");
    bench.write("pw", "secret");
    bench.ok(&["init", "-r", "repo", "-p", "pw"]);
    bench.mounting_sh(&format!(
        "unset HOME; mkdir cache; mkdir -p /var/cache/bale
        unshare -m sh -euc 'mount --bind cache /var/cache/bale; {} -r repo -p pw backup source'",
        bench::binary().display()
    ));
    assert!(std::fs::read_dir(bench.path("cache")).unwrap().count() > 0);
}

/// Issue 17: what a unit of `bale schedule install` starts, in the environment that systemd gives.
#[test]
fn root_without_a_home_directory_runs_profiles_and_records_it_for_the_system() {
    if !is_root() || !have("unshare") {
        return skipped("mounting needs root");
    }
    let bench = Bench::new();
    bench.write("source/file", "content");
    bench.write("pw", "secret");
    bench.ok(&["init", "-r", "repo", "-p", "pw"]);
    let path = |name: &str| bench.path(name).display().to_string();
    bench.write(
        "bale.toml",
        format!(
            "[profile.home]\nsources = {:?}\nrepository = {:?}\npassword-file = {:?}\n",
            path("source"),
            path("repo"),
            path("pw")
        ),
    );
    bench.mounting_sh(&format!(
        "unset HOME; mkdir cache state; mkdir -p /var/cache/bale /var/lib/bale
        unshare -m sh -euc 'mount --bind cache /var/cache/bale
            mount --bind state /var/lib/bale
            cd /; env -i PATH=\"$PATH\" {} run --profiles={} home'",
        bench::binary().display(),
        path("bale.toml")
    ));
    assert!(bench.path("state/runs/home.json").exists());
    assert!(std::fs::read_dir(bench.path("cache")).unwrap().count() > 0);
}
