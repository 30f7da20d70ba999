//! What this user or this file system cannot take, and what the backup did not have: counted by
//! kind, the first few named.
//!
//! A million files that a user cannot give back to root are one fact, not a million problems.

use bale_format::{Entry, EntryFlags, Kind};
use bale_pipeline::amount;
use std::sync::Mutex;

/// What was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LossKind {
    /// Owner or group: only root gives files away.
    Owner,
    /// Set-user-id or set-group-id, because the owner is not the one it was meant for.
    SetId,
    /// File capabilities.
    Capability,
    /// POSIX access control lists.
    Acl,
    /// Other extended attributes.
    Xattr,
    /// Device nodes and named pipes.
    Special,
    /// Sockets, where the file system takes none. Nothing is lost: the programs that listen make
    /// them.
    Socket,
    /// Immutable, append-only, project and the like.
    InodeFlags,
    /// Times that the file system cannot hold.
    Time,
    /// Attributes that the backup could not read: the snapshot does not have them.
    XattrsUnread,
    /// Files that changed while the backup read them. What it read is there; it may be of two
    /// states.
    Changed,
    /// Directories whose content the backup left out on purpose.
    NotCrossed,
    /// Of a zip: further names of one inode, which are files of their own there.
    HardLink,
    /// Of a zip: extended attributes and access control lists.
    NotInZip,
}

/// Paths named of each kind of loss.
pub const LOSS_PATHS_LISTED_MAX: usize = 10;

const KINDS: usize = 14;

impl LossKind {
    /// Worth telling, but no reason to call the restore incomplete.
    pub fn is_note(self) -> bool {
        matches!(
            self,
            LossKind::Socket
                | LossKind::Changed
                | LossKind::NotCrossed
                | LossKind::HardLink
                | LossKind::NotInZip
        )
    }

    /// For people, plural.
    pub fn text(self) -> &'static str {
        match self {
            LossKind::Owner => "owners",
            LossKind::SetId => "set-user-id and set-group-id bits",
            LossKind::Capability => "file capabilities",
            LossKind::Acl => "access control lists",
            LossKind::Xattr => "extended attributes",
            LossKind::Special => "device nodes and named pipes",
            LossKind::Socket => "sockets",
            LossKind::InodeFlags => "inode flags",
            LossKind::Time => "times",
            LossKind::XattrsUnread => "extended attributes that the backup could not read",
            LossKind::Changed => "a single state of the content",
            LossKind::NotCrossed => "content of directories that was left out on purpose",
            LossKind::HardLink => "hard links",
            LossKind::NotInZip => "extended attributes and access control lists",
        }
    }
}

/// What a row says that the backup could not do, or did not do on purpose, and why. That content is
/// missing is a problem of its own.
pub fn of_flags(flags: EntryFlags) -> impl Iterator<Item = (LossKind, &'static str)> {
    let kinds = [
        (
            EntryFlags::XATTRS_UNREADABLE,
            LossKind::XattrsUnread,
            "the snapshot does not have them",
        ),
        (
            EntryFlags::CHANGED,
            LossKind::Changed,
            "it changed while the backup read it",
        ),
        (
            EntryFlags::NOT_CROSSED,
            LossKind::NotCrossed,
            "another file system, or a mark that leaves it out",
        ),
    ];
    let told = kinds.into_iter().filter(move |(flag, ..)| flags.has(*flag));
    told.map(|(_, kind, text)| (kind, text))
}

/// What is missing of the content of a row, in words.
pub fn missing_content(entry: &Entry) -> Option<&'static str> {
    let flags = entry.flags;
    if entry.kind == Kind::Directory && flags.has(EntryFlags::UNREADABLE) {
        return Some("its children could not be read by the backup");
    }
    let incomplete = entry.kind == Kind::File && flags.has(EntryFlags::INCOMPLETE);
    incomplete.then_some("part of its content could not be read by the backup")
}

/// How much of a file is missing, in words.
pub(crate) fn missing_of(entry: &Entry, missing: u64) -> String {
    match missing {
        0 => "part of it is missing".to_owned(),
        missing => format!(
            "part of it is missing, {} of {} {}",
            amount::count(missing),
            amount::counted(entry.size, "byte"),
            if missing == 1 {
                "is a zero"
            } else {
                "are zeros"
            },
        ),
    }
}

/// All losses of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub kind: LossKind,
    /// On how many entries.
    pub entries: u64,
    /// The first [`LOSS_PATHS_LISTED_MAX`] of them, relative to the target; never empty.
    pub paths: Vec<Vec<u8>>,
    /// Why, of the first.
    pub text: String,
}

/// Shared by all threads; the lock is only taken when something is lost.
#[derive(Default)]
pub struct Losses {
    by_kind: Mutex<[Option<Loss>; KINDS]>,
}

impl Losses {
    pub(crate) fn add(&self, kind: LossKind, path: &[u8], text: &str) {
        let mut by_kind = self.by_kind.lock().expect("no holder of this lock panics");
        let loss = by_kind[kind as usize].get_or_insert_with(|| Loss {
            kind,
            entries: 0,
            paths: Vec::new(),
            text: text.to_owned(),
        });
        loss.entries += 1;
        if loss.paths.len() < LOSS_PATHS_LISTED_MAX {
            loss.paths.push(path.to_vec());
        }
    }

    pub(crate) fn list(&self) -> Vec<Loss> {
        let by_kind = self.by_kind.lock().expect("no holder of this lock panics");
        by_kind.iter().flatten().cloned().collect()
    }
}
