//! The numbers by which the kernel knows everything: which snapshot, and which row of its catalog.
//!
//! ```text
//!  63        48 47 46                              0
//! | snapshot   | 0 | row                            |   a row; 0 is the root of the snapshot
//! | snapshot   | 1 | group of hard links            |   shown by `stat` alone: see `link_groups`
//! | 0          | what                 | snapshot    |   above the snapshots
//! ```

use bale_repository::catalog::RowNumber;

const SNAPSHOT_SHIFT: u32 = 48;
/// Distinguishes groups of hard links from rows.
pub const GROUP_BIT: u64 = 1 << 47;
const ROW_MASK: u64 = GROUP_BIT - 1;
const INDEX_BITS: u32 = 16;

/// A snapshot of this mount, from 1 on, in the order in which they were seen; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotNumber(pub u16);

/// A host, from 0 on, in the order in which they were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostNumber(pub u16);

/// What a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MountNode {
    /// DIR itself.
    Root,
    /// `/snapshots`
    Snapshots,
    /// `/ids`
    Ids,
    /// `/hosts`
    Hosts,
    /// `/hosts/HOST`
    Host(HostNumber),
    /// `/latest`, as long as it leads to this one.
    Latest(SnapshotNumber),
    /// `/ids/ID`
    IdLink(SnapshotNumber),
    /// `/hosts/HOST/TIME`
    HostLink(SnapshotNumber),
    /// `/hosts/HOST/latest`, as long as it leads to this one.
    HostLatest(SnapshotNumber),
    /// `/snapshots/TIME`
    SnapshotRoot(SnapshotNumber),
    /// What is in it.
    Row(SnapshotNumber, RowNumber),
}

impl MountNode {
    /// As the kernel knows it. `None`: a catalog of more rows than numbers have room for.
    pub fn number(self) -> Option<u64> {
        let above = |what: u64, index: u16| what << INDEX_BITS | u64::from(index);
        Some(match self {
            // The kernel's own word for the root of a file system.
            MountNode::Root => above(0, 1),
            MountNode::Snapshots => above(0, 2),
            MountNode::Ids => above(0, 3),
            MountNode::Hosts => above(0, 4),
            MountNode::Host(host) => above(1, host.0),
            MountNode::Latest(snapshot) => above(2, snapshot.0),
            MountNode::IdLink(snapshot) => above(3, snapshot.0),
            MountNode::HostLink(snapshot) => above(4, snapshot.0),
            MountNode::HostLatest(snapshot) => above(5, snapshot.0),
            MountNode::SnapshotRoot(snapshot) => u64::from(snapshot.0) << SNAPSHOT_SHIFT,
            MountNode::Row(snapshot, row) => {
                let row = row.0.checked_add(1).filter(|row| *row <= ROW_MASK)?;
                u64::from(snapshot.0) << SNAPSHOT_SHIFT | row
            }
        })
    }

    /// `None`: a number that was never given.
    pub fn of(number: u64) -> Option<MountNode> {
        let index = number as u16;
        match (number >> SNAPSHOT_SHIFT) as u16 {
            0 => {
                let snapshot = SnapshotNumber(index);
                Some(match (number >> INDEX_BITS, index) {
                    (0, 1) => MountNode::Root,
                    (0, 2) => MountNode::Snapshots,
                    (0, 3) => MountNode::Ids,
                    (0, 4) => MountNode::Hosts,
                    (1, host) => MountNode::Host(HostNumber(host)),
                    (2, _) => MountNode::Latest(snapshot),
                    (3, _) => MountNode::IdLink(snapshot),
                    (4, _) => MountNode::HostLink(snapshot),
                    (5, _) => MountNode::HostLatest(snapshot),
                    _ => return None,
                })
            }
            _ if number & GROUP_BIT != 0 => None,
            snapshot => Some(match number & ROW_MASK {
                0 => MountNode::SnapshotRoot(SnapshotNumber(snapshot)),
                row => MountNode::Row(SnapshotNumber(snapshot), RowNumber(row - 1)),
            }),
        }
    }
}

/// What `stat` shows of a file of a group of hard links.
pub fn shown_of_group(snapshot: SnapshotNumber, group: u64) -> u64 {
    u64::from(snapshot.0) << SNAPSHOT_SHIFT | GROUP_BIT | group & ROW_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_enough_to_find_what_it_was_given_for() {
        let snapshot = SnapshotNumber(u16::MAX);
        let row = RowNumber(ROW_MASK - 1);
        for node in [
            MountNode::Root,
            MountNode::Snapshots,
            MountNode::Ids,
            MountNode::Hosts,
            MountNode::Host(HostNumber(0)),
            MountNode::Host(HostNumber(u16::MAX)),
            MountNode::Latest(snapshot),
            MountNode::IdLink(snapshot),
            MountNode::HostLink(SnapshotNumber(1)),
            MountNode::HostLatest(snapshot),
            MountNode::SnapshotRoot(SnapshotNumber(1)),
            MountNode::Row(SnapshotNumber(1), RowNumber(0)),
            MountNode::Row(snapshot, row),
        ] {
            let number = node.number().unwrap();
            assert_eq!(MountNode::of(number), Some(node), "{number:x}");
        }
        assert_eq!(MountNode::Root.number(), Some(1));
        assert_eq!(MountNode::Row(snapshot, RowNumber(ROW_MASK)).number(), None);
    }

    #[test]
    fn groups_are_no_rows() {
        let shown = shown_of_group(SnapshotNumber(3), 77);
        assert_eq!(MountNode::of(shown), None);
        assert_ne!(shown, shown_of_group(SnapshotNumber(4), 77));
    }
}
