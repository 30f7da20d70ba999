//! Linear volumes of LVM2 as its own programs make and list them, and damaged metadata.

use bale_fsimage::lvm2::{LinearSegment, LvmError, LvmText, LvmTextError, PhysicalVolume};

use crate::physical_volume::{AREA, AREA_BYTES, EXTENT, TEXT, disk};
use crate::tools::{has_tools, is_given};
use std::fs::File;
use std::process::Command;

fn read(bytes: &Vec<u8>) -> Result<PhysicalVolume, LvmError> {
    PhysicalVolume::read(bytes, 0, bytes.len() as u64)
}

#[test]
fn linear_volumes_have_their_places_and_others_a_reason() {
    // The text may go round the end of its area.
    for at in [512, 5000, AREA_BYTES - 700] {
        let found = read(&disk(TEXT, at)).unwrap();
        assert_eq!(found.group, "vg0");
        let of = |name: &str| {
            let volume = found.volumes.iter().find(|volume| volume.name == name);
            volume.unwrap().segments.clone()
        };
        let root = [
            LinearSegment {
                offset: 0,
                bytes: 3 * EXTENT,
                disk_offset: 1 << 20,
            },
            LinearSegment {
                offset: 3 * EXTENT,
                bytes: 2 * EXTENT,
                disk_offset: (1 << 20) + 10 * EXTENT,
            },
        ];
        assert_eq!(of("root"), Ok(root.to_vec()));
        let visible = found.volumes.iter().filter(|volume| volume.is_visible);
        assert!(visible.map(|volume| volume.name.as_str()).eq(["root"]));
        assert_eq!(of("striped"), Err("it is striped"));
        assert_eq!(of("thin"), Err("it is not linear"));
        assert_eq!(of("away"), Err("a part of it is on another disk"));
        assert_eq!(of("beyond"), Err("its segments contradict themselves"));
    }
}

#[test]
fn metadata_that_are_damaged_are_errors() {
    let good = disk(TEXT, 512);
    for (at, what) in [
        (550, "label"),
        (AREA + 30, "metadata area"),
        (AREA + 600, "metadata"),
    ] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        let error = read(&bytes).unwrap_err();
        assert!(
            matches!(error, LvmError::Checksum(found) if found == what),
            "{what}: {error}"
        );
    }
    let other = TEXT.replace("abcdef-ghij", "abcdef-xxxx");
    assert!(matches!(read(&disk(&other, 512)), Err(LvmError::NotNamed)));
    let none = TEXT.replace("extent_size = 8192", "extent_size = 0");
    assert!(matches!(read(&disk(&none, 512)), Err(LvmError::Value(_))));
    let huge = TEXT.replace("extent_size = 8192", "extent_size = 18446744073709551615");
    assert!(matches!(read(&disk(&huge, 512)), Err(LvmError::Value(_))));
    assert!(matches!(read(&vec![0; 1 << 20]), Err(LvmError::NoLabel)));
    for end in 0..TEXT.len() - 2 {
        assert!(read(&disk(&TEXT[..end], 512)).is_err(), "{end}");
    }
}

#[test]
fn texts_without_end_are_refused() {
    let deep = "a {".repeat(100_000);
    for text in [
        &deep,
        "a = [1, 2",
        "a = \"x",
        "a = \"x\\",
        "a",
        "= 1",
        "a = 1 a = 2",
        "a = 99999999999999999999",
        "a {} }",
    ] {
        assert!(LvmText::parse(text.as_bytes()).is_err(), "{text:.20}");
    }
    assert_eq!(LvmText::parse(b"a = \xff"), Err(LvmTextError::Utf8));
    let text = LvmText::parse(b"a { b = \"\\\"c\\\\\" # d\n }\n").unwrap();
    assert_eq!(text.section("a").unwrap().text_of("b"), Some("\"c\\"));
}

/// The backing device of a loop, detached at the end.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn volumes_are_where_lvm_says() {
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|id| id.stdout == b"0\n");
    if !has_tools(&["lvm", "losetup"]) || !is_given(is_root, "needs root") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    File::create(&path).unwrap().set_len(200 << 20).unwrap();
    let made = Command::new("losetup")
        .args(["--find", "--show"])
        .arg(&path)
        .output()
        .unwrap();
    if !is_given(made.status.success(), "needs a loop device") {
        return;
    }
    let device = Loop(String::from_utf8(made.stdout).unwrap().trim().to_owned());
    // It looks at no other disk, and needs no device mapper.
    let config = format!(
        "devices {{ filter=[\"a|^{}$|\",\"r|.*|\"] use_devicesfile=0 }} global {{ activation=0 \
         use_lvmlockd=0 use_lvmpolld=0 event_activation=0 }} backup {{ backup=0 archive=0 }}",
        device.0
    );
    let lvm = |command: &str, words: &[&str]| {
        let mut lvm = Command::new("lvm");
        lvm.args([command, "--config", &config])
            .args(words)
            .env("LVM_SUPPRESS_FD_WARNINGS", "1");
        let output = lvm.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let group = format!("bale-test-{}", std::process::id());
    lvm("pvcreate", &["-ff", "-y", &device.0]);
    lvm("vgcreate", &[&group, &device.0]);
    for (name, extents) in [("a", "10"), ("b", "5")] {
        lvm(
            "lvcreate",
            &["-an", "-Zn", "-Wn", "-n", name, "-l", extents, &group],
        );
    }
    lvm("lvextend", &["-l", "+3", &format!("{group}/a")]);
    let fields = "lv_name,seg_start_pe,seg_size_pe,seg_pe_ranges";
    let listed = lvm("lvs", &["--segments", "--noheadings", "-o", fields, &group]);
    let expected: Vec<_> = (listed.lines())
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let number = |text: &str| text.parse::<u64>().unwrap();
            let range = words[3].rsplit_once(':').unwrap().1;
            let start = number(range.split('-').next().unwrap());
            let segment = LinearSegment {
                offset: number(words[1]) * EXTENT,
                bytes: number(words[2]) * EXTENT,
                disk_offset: (1 << 20) + start * EXTENT,
            };
            (words[0].to_owned(), segment)
        })
        .collect();
    assert_eq!(expected.len(), 3, "{listed}");
    drop(device);
    let found = PhysicalVolume::read(&File::open(&path).unwrap(), 0, 200 << 20).unwrap();
    assert_eq!(found.group, group);
    assert!(found.volumes.iter().all(|volume| volume.is_visible));
    let found = found.volumes.into_iter().flat_map(|volume| {
        let segments = volume.segments.unwrap().into_iter();
        segments.map(move |segment| (volume.name.clone(), segment))
    });
    assert_eq!(found.collect::<Vec<_>>(), expected);
}
