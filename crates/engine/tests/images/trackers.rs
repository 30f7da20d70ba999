//! Every tracker, held to what trackers must hold (`bale_testkit::tracked_disk`).

use crate::bench::BLOCK;
use crate::qemu_disks::Machine;
use bale_format::ObjectId;
use bale_source::raw::change_list::{ChangeListFormat, ImportedChanges, read_change_list};
use bale_source::raw::tracking::{begin_epoch, start_tracking, stop_tracking};
use bale_source::raw::{ChangeTracker, Changes, NoTracker};
use bale_sys::bpf::{SharedWords, create_array, pinned};
use bale_testkit::{Follower, TrackedDisk, have, is_root, skipped};
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const LEN: usize = 24 * BLOCK as usize;
const ROUNDS: usize = 20;

/// A disk in memory, and all that was ever written since the last snapshot.
struct Listed {
    bytes: Vec<u8>,
    written: Arc<Mutex<Vec<Range<u64>>>>,
    tracker: fn(&Listed) -> Box<dyn ChangeTracker>,
}

impl Listed {
    fn with(tracker: fn(&Listed) -> Box<dyn ChangeTracker>) -> Listed {
        Listed {
            bytes: vec![0; LEN],
            written: Arc::default(),
            tracker,
        }
    }

    fn fill(&mut self, range: Range<u64>, byte: u8) {
        let end = range.end.min(LEN as u64);
        self.bytes[range.start as usize..end as usize].fill(byte);
        self.written.lock().unwrap().push(range.start..end);
    }

    /// As a storage would export it.
    fn list(&self) -> ImportedChanges {
        let written = self.written.lock().unwrap();
        let extents: Vec<String> = written
            .iter()
            .map(|range| {
                let len = range.end - range.start;
                format!("{{\"offset\": {}, \"length\": {len}}}", range.start)
            })
            .collect();
        let list = format!("{{\"extents\": [{}]}}", extents.join(", "));
        let ranges = read_change_list(list.as_bytes(), ChangeListFormat::Json, None).unwrap();
        let since = ObjectId([7; 32]);
        ImportedChanges { since, ranges }
    }
}

impl TrackedDisk for Listed {
    fn len_bytes(&self) -> u64 {
        LEN as u64
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.fill(offset..offset + bytes.len() as u64, bytes[0]);
    }

    fn discard(&mut self, range: Range<u64>) {
        self.fill(range, 0);
    }

    fn write_zeroes(&mut self, range: Range<u64>) {
        self.fill(range, 0);
    }

    fn content(&mut self) -> Vec<u8> {
        self.bytes.clone()
    }

    fn begin(&mut self) -> Box<dyn ChangeTracker> {
        (self.tracker)(self)
    }
}

/// A list of all since the last snapshot.
struct ListTracker {
    list: ImportedChanges,
    written: Arc<Mutex<Vec<Range<u64>>>>,
}

impl ChangeTracker for ListTracker {
    fn name(&self) -> &'static str {
        self.list.name()
    }

    fn changed_since(&mut self, basis: Option<&str>) -> Changes {
        self.list.changed_since(basis)
    }

    fn next_basis(&self) -> Option<String> {
        self.list.next_basis()
    }

    fn since_snapshot(&self) -> Option<ObjectId> {
        self.list.since_snapshot()
    }

    fn committed(&mut self) {
        self.written.lock().unwrap().clear();
    }
}

/// Forgets the last range of every list.
struct Liar(ListTracker);

impl ChangeTracker for Liar {
    fn name(&self) -> &'static str {
        "liar"
    }

    fn changed_since(&mut self, basis: Option<&str>) -> Changes {
        match self.0.changed_since(basis) {
            Changes::Ranges(mut ranges) => {
                ranges.pop();
                Changes::Ranges(ranges)
            }
            everything => everything,
        }
    }

    fn next_basis(&self) -> Option<String> {
        None
    }

    fn since_snapshot(&self) -> Option<ObjectId> {
        self.0.since_snapshot()
    }
}

fn list_tracker(disk: &Listed) -> ListTracker {
    ListTracker {
        list: disk.list(),
        written: disk.written.clone(),
    }
}

