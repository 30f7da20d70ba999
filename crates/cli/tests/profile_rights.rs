//! The rights that `bale schedule install` leaves to the service: enough to read everything and to
//! freeze, and none of those for reading is there for nothing. Needs root, and mounts.
//!
//! A program of its own: its mounts are in nobody's way.

#[path = "end_to_end/bench.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod bench;

use bench::{Bench, have, is_root, skipped};

const PROGRAMS: [&str; 4] = ["setpriv", "mkfs.ext4", "debugfs", "losetup"];

/// Makes an ext4 with files of another user, one of which was changed two minutes ago: young enough
/// to ask who writes to it, old enough not to be taken for racy by itself.
const PREPARE: &str = "
    mkdir mnt; truncate -s 64M image; mkfs.ext4 -q image; mount -o loop image mnt
    mkdir mnt/d; echo secret >mnt/d/closed; echo log >mnt/d/log
    chmod 600 mnt/d/*; chown -R 65534:65534 mnt/d; chmod 700 mnt/d
    touch -a -d 2001-01-01 mnt/d/closed
    umount mnt
    ctime=$(($(date +%s) - 120))
    for file in log closed; do debugfs -w -R \"set_inode_field /d/$file ctime @$ctime\" image; done \\
        >/dev/null 2>&1
    mount -o loop image mnt; exec 3>>mnt/d/log
";

/// `backup NAME CAPABILITIES OPTIONS`: NAME.json and NAME.code.
const BACKUP: &str = "
    backup() {
        local name=$1 capabilities=$2 code=0; shift 2
        setpriv --bounding-set=\"-all$capabilities\" --inh-caps=-all \\
            \"$bale\" -r repo -p pw backup --json --force \"$@\" mnt >$name.json 2>$name.err || code=$?
        echo $code >$name.code
        \"$bale\" -r repo -p pw ls latest --recursive --json >$name.ls || true
        stat -c %X mnt/d/closed >$name.atime
    }
";

fn capabilities_of_unit(bench: &Bench) -> Vec<String> {
    let path = |name: &str| bench.path(name).display().to_string();
    bench.write(
        "bale.toml",
        format!(
            "[profile.home]\nsources = {:?}\nrepository = {:?}\nschedule = \"daily\"\n",
            path("mnt"),
            path("repo")
        ),
    );
    let words = [
        "schedule",
        "install",
        "home",
        "--profiles",
        "bale.toml",
        "--unit-dir",
        "units",
    ];
    bench.ok(&[&words[..], &["--state-dir", "state"]].concat());
    let service = std::fs::read_to_string(bench.path("units/bale-run-home.service")).unwrap();
    let line = service
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = line.unwrap().split(' ');
    let names = names.map(|name| name.strip_prefix("CAP_").unwrap().to_lowercase());
    names.collect()
}

struct Came {
    code: String,
    is_racy: bool,
    is_read: bool,
    is_atime_left: bool,
    is_frozen: bool,
}

fn came(bench: &Bench, name: &str) -> Came {
    let read = |end: &str| {
        std::fs::read_to_string(bench.path(&format!("{name}.{end}"))).unwrap_or_default()
    };
    let (listed, said) = (read("ls"), read("json"));
    let log = listed.lines().find(|line| line.contains("/d/log\""));
    Came {
        is_frozen: said.contains("inode scan of") && !said.contains("not frozen"),
        code: read("code").trim().to_owned(),
        is_racy: log.is_some_and(|line| line.contains("racy")),
        is_read: !said.contains("\"type\":\"problem\"") && log.is_some(),
        // The first seconds of that day, wherever it is.
        is_atime_left: read("atime").trim() == "978307200",
    }
}

#[test]
fn the_rights_of_the_unit_are_enough_and_each_is_needed() {
    if !is_root() {
        return skipped("mounting needs root");
    }
    if let Some(missing) = PROGRAMS.iter().find(|program| !have(program)) {
        return skipped(missing);
    }
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.ok(&["init", "-r", "repo", "-p", "pw"]);
    let all = capabilities_of_unit(&bench);
    let set = |without: &str| -> String {
        let some = all.iter().filter(|name| *name != without);
        some.map(|name| format!(",+{name}")).collect()
    };
    let bale = bench::binary().display();
    let mut script = format!("{PREPARE}\nbale={bale}\n{BACKUP}");
    // By inodes last: it drops what the kernel has cached of the file system.
    for (name, without, scan) in [
        ("walk", "", "walk"),
        ("unread", "dac_read_search", "walk"),
        ("unseen", "lease", "walk"),
        ("inode", "", "inode"),
        ("unfrozen", "sys_admin", "inode"),
        ("atime", "fowner", "walk"),
    ] {
        script += &format!("backup {name} '{}' --scan {scan}\n", set(without));
    }
    bench.mounting_sh(&script);
    for (name, what) in [
        ("walk", "by walking"),
        ("inode", "by inodes, with a freeze"),
    ] {
        let came = came(&bench, name);
        assert!(came.is_read && came.code == "0", "{what}: {}", came.code);
        assert!(came.is_atime_left, "{what}: the atime is as it was");
    }
    assert!(
        came(&bench, "walk").is_racy,
        "somebody has the file open for writing"
    );
    assert!(!came(&bench, "unread").is_read, "without DAC_READ_SEARCH");
    assert!(!came(&bench, "unseen").is_racy, "without LEASE");
    assert!(
        came(&bench, "inode").is_frozen && !came(&bench, "unfrozen").is_frozen,
        "without SYS_ADMIN"
    );
    assert!(!came(&bench, "atime").is_atime_left, "without FOWNER");
}
