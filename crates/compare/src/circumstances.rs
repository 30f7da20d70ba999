//! What makes numbers comparable or not: machine, kernel, file systems and how they were made and
//! mounted.

use std::fs;
use std::path::{Path, PathBuf};

use super::figures;
use super::mounts::{self, Mount};
use super::options::CompareOptions;
use super::programs::Programs;
use super::report::Circumstance;
use super::source::{Source, generate_words};
use super::volume::Volume;

const MACHINE: &str = "Machine";
const SOURCE: &str = "The tree";
const TARGET: &str = "Where restores go";
const METHOD: &str = "Method";

/// Lines of `dumpe2fs -h` that are worth keeping.
const EXT4_FACTS: [&str; 6] = [
    "Filesystem features",
    "Inode count",
    "Block count",
    "Block size",
    "Inode size",
    "Journal size",
];

fn fact(topic: &'static str, name: impl Into<String>, value: impl Into<String>) -> Circumstance {
    Circumstance {
        topic,
        name: name.into(),
        value: value.into(),
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Processor, memory, kernel, and the disk of the work directory.
pub(super) fn of_machine(directory: &Path) -> Vec<Circumstance> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory_bytes = value_after(&read("/proc/meminfo"), "MemTotal", ':')
        .and_then(|text| text.strip_suffix("kB")?.trim().parse::<f64>().ok())
        .map_or(String::new(), |kib| figures::bytes(kib * 1024.0));
    let processor = processor(&read("/proc/cpuinfo"));
    let system = value_after(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or_default();
    let mut facts = vec![
        fact(MACHINE, "processor", format!("{processor}, {cores} cores")),
        fact(MACHINE, "memory", memory_bytes),
        fact(
            MACHINE,
            "kernel",
            format!("Linux {}", read("/proc/sys/kernel/osrelease")),
        ),
        fact(MACHINE, "system", system.trim_matches('"')),
    ];
    if let Some(mount) = mounts::of_path(directory) {
        facts.push(fact(
            MACHINE,
            "repositories and images on",
            described(&mount),
        ));
        facts.extend(disk(&mount).map(|text| fact(MACHINE, "its disk", text)));
    }
    facts
}

/// How everything was measured.
pub(super) fn of_method(options: &CompareOptions, has_device: bool) -> Vec<Circumstance> {
    let caches = if has_device {
        "dropped before every run: sync, unmount, drop, mount, drop"
    } else {
        "warm: dropping them needs root"
    };
    let mut facts = vec![
        fact(METHOD, "caches", caches),
        fact(
            METHOD,
            "order",
            "round by round; within a round work by work; each work by all tools, another one \
             first each time; repositories afresh for every round",
        ),
        fact(
            METHOD,
            "times",
            "by the clock, until the tool ended; restores until everything was written out",
        ),
        fact(
            METHOD,
            "memory",
            "the largest resident size of the largest process of a tool",
        ),
        fact(
            METHOD,
            "checked",
            "restores for the number and the bytes of their files, the single file for its content",
        ),
        fact(
            SOURCE,
            "made by",
            format!("bale gen {}", generate_words(options)),
        ),
    ];
    if has_device {
        let text = "operations and bytes of the loop device of the tree (restores: of the target) \
            from /sys/block; repositories are elsewhere";
        facts.push(fact(METHOD, "device", text));
    }
    facts
}

/// The file system of the tree, while it is mounted.
pub(super) fn of_source(programs: &Programs, source: &Source) -> Vec<Circumstance> {
    let mut facts = Vec::new();
    if let Some(mount) = mounts::of_path(&source.root) {
        facts.push(fact(SOURCE, "mounted", described(&mount)));
    }
    if let Some(volume) = &source.volume {
        facts.push(fact(SOURCE, "loop device", io_of(volume)));
        let words = ["-h".as_ref(), volume.device.as_os_str()];
        let header = programs.run("dumpe2fs", &words).unwrap_or_default();
        for name in EXT4_FACTS {
            if let Some(value) = value_after(&header, name, ':') {
                facts.push(fact(SOURCE, name.to_lowercase(), value));
            }
        }
    }
    facts
}

/// The file system of a restore, once.
pub(super) fn add_target(facts: &mut Vec<Circumstance>, volume: &Volume) {
    if facts.iter().any(|fact| fact.topic == TARGET) {
        return;
    }
    if let Some(mount) = mounts::of_path(&volume.point) {
        facts.push(fact(TARGET, "mounted", described(&mount)));
    }
    facts.push(fact(
        TARGET,
        "made by",
        "mkfs.ext4 with its defaults and enough inodes, afresh for every run",
    ));
    let lazy = if Path::new("/sys/fs/ext4/features/lazy_itable_init").exists() {
        "lazy_itable_init=1, mounted noinit_itable: the kernel initialises nothing in the \
         background"
    } else {
        "not known to this kernel"
    };
    facts.push(fact(TARGET, "lazy initialisation", lazy));
    facts.push(fact(TARGET, "loop device", io_of(volume)));
}

fn io_of(volume: &Volume) -> &'static str {
    if volume.is_direct {
        "direct I/O: nothing is cached twice"
    } else {
        "through the page cache of the file below"
    }
}

fn described(mount: &Mount) -> String {
    format!("{} ({})", mount.kind, mount.options)
}

/// `value` of the first line `name: value` or `name=value`.
fn value_after(text: &str, name: &str, sign: char) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(sign)?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// The name of the processor; not every architecture tells one.
fn processor(cpuinfo: &str) -> String {
    let names = ["model name", "Model", "Hardware", "cpu"];
    let name = names
        .iter()
        .find_map(|name| value_after(cpuinfo, name, ':'));
    name.unwrap_or_else(|| {
        rustix::system::uname()
            .machine()
            .to_string_lossy()
            .into_owned()
    })
}

/// Model and kind of the disk of a mount.
fn disk(mount: &Mount) -> Option<String> {
    let place = fs::canonicalize(Path::new("/sys/dev/block").join(&mount.device_number)).ok()?;
    // Of a partition the directory above is the disk.
    let disk: PathBuf = if place.join("queue").is_dir() {
        place
    } else {
        place.parent()?.to_owned()
    };
    let kind = match read(disk.join("queue/rotational")).as_str() {
        "1" => "said to rotate",
        "0" => "said not to rotate",
        _ => return None,
    };
    let name = disk.file_name()?.to_string_lossy().into_owned();
    let scheduler = read(disk.join("queue/scheduler"));
    let model = read(disk.join("device/model"));
    let model = if model.is_empty() {
        String::new()
    } else {
        format!(", {model}")
    };
    Some(format!("{name}{model}, {kind}, scheduler {scheduler}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_in_the_kernels_texts() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n";
        assert_eq!(processor(text), "Some CPU @ 3 GHz");
        assert!(!processor("").is_empty());
        let name = value_after("NAME=x\nPRETTY_NAME=\"Y 1\"\n", "PRETTY_NAME", '=');
        assert_eq!(name.as_deref(), Some("\"Y 1\""));
        assert!(
            of_machine(Path::new("/"))
                .iter()
                .any(|fact| fact.name == "kernel" && fact.value.len() > 6)
        );
    }
}
