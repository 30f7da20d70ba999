//! A freezer may die anywhere: the file system is thawed all the same.

use super::mounts::*;
use bale_source::scan::freeze::{BarrierError, BarrierKind, FreezeLimits, Freezer};
use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

const STEPS: [&str; 5] = ["Announced", "Frozen", "TimeRead", "Thawed", "Finished"];

/// Mount point and mark of a process that makes a barrier, to be killed.
const DRIVER: &str = "BALE_TEST_FREEZER_DRIVER";

fn signal(process_id: u32, signal: Signal) {
    let process_id = Pid::from_raw(process_id as i32).unwrap();
    kill_process(process_id, signal).unwrap();
}

fn limits(frozen_max_ms: u64) -> FreezeLimits {
    FreezeLimits {
        frozen_max: Duration::from_millis(frozen_max_ms),
        ..FreezeLimits::default()
    }
}

#[test]
fn a_freezer_killed_at_any_step_leaves_a_thawed_file_system() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 512);
        for step in STEPS {
            // Longer than the patience of this test: it is the death that is noticed.
            let mut freezer = mounted.freezer(&format!("kill:{step}"), limits(600_000));
            let error = freezer.barrier(BarrierKind::Freeze).unwrap_err();
            assert!(
                matches!(error, BarrierError::Gone),
                "{kind} {step}: {error:?}"
            );
            mounted.assert_thawed(step);
            assert!(!mounted.thaw(), "{kind}: frozen after a kill at {step}");
            let again = freezer.barrier(BarrierKind::Freeze).unwrap_err();
            assert!(
                matches!(again, BarrierError::Gone),
                "{kind} {step}: {again:?}"
            );
        }
    }
}

#[test]
fn a_freezer_that_stops_while_frozen_is_thawed_in_time_and_its_barrier_does_not_count() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 512);
        for step in ["Frozen", "TimeRead"] {
            let mut freezer = mounted.freezer(&format!("stop:{step}"), limits(300));
            let [process_id, _] = freezer.process_ids();
            std::thread::scope(|scope| {
                let barrier = scope.spawn(|| freezer.barrier(BarrierKind::Freeze));
                let stat = format!("/proc/{process_id}/stat");
                until("it stopped", || {
                    std::fs::read_to_string(&stat).unwrap().contains(") T ")
                });
                mounted.assert_thawed(step);
                let written = std::fs::metadata(mounted.path().join("probe")).unwrap();
                let written = written.modified().unwrap();
                signal(process_id, Signal::CONT);
                let barrier = barrier.join().unwrap().unwrap();
                let t0 = bale_pipeline::clock::moment_of(barrier.t0_fine);
                assert!(
                    written < t0,
                    "{kind} {step}: the barrier of the ended freeze was used"
                );
            });
        }
    }
}

#[test]
fn when_freezer_and_watchdog_are_both_killed_the_caller_thaws() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 512);
        let mark = mounted.beside("mark");
        let fault = format!("stop:Frozen:{}", mark.display());
        let mut freezer = mounted.freezer(&fault, limits(600_000));
        let [freezer_id, watchdog_id] = freezer.process_ids();
        std::thread::scope(|scope| {
            let barrier = scope.spawn(|| freezer.barrier(BarrierKind::Freeze));
            until("it is frozen", || mark.exists());
            signal(watchdog_id, Signal::KILL);
            signal(freezer_id, Signal::KILL);
            let error = barrier.join().unwrap().unwrap_err();
            assert!(matches!(error, BarrierError::Gone), "{error:?}");
        });
        mounted.assert_thawed("both killed");
    }
}

#[test]
fn without_its_watchdog_a_freezer_freezes_nothing() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new("ext4", 64);
    let mark = mounted.beside("mark");
    let fault = format!("pause:Announced:{}", mark.display());
    let mut freezer = mounted.freezer(&fault, limits(2000));
    signal(freezer.process_ids()[1], Signal::KILL);
    let error = freezer.barrier(BarrierKind::Freeze).unwrap_err();
    assert!(matches!(error, BarrierError::Gone), "{error:?}");
    assert!(!mark.exists());
    mounted.assert_thawed("no watchdog");
}

