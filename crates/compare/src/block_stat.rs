//! What a block device did, as `/sys/block/NAME/stat` counts it.

use std::path::Path;

/// The kernel's sectors in these counters, whatever the device's are.
const SECTOR_BYTES: u64 = 512;

/// Operations and bytes since the device was made; differences are what a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockStat {
    /// Read operations completed.
    pub reads: u64,
    pub read_bytes: u64,
    /// Write operations completed.
    pub writes: u64,
    pub written_bytes: u64,
}

impl BlockStat {
    /// Reads the line of `stat`: read operations, merged, sectors, milliseconds, then the same for
    /// writes.
    pub fn parse(line: &str) -> Option<BlockStat> {
        let fields: Option<Vec<u64>> = line
            .split_ascii_whitespace()
            .take(8)
            .map(|field| field.parse().ok())
            .collect();
        let fields = fields.filter(|fields| fields.len() == 8)?;
        Some(BlockStat {
            reads: fields[0],
            read_bytes: fields[2].checked_mul(SECTOR_BYTES)?,
            writes: fields[4],
            written_bytes: fields[6].checked_mul(SECTOR_BYTES)?,
        })
    }

    /// Of a device such as `/dev/loop3`.
    pub(super) fn of_device(device: &Path) -> Option<BlockStat> {
        let name = device.file_name()?;
        let text = std::fs::read_to_string(Path::new("/sys/block").join(name).join("stat")).ok()?;
        BlockStat::parse(&text)
    }

    /// What happened since.
    pub(super) fn since(self, before: BlockStat) -> BlockStat {
        BlockStat {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read() {
        let line = "    8925        3  2113528     4441      120       77    90112      310        \
            0     3220     4790        0        0        0        0       12       38\n";
        assert_eq!(
            BlockStat::parse(line),
            Some(BlockStat {
                reads: 8925,
                read_bytes: 2_113_528 * 512,
                writes: 120,
                written_bytes: 90_112 * 512,
            })
        );
    }

    #[test]
    fn old_kernels_with_fewer_fields_are_read_and_nonsense_is_not() {
        assert!(BlockStat::parse("1 2 3 4 5 6 7 8 9 10 11").is_some());
        for wrong in [
            "",
            "1 2 3 4 5 6 7",
            "1 2 x 4 5 6 7 8",
            "1 2 18446744073709551615 4 5 6 7 8",
        ] {
            assert_eq!(BlockStat::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_difference_never_wraps() {
        let later = BlockStat {
            reads: 5,
            ..BlockStat::default()
        };
        let before = BlockStat {
            reads: 3,
            writes: 9,
            ..BlockStat::default()
        };
        assert_eq!(
            later.since(before),
            BlockStat {
                reads: 2,
                ..BlockStat::default()
            }
        );
    }
}
