//! What a barrier promises.

use super::mounts::*;
use bale_format::Time;
use bale_source::scan::freeze::{BarrierError, BarrierKind, FreezeLimits, Freezer, FreezerCommand};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

fn ctime(path: &Path) -> Time {
    let metadata = std::fs::metadata(path).unwrap();
    Time {
        seconds: metadata.ctime(),
        nanos: metadata.ctime_nsec() as u32,
    }
}

#[test]
fn a_barrier_lies_between_the_ctimes_of_what_came_before_and_of_what_comes_after() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 512);
        let mut freezer = mounted.freezer("", FreezeLimits::default());
        for round in 0..3 {
            let path = mounted.path().join(format!("file{round}"));
            std::fs::write(&path, b"before").unwrap();
            let before = ctime(&path);
            let barrier = freezer.barrier(BarrierKind::Freeze).unwrap();
            std::fs::write(&path, b"after").unwrap();
            // A ctime may be ahead of the coarse clock: a kernel with multigrain times (Linux 6.13)
            // never gives a stamp before the latest fine one, of any file. What is taken for young
            // by that is only read again.
            assert!(before <= barrier.t0_fine, "{kind}: {before:?} {barrier:?}");
            assert!(barrier.t0_coarse <= ctime(&path), "{kind}: {barrier:?}");
            assert!(barrier.t0_coarse <= barrier.t0_fine, "{barrier:?}");
            assert!(barrier.frozen_for > Duration::ZERO);
        }
    }
}

/// Overwrites all of a file of A with B by a single `writev`, makes a barrier in the middle of it,
/// and looks at the last byte on the device at once. `None` if there was no middle.
fn last_byte_after_a_barrier_during_a_long_write(
    mounted: &Mounted,
    freezer: &mut Freezer,
    kind: BarrierKind,
) -> Option<u8> {
    const PART: usize = 1 << 20;
    const PARTS: usize = 384;
    let path = mounted.path().join("long");
    let write_all = |letter: u8| {
        let bytes = vec![letter; PART];
        let mut options = File::options();
        let options = options.create(true).truncate(false).write(true);
        let written =
            rustix::io::writev(options.open(&path).unwrap(), &[IoSlice::new(&bytes); PARTS]);
        assert_eq!(written.unwrap(), PART * PARTS);
    };
    write_all(b'A');
    freezer.barrier(BarrierKind::Freeze).unwrap();
    let (before, end) = (ctime(&path), device_offset_of_end(&path));
    assert_eq!(read_device(mounted, end), b'A');
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_all(b'B'));
        until("the write has begun", || ctime(&path) != before);
        if writing.is_finished() {
            return None;
        }
        let barrier = freezer.barrier(kind).unwrap();
        assert!(ctime(&path) <= barrier.t0_fine);
        Some(read_device(mounted, end))
    })
}

#[test]
fn a_barrier_waits_for_a_long_write_under_way_and_syncfs_does_not() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 1024);
        let mut freezer = mounted.freezer("", FreezeLimits::default());
        // Who waits for a turn too long finds the write over, and looks once more.
        let mut look =
            |kind| last_byte_after_a_barrier_during_a_long_write(&mounted, &mut freezer, kind);
        let frozen = (0..60).filter_map(|_| look(BarrierKind::Freeze));
        let frozen: Vec<u8> = frozen.take(3).collect();
        assert!(!frozen.is_empty(), "{kind}: every write was over too soon");
        assert!(
            frozen.iter().all(|byte| *byte == b'B'),
            "{kind}: {frozen:?}"
        );
        // The same test must see what is wrong with less. On a busy machine most writes are over
        // when it looks.
        let is_seen = (0..200).any(|_| look(BarrierKind::SyncOnly) == Some(b'A'));
        assert!(is_seen, "{kind}: less than a barrier was as good");
    }
}

#[test]
fn a_freeze_of_somebody_else_is_waited_for_and_left_alone() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 512);
        let limits = |millis| FreezeLimits {
            busy_wait_max: Duration::from_millis(millis),
            ..FreezeLimits::default()
        };
        let mut impatient = mounted.freezer("", limits(250));
        let mut patient = mounted.freezer("", limits(PATIENCE.as_millis() as u64));
        bale_sys::freeze::freeze(mounted.open().as_fd()).unwrap();
        let refused = impatient.barrier(BarrierKind::Freeze).unwrap_err();
        assert!(matches!(refused, BarrierError::Busy), "{refused:?}");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| patient.barrier(BarrierKind::Freeze));
            std::thread::sleep(Duration::from_millis(300));
            assert!(
                !waiting.is_finished(),
                "{kind}: a barrier in a frozen file system"
            );
            drop(impatient);
            assert!(
                mounted.thaw(),
                "{kind}: the freeze of somebody else was ended"
            );
            waiting.join().unwrap().unwrap();
        });
    }
}

#[test]
fn what_cannot_be_frozen_is_refused_in_words_that_lead_to_walking() {
    if !can_run(&["setpriv", "mkfs.ext4", "mount"]) {
        return;
    }
    let memory = File::open("/proc/self").unwrap();
    let limits = FreezeLimits::default();
    let mut freezer = Freezer::start(&freezer_command(""), memory.as_fd(), limits).unwrap();
    let refused = freezer.barrier(BarrierKind::Freeze).unwrap_err();
    assert!(matches!(refused, BarrierError::NotSupported), "{refused:?}");
    assert!(refused.is_refusal());

    let mounted = Mounted::new("ext4", 64);
    let mut command = freezer_command("");
    let privileges = [
        "--bounding-set=-sys_admin",
        "--inh-caps=-all",
        "--ambient-caps=-all",
    ];
    let mut arguments: Vec<_> = privileges.map(Into::into).to_vec();
    arguments.push(command.program.into_os_string());
    arguments.append(&mut command.arguments);
    command.arguments = arguments;
    command.program = "setpriv".into();
    let mut freezer = Freezer::start(&command, mounted.open().as_fd(), limits).unwrap();
    let refused = freezer.barrier(BarrierKind::Freeze).unwrap_err();
    assert!(matches!(refused, BarrierError::NotPermitted), "{refused:?}");
    assert!(refused.is_refusal());
    freezer.barrier(BarrierKind::SyncOnly).unwrap();
}

#[test]
fn a_command_that_is_no_freezer_is_noticed_at_the_start() {
    let place = tempfile::tempdir().unwrap();
    let file = File::open(place.path()).unwrap();
    for (program, arguments) in [
        ("/no/such/program", vec![]),
        ("true", vec![]),
        ("cat", vec!["/dev/null"]),
    ] {
        let command = FreezerCommand {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
        };
        let started = Freezer::start(&command, file.as_fd(), FreezeLimits::default());
        match started {
            Err(error) => assert!(error.is_refusal(), "{error:?}"),
            Ok(_) => panic!("{program} is no freezer"),
        }
    }
}
