//! Partition tables as `sfdisk` writes and lists them, and damaged ones.

use crate::tools::{has_tools, is_given};
use bale_fsimage::ByteSource;
use bale_fsimage::partitions::{
    GptFault, Partition, PartitionError, PartitionFault, PartitionKind, PartitionTable,
    PartitionTableKind,
};
use bale_fsimage::recognize::{Recognized, recognize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

struct Disk {
    dir: TempDir,
    path: PathBuf,
}

impl Disk {
    fn new(len: u64) -> Disk {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        File::create(&path).unwrap().set_len(len).unwrap();
        Disk { dir, path }
    }

    fn partitioned(len: u64, script: &str) -> Disk {
        let disk = Disk::new(len);
        let mut sfdisk = Command::new("sfdisk")
            .args(["--quiet", "--no-reread", "--no-tell-kernel"])
            .arg(&disk.path)
            .stdin(Stdio::piped())
            .spawn()
            .expect("sfdisk is not installed: Debian's package fdisk");
        sfdisk
            .stdin
            .take()
            .unwrap()
            .write_all(script.as_bytes())
            .unwrap();
        assert!(sfdisk.wait().unwrap().success(), "{script}");
        disk
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }
}

fn read(source: &dyn ByteSource) -> PartitionTable {
    PartitionTable::read(source, None).unwrap().unwrap()
}

/// What `sfdisk --json` lists: the number, offset and length in bytes, and type of each.
fn listed(path: &Path) -> Vec<(u32, u64, u64, String)> {
    let output = Command::new("sfdisk")
        .arg("--dump")
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let start = format!("{}", path.display());
    let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
    let partitions = lines.map(|line| {
        let (number, fields) = line.split_once(" : ").unwrap();
        let field = |name: &str| {
            let rest = fields.split_once(&format!("{name}=")).unwrap().1;
            rest.split(',').next().unwrap().trim().to_owned()
        };
        let bytes = |name: &str| field(name).parse::<u64>().unwrap() * 512;
        (
            number.parse().unwrap(),
            bytes("start"),
            bytes("size"),
            field("type"),
        )
    });
    partitions
        .filter(|(_, _, _, kind)| !["5", "f", "85"].contains(&kind.as_str()))
        .collect()
}

/// As `sfdisk` writes a type.
fn kind_of(partition: &Partition) -> String {
    match partition.kind {
        PartitionKind::Byte(kind) => format!("{kind:x}"),
        PartitionKind::Guid(id) => {
            let hex = |bytes: &[u8]| {
                bytes
                    .iter()
                    .map(|byte| format!("{byte:02X}"))
                    .collect::<String>()
            };
            let back = |bytes: &[u8]| hex(&bytes.iter().rev().copied().collect::<Vec<_>>());
            let (first, second, third) = (back(&id[..4]), back(&id[4..6]), back(&id[6..8]));
            format!(
                "{first}-{second}-{third}-{}-{}",
                hex(&id[8..10]),
                hex(&id[10..])
            )
        }
    }
}

fn found(table: &PartitionTable) -> Vec<(u32, u64, u64, String)> {
    let partitions = table.partitions.iter();
    partitions
        .map(|it| (it.number, it.offset, it.bytes, kind_of(it)))
        .collect()
}

const GPT: &str = "label: gpt\nsize=10M, type=linux, name=\"root\"\nsize=20M, type=swap\n\
                   size=1M, type=21686148-6449-6E6F-744E-656564454649\n";
const MBR: &str = "label: dos\nsize=10M, type=83\nsize=5M, type=82\nsize=40M, type=5\nsize=3M, \
                   type=7\nsize=4M, type=83\nsize=6M, type=8e\nsize=2M, type=83\n";

#[test]
fn tables_are_read_as_sfdisk_lists_them() {
    if !has_tools(&["sfdisk"]) {
        return;
    }
    let numbered = "label: gpt\n7 : size=10M, type=linux\n2 : size=20M, type=linux\n";
    let scripts = [
        (GPT, PartitionTableKind::Gpt, 3),
        (numbered, PartitionTableKind::Gpt, 2),
        (MBR, PartitionTableKind::Mbr, 6),
        ("label: dos\n", PartitionTableKind::Mbr, 0),
    ];
    for (script, kind, count) in scripts {
        let disk = Disk::partitioned(100 * MIB, script);
        let table = read(&File::open(&disk.path).unwrap());
        assert_eq!((table.kind, table.sector_bytes), (kind, 512));
        assert_eq!(table.faults, [], "{script}");
        assert_eq!(found(&table), listed(&disk.path), "{script}");
        assert_eq!(table.partitions.len(), count, "{script}");
    }
    let table = read(&Disk::partitioned(100 * MIB, GPT).bytes());
    assert_eq!(table.partitions[0].name, "root");
}

#[test]
fn a_table_of_a_disk_with_large_sectors_is_found_in_its_image() {
    let is_root = Command::new("id").arg("-u").output();
    let is_root = is_root.is_ok_and(|id| id.stdout == b"0\n");
    if !has_tools(&["sfdisk", "losetup"]) || !is_given(is_root, "needs root") {
        return;
    }
    let disk = Disk::new(100 * MIB);
    let mut made = Command::new("losetup");
    made.args(["--find", "--show", "--sector-size", "4096"])
        .arg(&disk.path);
    let made = made.output().unwrap();
    if !is_given(made.status.success(), "needs a loop device") {
        return;
    }
    let device = String::from_utf8(made.stdout).unwrap();
    let script = "printf 'label: gpt\\nsize=10M\\nsize=20M\\n' | \
                  sfdisk --quiet --no-reread --no-tell-kernel \"$0\"; status=$?; \
                  losetup -d \"$0\"; exit $status";
    let done = Command::new("sh")
        .args(["-c", script, device.trim()])
        .status();
    assert!(done.unwrap().success());
    let bytes = disk.bytes();
    for sector_bytes in [None, Some(4096)] {
        let table = PartitionTable::read(&bytes, sector_bytes).unwrap().unwrap();
        assert_eq!((table.sector_bytes, &table.faults[..]), (4096, &[][..]));
        let places = table.partitions.iter().map(|it| (it.offset, it.bytes));
        let expected = [(MIB, 10 * MIB), (11 * MIB, 20 * MIB)];
        assert!(places.eq(expected), "{:?}", table.partitions);
    }
}

#[test]
fn the_table_at_the_end_is_used_when_the_first_is_damaged() {
    if !has_tools(&["sfdisk"]) {
        return;
    }
    let good = Disk::partitioned(50 * MIB, GPT).bytes();
    let expected = found(&read(&good));
    let primary = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        read(&bytes)
    };
    for (at, fault) in [
        (512, GptFault::Missing),
        (512 + 60, GptFault::HeadChecksum),
        (1024 + 5, GptFault::EntriesChecksum),
    ] {
        let table = primary(at);
        assert_eq!(found(&table), expected);
        assert_eq!(table.faults, [PartitionFault::Primary(fault)]);
    }
    let mut bytes = good.clone();
    let last = bytes.len() - 512;
    bytes[last + 60] ^= 1;
    let table = read(&bytes);
    assert_eq!(found(&table), expected);
    assert_eq!(
        table.faults,
        [PartitionFault::Backup(GptFault::HeadChecksum)]
    );
    bytes[512] ^= 1;
    let error = PartitionTable::read(&bytes, None).unwrap_err();
    assert!(
        matches!(error, PartitionError::BothDamaged { .. }),
        "{error}"
    );
    // Cut short: the end of the disk, and its table, are gone.
    let mut cut = good.clone();
    cut.truncate(25 << 20);
    let table = read(&cut);
    let faults = [
        PartitionFault::Backup(GptFault::Missing),
        PartitionFault::CutOff(2),
        PartitionFault::CutOff(3),
    ];
    assert_eq!(table.faults, faults);
    // What is left of the second is its place until the end.
    let left: Vec<_> = (table.partitions.iter())
        .map(|one| (one.number, one.offset + one.bytes))
        .collect();
    assert_eq!(found(&table)[..1], expected[..1]);
    assert_eq!(left[1..], [(2, 25 << 20)]);
    // Grown: its table is not at the end any more, and is known from the first.
    let mut grown = good;
    grown.resize(60 << 20, 0);
    assert_eq!(
        (found(&read(&grown)), read(&grown).faults),
        (expected, vec![])
    );
}