#[test]
fn without_a_tracker_everything_is_read_each_time() {
    let mut follower = Follower::new(Listed::with(|_| Box::new(NoTracker)), 1);
    follower.follow(ROUNDS).unwrap();
    assert_eq!(follower.everything.len(), ROUNDS);
}

/// Whose copy has the length of the disk before there is a snapshot.
fn followed_list(tracker: fn(&Listed) -> Box<dyn ChangeTracker>) -> Follower<Listed> {
    let mut follower = Follower::new(Listed::with(|_| Box::new(NoTracker)), 2);
    follower.back_up(true).unwrap();
    follower.disk.tracker = tracker;
    follower
}

#[test]
fn lists_of_changes_leave_nothing_out() {
    let mut follower = followed_list(|disk| Box::new(list_tracker(disk)));
    follower.follow(ROUNDS).unwrap();
    // Only the first, which had none.
    assert_eq!(follower.everything.len(), 1);
}

#[test]
fn a_tracker_that_forgets_a_block_is_found() {
    let mut follower = followed_list(|disk| Box::new(Liar(list_tracker(disk))));
    let found = follower.follow(ROUNDS).unwrap_err();
    assert!(found.contains("was not reported"), "{found}");
}

impl TrackedDisk for Machine {
    fn len_bytes(&self) -> u64 {
        LEN as u64
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.write_at(offset, bytes);
    }

    fn discard(&mut self, range: Range<u64>) {
        let client = self.client();
        client.trim(range.start, range.end - range.start).unwrap();
        client.flush().unwrap();
        // Whatever it reads as now.
        let part = &mut self.bytes[range.start as usize..range.end as usize];
        client.read_at(range.start, part).unwrap();
    }

    fn write_zeroes(&mut self, range: Range<u64>) {
        let client = self.client();
        client
            .write_zeroes(range.start, range.end - range.start)
            .unwrap();
        client.flush().unwrap();
        self.bytes[range.start as usize..range.end as usize].fill(0);
    }

    fn content(&mut self) -> Vec<u8> {
        self.bytes.clone()
    }

    fn begin(&mut self) -> Box<dyn ChangeTracker> {
        self.open("qmp").unwrap().tracker
    }
}

#[test]
fn qemus_bitmaps_leave_nothing_out_and_one_that_is_lost_has_everything_read() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let mut follower = Follower::new(machine, 4);
    follower.back_up(true).unwrap();
    follower.follow(ROUNDS / 2).unwrap();
    assert_eq!(follower.everything.len(), 1, "{:?}", follower.everything);
    let lost = |machine: &mut Machine| machine.restart("-KILL");
    follower.admits("does not have its bitmap", lost).unwrap();
}

/// A loop device that the kernel tracks.
struct Loop {
    dir: tempfile::TempDir,
    device: PathBuf,
    file: File,
    /// That were begun, each with its number as its id.
    epochs: u64,
}

/// All that the kernel has in memory of a tracked device.
struct Memory(Vec<(PathBuf, Vec<u64>)>);

fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words:?}: {err}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Loop {
    /// `None`: not on this machine.
    fn tracked() -> Option<Loop> {
        if !is_root() || !have("losetup") || !have("blkdiscard") {
            skipped("to track a loop device takes root, losetup and blkdiscard");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        File::create(&image).unwrap().set_len(LEN as u64).unwrap();
        let device = run("losetup", &["--show", "-f", image.to_str().unwrap()]);
        let open = File::options()
            .read(true)
            .write(true)
            .open(&device)
            .unwrap();
        let disk = Loop {
            dir,
            device: device.into(),
            file: open,
            epochs: 0,
        };
        match start_tracking(&disk.device, 1, 0) {
            Ok(_) => Some(disk),
            Err(error) => {
                skipped(&format!("a device cannot be tracked here: {error}"));
                None
            }
        }
    }

    fn name(&self) -> &str {
        self.device.to_str().unwrap()
    }

    fn restart(&self, id: u64) {
        assert!(stop_tracking(&self.device).unwrap());
        start_tracking(&self.device, id, 0).unwrap();
    }

    fn pin(&self, name: &str) -> PathBuf {
        let number = fs::metadata(&self.device).unwrap();
        let number = std::os::unix::fs::MetadataExt::rdev(&number);
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        Path::new("/sys/fs/bpf/bale").join(format!("{major}-{minor}/{name}"))
    }

    fn words_of(pin: &Path) -> SharedWords {
        SharedWords::map(pinned(pin).unwrap().as_fd()).unwrap()
    }

    fn memory(&self) -> Memory {
        let pins = ["control", "blocks", "stretches"].map(|name| self.pin(name));
        let words = |pin: PathBuf| {
            let shared = Loop::words_of(&pin);
            let words = shared.words().iter();
            let words = words.map(|word| word.load(Ordering::SeqCst)).collect();
            (pin, words)
        };
        Memory(pins.into_iter().map(words).collect())
    }

    /// As when a virtual machine goes back to a moment: with its memory, and its disk.
    fn set_back(&mut self, memory: &Memory, disk: &[u8]) {
        self.file.write_all_at(disk, 0).unwrap();
        self.file.sync_all().unwrap();
        for (pin, words) in &memory.0 {
            let shared = Loop::words_of(pin);
            for (place, word) in shared.words().iter().zip(words) {
                place.store(*word, Ordering::SeqCst);
            }
        }
    }

    fn zero(&mut self, range: &Range<u64>, how: &[&str]) {
        // What is in the page cache of the device must not come after it.
        self.file.sync_all().unwrap();
        let end = range.end.min(LEN as u64);
        let (offset, len) = (range.start.to_string(), (end - range.start).to_string());
        let place = ["-o", &offset, "-l", &len, self.name()];
        run("blkdiscard", &[how, &place].concat());
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _it_may_be_stopped = stop_tracking(&self.device);
        let _it_may_be_detached = Command::new("losetup").args(["-d", self.name()]).status();
    }
}

impl TrackedDisk for Loop {
    fn len_bytes(&self) -> u64 {
        LEN as u64
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, offset).unwrap();
    }

    fn discard(&mut self, range: Range<u64>) {
        self.zero(&range, &[]);
    }

    fn write_zeroes(&mut self, range: Range<u64>) {
        self.zero(&range, &["-z"]);
    }

    fn content(&mut self) -> Vec<u8> {
        fs::read(self.dir.path().join("disk.img")).unwrap()
    }

    fn begin(&mut self) -> Box<dyn ChangeTracker> {
        self.epochs += 1;
        match begin_epoch(&self.device, self.epochs) {
            Some(epoch) => Box::new(epoch),
            None => Box::new(NoTracker),
        }
    }
}

#[test]
fn what_the_kernel_tracks_leaves_nothing_out_and_after_any_loss_everything_is_read() {
    let Some(disk) = Loop::tracked() else {
        return;
    };
    let mut follower = Follower::new(disk, 3);
    follower.back_up(true).unwrap();
    follower.follow(ROUNDS).unwrap();
    assert_eq!(follower.everything.len(), 1, "{:?}", follower.everything);
    let read = follower.blocks_read;
    assert!(read < (ROUNDS * LEN) as u64 / BLOCK * 3 / 4, "{read}");
    type Act = fn(&mut Loop);
    let admits: [(&str, Act); 4] = [
        ("stopped and started", |disk| disk.restart(2)),
        ("attached no more", |disk| {
            fs::remove_file(disk.pin("ended-link")).unwrap();
        }),
        ("not those that its programs write", |disk| {
            let pin = disk.pin("blocks");
            fs::remove_file(&pin).unwrap();
            let other = create_array(LEN as u32 / BLOCK as u32, 1).unwrap();
            bale_sys::bpf::pin(other.as_fd(), &pin).unwrap();
        }),
        ("several places", |disk| {
            // As a program notes it.
            let words = Loop::words_of(&disk.pin("control"));
            let epoch = words.words()[0].load(Ordering::SeqCst);
            words.words()[1].store(epoch, Ordering::SeqCst);
        }),
    ];
    for (number, (why, act)) in admits.into_iter().enumerate() {
        follower.admits(why, act).unwrap();
        // Once the programs are gone they stay gone, until it is started again.
        follower.disk.restart(10 + number as u64);
        follower.back_up(true).unwrap();
    }
    // What only a start of the machine, or a busy kernel, brings: by another basis.
    for (why, part, text) in [
        ("the machine was started again", 1, "0000000000000000"),
        ("passed over", 3, "1000000"),
        ("begins elsewhere", 4, "63"),
        ("names no epoch", 2, "1000000"),
        ("set back", 5, "fedcba9876543210"),
    ] {
        follower.follow(2).unwrap();
        let basis = follower.basis.take().unwrap();
        let mut parts: Vec<&str> = basis.split('/').collect();
        parts[part] = text;
        if part == 1 {
            parts[0] = "another-boot";
        }
        follower.basis = Some(parts.join("/"));
        let before = follower.everything.len();
        follower.back_up(true).unwrap();
        let said = &follower.everything[before..];
        assert!(said.len() == 1 && said[0].contains(why), "{why}: {said:?}");
    }
    follower.follow(ROUNDS).unwrap();
}

