//! Kills and full disks.

use crate::model::*;
use bale_pipeline::monitor::{Monitor, Problem};
use bale_restore::RestoreError;
use std::path::Path;
use std::process::{Command, Stdio};

const VICTIM: &str = "BALE_RESTORE_VICTIM";

fn tree() -> Model {
    let mut model = everyday(4000);
    for number in 0..12 {
        let (a, b) = (noise(number, 700_000), noise(number + 100, 900_000));
        model.large(
            format!("large{number}"),
            &[(700_000, Some(&a)), (5000, None), (900_000, Some(&b))],
        );
    }
    model.close();
    model
}

/// Restores in a process that is killed after a while, again and again, then once to the end.
#[test]
fn a_restore_killed_at_any_moment_is_finished_by_the_next() {
    let test = "faults::a_restore_killed_at_any_moment_is_finished_by_the_next";
    if let Some(target) = std::env::var_os(VICTIM) {
        let model = tree();
        println!("begun");
        let _killed = run(&model, Path::new(&target), &options());
        return;
    }
    let mut model = tree();
    for round in 0..8u64 {
        let place = scratch();
        let target = place.path().join("t");
        for attempt in 0..2 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", test, "--nocapture"])
                .env(VICTIM, &target)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines =
                std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
            while lines
                .next()
                .is_some_and(|line| !line.unwrap().contains("begun"))
            {}
            std::thread::sleep(std::time::Duration::from_millis(
                2 + round * 9 + attempt * 17,
            ));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        no_half_file_is_readable(&model, &target);
        run_exactly(&mut model, &target, &options());
    }
}

/// A file that others may read is whole.
fn no_half_file_is_readable(model: &Model, target: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for (path, content) in &model.contents {
        let place = target.join(std::str::from_utf8(path).unwrap());
        if let Ok(stat) = place.symlink_metadata()
            && stat.permissions().mode() & 0o777 != 0
        {
            assert_eq!(
                std::fs::read(&place).unwrap().len(),
                content.len(),
                "{place:?}"
            );
        }
    }
}

#[test]
fn sixty_four_descriptors_suffice() {
    const MARK: &str = "BALE_RESTORE_FEW_DESCRIPTORS";
    if std::env::var_os(MARK).is_some() {
        let place = scratch();
        run_exactly(&mut tree(), &place.path().join("t"), &options());
        return;
    }
    let status = Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "faults::sixty_four_descriptors_suffice"])
        .env(MARK, "1")
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn a_monitor_may_end_it_and_the_next_goes_on() {
    struct Soon(std::sync::atomic::AtomicU64, Watch);
    impl Monitor for Soon {
        fn problem(&self, problem: &Problem) {
            self.1.problem(problem);
        }
        fn interrupted(&self) -> bool {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 12
        }
    }
    let place = scratch();
    let target = place.path().join("t");
    let mut model = tree();
    let soon = Soon(Default::default(), Watch::default());
    let ended = bale_restore::restore(&model, &model, &space(), &target, &options(), &soon);
    assert!(matches!(ended, Err(RestoreError::Stopped)));
    assert_eq!(soon.1.problems(), []);
    run_exactly(&mut model, &target, &options());
}

/// A small file system on a loop device.
struct Small {
    place: tempfile::TempDir,
}

impl Small {
    fn mount(test: &str, mib: u64) -> Option<Small> {
        let place = scratch();
        let image = place.path().join("image");
        std::fs::File::create(&image)
            .unwrap()
            .set_len(mib << 20)
            .unwrap();
        std::fs::create_dir(place.path().join("m")).unwrap();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0"])
            .arg(&image)
            .status();
        if !made.is_ok_and(|status| status.success()) {
            skipped(test, "mkfs.ext4 is missing");
            return None;
        }
        let mounted = Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(place.path().join("m"))
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            skipped(test, "loop mounts are not possible");
            return None;
        }
        Some(Small { place })
    }

    fn target(&self) -> std::path::PathBuf {
        self.place.path().join("m")
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount")
            .arg(self.place.path().join("m"))
            .status();
    }
}

#[test]
fn a_full_disk_is_one_clear_error_and_room_made_later_suffices() {
    let test = "a_full_disk_is_one_clear_error_and_room_made_later_suffices";
    if !root_or_skip(test) {
        return;
    }
    let Some(small) = Small::mount(test, 64) else {
        return;
    };
    let mut model = tree();
    // Something else takes the room.
    let filler = small.target().join("filler");
    std::fs::write(&filler, vec![1; 34 << 20]).unwrap();
    let (report, watch) = run(&model, &small.target(), &options());
    match report {
        Err(RestoreError::Target { source, .. }) => {
            assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(watch.problems(), []);
    std::fs::remove_file(&filler).unwrap();
    run_exactly(&mut model, &small.target(), &options());
}

#[test]
fn a_plan_that_cannot_fit_a_fresh_target_is_refused_at_once() {
    let test = "a_plan_that_cannot_fit_a_fresh_target_is_refused_at_once";
    if !root_or_skip(test) {
        return;
    }
    let Some(small) = Small::mount(test, 16) else {
        return;
    };
    let model = tree();
    let (report, _watch) = run(&model, &small.target(), &options());
    assert!(
        matches!(report, Err(RestoreError::NoSpace { .. })),
        "{report:?}"
    );
    assert_eq!(std::fs::read_dir(small.target()).unwrap().count(), 1);
}
