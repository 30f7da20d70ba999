//! Where `/dev` has no node of the device. Needs root.
//!
//! A program of its own: its mount namespace begins with a copy of every mount, which would hold
//! the file systems of tests beside it after they unmounted them.

#[path = "live/mounts.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod mounts;

use bale_source::scan::live::live_target;
use mounts::{Mounted, can_mount, can_run};
use std::path::Path;
use std::process::Command;

/// Mount point of a process that has no device nodes.
const NO_NODES: &str = "BALE_TEST_NO_NODES";

/// Not a test: looks for a target where `/dev` is empty.
#[test]
fn process_without_nodes() {
    let Ok(path) = std::env::var(NO_NODES) else {
        return;
    };
    let (path, scratch) = path.split_once(':').unwrap();
    let scratch = Path::new(scratch);
    let target = live_target(Path::new(path), scratch).unwrap();
    assert!(target.device_path().starts_with(scratch), "{target:?}");
    assert!(std::fs::File::open(target.device_path()).is_ok());
    drop(target);
    assert_eq!(std::fs::read_dir(scratch).unwrap().count(), 0);
}

#[test]
fn where_dev_has_no_node_one_is_made_and_removed() {
    if !can_mount() || !can_run(&["unshare"]) {
        return;
    }
    let mounted = Mounted::new("ext4", 64);
    let scratch = mounted.beside("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let script = "mount -t tmpfs none /dev && exec \"$0\" --exact process_without_nodes";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(
            NO_NODES,
            format!("{}:{}", mounted.path().display(), scratch.display()),
        )
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{output:?}"
    );
}