#[test]
fn after_a_machine_was_set_back_with_its_memory_its_marks_are_not_believed() {
    let Some(disk) = Loop::tracked() else {
        return;
    };
    let mut follower = Follower::new(disk, 5);
    follower.back_up(true).unwrap();
    follower.follow(2).unwrap();
    let (memory, content) = (follower.disk.memory(), follower.disk.content());
    follower.follow(2).unwrap();
    let before = follower.everything.len();
    follower.disk.set_back(&memory, &content);
    // Into other repositories, so that there is an epoch of the number of the last one.
    for _ in 0..4 {
        follower.write();
        drop(follower.disk.begin());
    }
    follower.back_up(true).unwrap();
    let said = &follower.everything[before..];
    assert!(said.len() == 1 && said[0].contains("set back"), "{said:?}");
    follower.follow(3).unwrap();
    assert_eq!(follower.everything.len(), before + 1);
}

/// Writes go on while epochs begin; when they are over, a copy that only read what was reported is
/// the disk. Several writers at the same blocks make marks of two epochs meet.
#[test]
fn no_write_is_lost_between_two_epochs_that_begin_while_it_is_under_way() {
    let Some(mut disk) = Loop::tracked() else {
        return;
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..3u64)
        .map(|number| {
            let (is_over, written) = (is_over.clone(), written.clone());
            let direct = File::options()
                .write(true)
                .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
                .open(&disk.device)
                .unwrap();
            std::thread::spawn(move || {
                let mut buffer = bale_sys::buffer::AlignedBuffer::new(4096);
                let mut state = number + 1;
                while !is_over.load(Ordering::Relaxed) {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    buffer.fill((state >> 40) as u8);
                    let at = (state >> 33) % (LEN as u64 / 4096) * 4096;
                    direct.write_all_at(&buffer, at).unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let (mut copy, mut basis) = (vec![0; LEN], None::<String>);
    let direct = File::open(disk.dir.path().join("disk.img")).unwrap();
    let mut back_up = |disk: &mut Loop, basis: &mut Option<String>| {
        let mut tracker = disk.begin();
        let ranges = match tracker.changed_since(basis.as_deref()) {
            Changes::Everything(_) if basis.is_none() => vec![0..BLOCK, BLOCK..LEN as u64],
            Changes::Everything(why) => panic!("{why}"),
            Changes::Ranges(ranges) => ranges,
        };
        for range in ranges {
            let part = &mut copy[range.start as usize..range.end as usize];
            direct.read_exact_at(part, range.start).unwrap();
        }
        *basis = tracker.next_basis();
        copy.clone()
    };
    for _ in 0..200 {
        back_up(&mut disk, &mut basis);
    }
    is_over.store(true, Ordering::Relaxed);
    writers
        .into_iter()
        .for_each(|writer| writer.join().unwrap());
    assert!(written.load(Ordering::Relaxed) > 200);
    let copy = back_up(&mut disk, &mut basis);
    let content = disk.content();
    let differs = copy.chunks(4096).zip(content.chunks(4096));
    let differs = differs.filter(|(copy, content)| copy != content).count();
    assert_eq!(differs, 0, "places that were not reported");
}
