//! The binary killed without warning while it writes a file system: what is left is complete, or
//! nothing that can be mounted.

use crate::bench::{Bench, Ran, have, is_root, skipped};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Kills of each command. In a release run more is better: BALE_KILLS=500.
const KILLS: u32 = 20;
/// One of so many comes when the image has its first bytes, however long the machine takes for
/// that.
const EARLY_EVERY: u32 = 4;
/// Long enough for anything that ends at all, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
/// Where ext4 has its magic number.
const MAGIC_OFFSET: u64 = 1080;
const MAGIC: [u8; 2] = [0x53, 0xef];

fn kills() -> u32 {
    std::env::var("BALE_KILLS").map_or(KILLS, |text| text.parse().unwrap())
}

/// Moments over the whole run and a little beyond, from a printed seed.
struct Moments {
    state: u64,
    longest: Duration,
}

impl Moments {
    fn new(longest: Duration) -> Moments {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let state = now.unwrap().as_nanos() as u64 | 1;
        println!("seed {state}, a whole run takes {longest:?}");
        Moments { state, longest }
    }

    fn next(&mut self) -> Duration {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.longest
            .mul_f64((self.state >> 11) as f64 / (1u64 << 53) as f64 * 1.1)
    }
}

fn has_superblock(image: &Path) -> bool {
    let mut found = [0; 2];
    let file = File::open(image).unwrap();
    file.read_exact_at(&mut found, MAGIC_OFFSET).is_ok() && found == MAGIC
}

/// The kernel's own word.
fn is_mountable(bench: &Bench, image: &Path) -> bool {
    let point = bench.path("point");
    fs::create_dir_all(&point).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "ext4", "-o", "loop,ro"])
        .args([image, &point])
        .stderr(Stdio::null())
        .status();
    let mounted = mounted.unwrap().success();
    if mounted {
        let unmounted = Command::new("umount").arg(&point).status();
        assert!(unmounted.unwrap().success());
    }
    wait_until_detached(image);
    mounted
}

/// Whoever looks through all loop devices, as another `mount` does, may hold one a moment longer.
fn wait_until_detached(image: &Path) {
    let is_attached = || {
        let listed = Command::new("losetup").arg("-j").arg(image).output();
        !listed.unwrap().stdout.is_empty()
    };
    let began = Instant::now();
    while is_attached() {
        assert!(began.elapsed() < PATIENCE, "still attached");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until some of the image is written, or all of it.
fn wait_until_begun(child: &mut Child, image: &Path) {
    let has_bytes = || fs::metadata(image).is_ok_and(|image| image.blocks() > 0);
    while !has_bytes() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `words` to the end once, then kills them at many moments; `is_whole` judges what has a
/// superblock.
fn kill_often(bench: &Bench, words: &[&str], image: &str, is_whole: &dyn Fn(&Path)) {
    let image = bench.path(image);
    let began = Instant::now();
    bench.ok(words);
    let mut moments = Moments::new(began.elapsed());
    assert!(has_superblock(&image));
    is_whole(&image);
    let (mut begun, mut whole) = (0, 0);
    for number in 0..kills() {
        let _absent_after_an_early_kill = fs::remove_file(&image);
        let mut child = bench.command();
        let child = &mut child
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        match number % EARLY_EVERY {
            0 => wait_until_begun(child, &image),
            _ => std::thread::sleep(moments.next()),
        }
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        // Killed before it was made, or between that and the first byte: an empty file is written
        // to unasked.
        if fs::metadata(&image).map_or(0, |image| image.len()) == 0 {
            continue;
        }
        if has_superblock(&image) {
            whole += 1;
            is_whole(&image);
            continue;
        }
        begun += 1;
        if is_root() {
            assert!(!is_mountable(bench, &image), "half of it was mounted");
        }
        // Nobody takes it for a file system, and nothing writes over it unasked.
        let refused = bench.run(words);
        assert!(
            refused.code == 1 && refused.err.contains("--force"),
            "{refused}"
        );
    }
    println!("{begun} were begun, {whole} whole");
    assert!(begun > 0, "no kill came while the image was written");
    // After the last kill the same command succeeds with a word of force.
    let mut again = words.to_vec();
    again.push("--force");
    bench.ok(&again);
    is_whole(&image);
}

#[test]
fn a_generated_image_is_whole_or_no_file_system_whenever_the_process_is_killed() {
    let bench = Bench::new();
    let words = [
        "gen",
        "--to-ext4",
        "tree.img",
        "--count",
        "6000",
        "-s",
        "1024",
        "-S",
        "9000",
        "-P",
        "1",
        "--links",
        "2",
        "--quiet",
    ];
    bench.ok(&words);
    fs::rename(bench.path("tree.img"), bench.path("reference.img")).unwrap();
    let reference = fs::read(bench.path("reference.img")).unwrap();
    kill_often(&bench, &words, "tree.img", &|image| {
        assert!(
            fs::read(image).unwrap() == reference,
            "it has a superblock and is not whole"
        );
    });
}

#[test]
fn a_restored_image_is_whole_or_no_file_system_whenever_the_process_is_killed() {
    if !have("e2fsck") {
        return skipped("kills of a restore need e2fsck");
    }
    let bench = Bench::new();
    let tree = [
        "gen",
        "-t",
        "source",
        "--count",
        "3000",
        "-s",
        "1024",
        "-S",
        "9000",
        "-P",
        "1",
        "--sparse",
        "5",
        "--symlinks",
        "5",
        "--manifest",
        "list",
        "--quiet",
    ];
    bench.ok(&tree);
    bench.backup();
    let address = bench.address("");
    let words = [
        "restore",
        &address,
        "--to-ext4",
        "back.img",
        "--uuid",
        UUID,
        "--quiet",
    ];
    kill_often(&bench, &words, "back.img", &|image| {
        let checked = Command::new("e2fsck").arg("-fn").arg(image).output();
        let checked = Ran::from(checked.unwrap());
        assert_eq!(checked.code, 0, "{checked}");
        if is_root() {
            let name = image.to_str().unwrap();
            bench.ok(&["gen", "-t", name, "--verify-manifest", "list", "--quiet"]);
        } else {
            skipped("the content of a restored image is compared as root");
        }
    });
}