#[test]
fn a_chain_that_leads_astray_or_round_ends() {
    if !has_tools(&["sfdisk"]) {
        return;
    }
    let good = Disk::partitioned(100 * MIB, MBR).bytes();
    let table = read(&good);
    let extended = u32::from_le_bytes(*good[446 + 32 + 8..].first_chunk().unwrap());
    let link = extended as usize * 512 + 446 + 16 + 8;
    let with = |start: u32| {
        let mut bytes = good.clone();
        bytes[link..link + 4].copy_from_slice(&start.to_le_bytes());
        read(&bytes)
    };
    let round = with(0);
    assert!(round.faults.contains(&PartitionFault::Endless));
    assert!(round.partitions.len() <= 104);
    let astray = with(u32::MAX);
    assert!(
        matches!(astray.faults[..], [PartitionFault::Chain(_)]),
        "{:?}",
        astray.faults
    );
    assert_eq!(astray.partitions.len(), table.partitions.len() - 2);
    let no_sector = with(1);
    assert!(matches!(no_sector.faults[..], [PartitionFault::Chain(_)]));
}

#[test]
fn partitions_that_overlap_are_named() {
    if !has_tools(&["sfdisk"]) {
        return;
    }
    let mut bytes = Disk::partitioned(
        100 * MIB,
        "label: dos\nsize=10M, type=83\nsize=5M, type=83\n",
    )
    .bytes();
    let first: [u8; 8] = *bytes[446 + 8..].first_chunk().unwrap();
    bytes[446 + 16 + 8..446 + 16 + 16].copy_from_slice(&first);
    assert_eq!(read(&bytes).faults, [PartitionFault::Overlap(1, 2)]);
}

