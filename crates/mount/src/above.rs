//! The directories above the snapshots: `/snapshots`, `/ids`, `/hosts`, and links to the latest.
//!
//! A snapshot is in one place, `/snapshots/TIME`; everything else leads there by links, so that
//! what the kernel keeps of its files is kept once.

use crate::attributes::NodeAttributes;
use crate::limits::TOP_LASTS;
use crate::numbers::{HostNumber, MountNode, SnapshotNumber};
use crate::shown::{ShownNow, ShownSnapshot};
use bale_format::{Kind, Time};
use std::sync::Arc;

/// Who mounted: the owner of what is above the snapshots.
#[derive(Clone, Copy, Debug)]
pub struct MountOwner {
    pub uid: u32,
    pub gid: u32,
}

/// Places of `.` and `..` in a listing; behind them come those of entries.
pub const DOT: u64 = 1;
pub const DOT_DOT: u64 = 2;

const LATEST: &[u8] = b"latest";
/// Of the links called so, behind those of snapshots.
const LATEST_COOKIE: u64 = 1 << 32;

/// An entry of a directory above the snapshots, and where it is in the listing.
pub struct EntryAbove {
    pub name: Vec<u8>,
    pub node: MountNode,
    pub cookie: u64,
}

/// What a directory has of this name.
pub fn lookup(now: &ShownNow, directory: MountNode, name: &[u8]) -> Option<MountNode> {
    match directory {
        MountNode::Root => match name {
            LATEST => now.latest.map(MountNode::Latest),
            b"snapshots" => Some(MountNode::Snapshots),
            b"ids" => Some(MountNode::Ids),
            b"hosts" => Some(MountNode::Hosts),
            _ => None,
        },
        MountNode::Snapshots => {
            (now.named(name)).map(|snapshot| MountNode::SnapshotRoot(snapshot.number))
        }
        MountNode::Ids => now
            .of_id(name)
            .map(|snapshot| MountNode::IdLink(snapshot.number)),
        MountNode::Hosts => now.host_named(name).map(MountNode::Host),
        MountNode::Host(host) => match name {
            LATEST => latest_of(now, host).map(MountNode::HostLatest),
            _ => {
                let snapshot = now.named(name)?;
                (snapshot.host == host).then_some(MountNode::HostLink(snapshot.number))
            }
        },
        _ => None,
    }
}

fn latest_of(now: &ShownNow, host: HostNumber) -> Option<SnapshotNumber> {
    now.hosts.get(&host).copied().flatten()
}

/// The entries of a directory behind a place, in the order in which they were seen: what comes
/// while somebody lists comes last.
pub fn list(now: &ShownNow, directory: MountNode, cookie: u64) -> Vec<EntryAbove> {
    let entry = |name: &[u8], node, cookie| EntryAbove {
        name: name.to_vec(),
        node,
        cookie,
    };
    let of_snapshot = |snapshot: &Arc<ShownSnapshot>, name: &str, node| {
        let place = DOT_DOT + u64::from(snapshot.number.0);
        entry(name.as_bytes(), node, place)
    };
    let all = now.snapshots.values();
    let mut entries: Vec<EntryAbove> = match directory {
        MountNode::Root => {
            let fixed = [
                (&b"snapshots"[..], MountNode::Snapshots),
                (b"ids", MountNode::Ids),
                (b"hosts", MountNode::Hosts),
            ];
            let fixed = (DOT_DOT + 1..).zip(fixed);
            let fixed = fixed.map(|(place, (name, node))| entry(name, node, place));
            let latest = now.latest.map(MountNode::Latest);
            fixed
                .chain(latest.map(|node| entry(LATEST, node, LATEST_COOKIE)))
                .collect()
        }
        MountNode::Snapshots => all
            .map(|shown| of_snapshot(shown, &shown.name, MountNode::SnapshotRoot(shown.number)))
            .collect(),
        MountNode::Ids => all
            .map(|shown| of_snapshot(shown, &shown.id_name, MountNode::IdLink(shown.number)))
            .collect(),
        MountNode::Hosts => {
            let hosts = now.hosts.keys().map(|host| {
                let place = DOT_DOT + 1 + u64::from(host.0);
                entry(
                    now.host_name(*host).as_bytes(),
                    MountNode::Host(*host),
                    place,
                )
            });
            hosts.collect()
        }
        MountNode::Host(host) => {
            let latest = latest_of(now, host).map(MountNode::HostLatest);
            all.filter(|shown| shown.host == host)
                .map(|shown| of_snapshot(shown, &shown.name, MountNode::HostLink(shown.number)))
                .chain(latest.map(|node| entry(LATEST, node, LATEST_COOKIE)))
                .collect()
        }
        _ => Vec::new(),
    };
    entries.retain(|entry| entry.cookie > cookie);
    entries
}

/// The directory that one is in.
pub fn parent(directory: MountNode) -> MountNode {
    match directory {
        MountNode::Host(_) => MountNode::Hosts,
        MountNode::SnapshotRoot(_) => MountNode::Snapshots,
        _ => MountNode::Root,
    }
}

/// Where a link leads; `None`: it is none.
pub fn target(node: MountNode, snapshot: &ShownSnapshot) -> Option<String> {
    let name = &snapshot.name;
    match node {
        MountNode::Latest(_) => Some(format!("snapshots/{name}")),
        MountNode::IdLink(_) => Some(format!("../snapshots/{name}")),
        MountNode::HostLink(_) => Some(format!("../../snapshots/{name}")),
        MountNode::HostLatest(_) => Some(name.clone()),
        _ => None,
    }
}

/// Of a directory or a link, made or changed at this moment.
pub fn attributes(
    (number, kind): (u64, Kind),
    owner: MountOwner,
    time: Time,
    size: u64,
) -> NodeAttributes {
    NodeAttributes {
        number,
        shown: number,
        kind,
        mode: match kind {
            Kind::Symlink => 0o777,
            _ => 0o555,
        },
        uid: owner.uid,
        gid: owner.gid,
        size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        nlink: match kind {
            Kind::Directory => 2,
            _ => 1,
        },
        rdev: 0,
        lasts: TOP_LASTS,
        is_partly_known: false,
    }
}