/// Not a test: a process that makes a barrier.
#[test]
fn driver_process() {
    let Ok(driver) = std::env::var(DRIVER) else {
        return;
    };
    let (mount, mark) = driver.split_once(':').unwrap();
    let mount = std::fs::File::open(mount).unwrap();
    let command = freezer_command(&format!("pause:Frozen:{mark}"));
    let mut freezer = Freezer::start(&command, mount.as_fd(), limits(600_000)).unwrap();
    let ids = freezer.process_ids();
    std::fs::write(format!("{mark}.ids"), format!("{} {}", ids[0], ids[1])).unwrap();
    let _ = freezer.barrier(BarrierKind::Freeze);
}

#[test]
fn a_killed_backup_leaves_a_thawed_file_system_and_no_processes() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 512);
        let mark = mounted.beside("mark");
        let mut driver = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "freezer_faults::driver_process"])
            .env(
                DRIVER,
                format!("{}:{}", mounted.path().display(), mark.display()),
            )
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("it is frozen", || mark.exists());
        driver.kill().unwrap();
        driver.wait().unwrap();
        mounted.assert_thawed("killed backup");
        let ids = std::fs::read_to_string(mounted.beside("mark.ids")).unwrap();
        for id in ids.split(' ') {
            let id = id.parse().unwrap();
            until("the processes have ended", || !lives(id));
        }
    }
}

#[test]
fn requests_to_stop_do_nothing_to_a_freezer_and_dropping_it_ends_both_processes() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new("ext4", 64);
    let mut freezer = mounted.freezer("", limits(2000));
    let ids = freezer.process_ids();
    for id in ids {
        for request in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
            signal(id, request);
        }
    }
    freezer.barrier(BarrierKind::Freeze).unwrap();
    drop(freezer);
    assert!(!ids.into_iter().any(lives));
}

/// Somebody stopped it before it froze anything: nothing thaws it, and nobody waits for the ten
/// minutes that writing back may take.
#[test]
fn a_freezer_that_is_stopped_outside_a_freeze_is_named_and_not_waited_for() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new("ext4", 64);
    for fault in ["", "stop:Announced", "stop:Thawed", "stop:Finished"] {
        let limits = FreezeLimits {
            stopped_wait_max: Duration::from_millis(100),
            ..limits(300)
        };
        let mut freezer = mounted.freezer(fault, limits);
        let [process_id, _] = freezer.process_ids();
        if fault.is_empty() {
            signal(process_id, Signal::STOP);
        }
        let error = freezer.barrier(BarrierKind::Freeze).unwrap_err();
        let is_it = matches!(error, BarrierError::Stopped(id) if id == process_id);
        assert!(is_it, "{fault}: {error:?}");
        mounted.assert_thawed(fault);
        signal(process_id, Signal::CONT);
        drop(freezer);
        until("it has ended", || !lives(process_id));
        assert!(!mounted.thaw(), "{fault}: left frozen");
    }
}

/// Issue 13, 14: whoever may look at the environment of these two could read the password there. A
/// process of its own, for its environment.
#[test]
fn neither_freezer_nor_watchdog_has_a_secret_in_its_environment() {
    if !can_mount() {
        return;
    }
    let secrets = [
        "BALE_PASSWORD",
        "BALE_PASSWORD_FILE",
        "BALE_PASSWORD_COMMAND",
        "BALE_KEY_FILE",
    ];
    if std::env::var_os(secrets[0]).is_none() {
        let name = "freezer_faults::neither_freezer_nor_watchdog_has_a_secret_in_its_environment";
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", name, "--nocapture"]);
        let status = again
            .envs(secrets.map(|name| (name, "unspeakable")))
            .status();
        return assert!(status.unwrap().success());
    }
    let mounted = Mounted::new("ext4", 64);
    let freezer = mounted.freezer("", limits(1_000));
    for id in freezer.process_ids() {
        let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment);
        assert!(environment.contains("PATH="), "{environment}");
        assert!(!environment.contains("unspeakable"), "{environment}");
    }
}