#[test]
fn a_disk_without_a_table_has_none() {
    if !has_tools(&["sfdisk"]) {
        return;
    }
    let none = |bytes: Vec<u8>| PartitionTable::read(&bytes, None).unwrap();
    assert_eq!(none(Vec::new()), None);
    assert_eq!(none(vec![0; 1 << 20]), None);
    let mut boot = vec![0; 1 << 20];
    boot[510..512].copy_from_slice(&[0x55, 0xaa]);
    boot[3..11].copy_from_slice(b"NTFS    ");
    assert_eq!(none(boot), None);
    // One that was left behind, below a file system that covers the whole disk.
    let mut left = Disk::partitioned(20 * MIB, "label: gpt\nsize=5M\n").bytes();
    left[..512].fill(0);
    assert_eq!(none(left), None);
}

#[test]
fn a_byte_that_is_another_anywhere_in_a_table_ends_in_a_table_or_an_error() {
    if !has_tools(&["sfdisk"]) {
        return;
    }
    for script in [GPT, MBR] {
        let good = Disk::partitioned(64 * MIB, script).bytes();
        let len = good.len();
        let mut bytes = good.clone();
        for at in (0..2048).chain(len - 600..len) {
            for value in [0, 0xff, good[at] ^ 1] {
                bytes[at] = value;
                if let Ok(Some(table)) = PartitionTable::read(&bytes, None) {
                    for partition in table.partitions {
                        assert!(partition.bytes > 0);
                        assert!(partition.offset + partition.bytes <= len as u64);
                    }
                }
            }
            bytes[at] = good[at];
        }
    }
}

#[test]
fn file_systems_are_recognized_by_the_programs_that_make_them() {
    let cases: [(&[&str], Recognized); 9] = [
        (&["mke2fs", "-q", "-t", "ext2"], Recognized::Ext),
        (&["mkfs.ext4", "-q"], Recognized::Ext),
        (&["mkfs.xfs", "-q"], Recognized::Xfs),
        (&["mkfs.btrfs", "-q"], Recognized::Btrfs),
        (&["mkfs.vfat"], Recognized::Fat),
        (&["mkfs.ntfs", "-q", "-F", "-f"], Recognized::Ntfs),
        (&["mkswap", "-q"], Recognized::Swap { page_bytes: 4096 }),
        (
            &[
                "cryptsetup",
                "-q",
                "luksFormat",
                "--type",
                "luks1",
                "--iter-time",
                "1",
                "--key-file",
                "/bin/true",
            ],
            Recognized::Luks,
        ),
        (&["true"], Recognized::Unknown),
    ];
    for (command, expected) in cases {
        if !has_tools(&command[..1]) {
            continue;
        }
        let disk = Disk::new(400 * MIB);
        let mut made = Command::new(command[0]);
        made.args(&command[1..])
            .arg(&disk.path)
            .current_dir(disk.dir.path());
        let made = made
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", command[0]));
        assert!(
            made.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        let file = File::open(&disk.path).unwrap();
        assert_eq!(
            recognize(&file, 0, 400 * MIB).unwrap(),
            expected,
            "{command:?}"
        );
    }
    let mut both = vec![0; 128 << 10];
    both[..4].copy_from_slice(b"XFSB");
    both[1080..1082].copy_from_slice(&[0x53, 0xef]);
    let len = both.len() as u64;
    assert_eq!(recognize(&both, 0, len).unwrap(), Recognized::Ambiguous);
}
