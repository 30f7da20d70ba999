//! What this user or this file system cannot take: counted by kind, the first few named.
//!
//! A million files that a user cannot give back to root are one fact, not a million problems.

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
    /// Sockets, where the file system takes none. Nothing is lost: the programs that listen make them.
    Socket,
    /// Immutable, append-only, project and the like.
    InodeFlags,
    /// Times that the file system cannot hold.
    Time,
}

/// Paths named of each kind of loss.
pub const LOSS_PATHS_LISTED_MAX: usize = 10;

const KINDS: usize = 9;

impl LossKind {
    /// Worth telling, but no reason to call the restore incomplete.
    pub fn is_note(self) -> bool {
        self == LossKind::Socket
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
        }
    }
}

/// All losses of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What.
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
    pub fn add(&self, kind: LossKind, path: &[u8], text: &str) {
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

    pub fn list(&self) -> Vec<Loss> {
        let by_kind = self.by_kind.lock().expect("no holder of this lock panics");
        by_kind.iter().flatten().cloned().collect()
    }
}
