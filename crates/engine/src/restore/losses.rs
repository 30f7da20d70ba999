//! What this user or this file system cannot take: counted by kind, named once.
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
    /// Sockets are never restored: their owners make them.
    Socket,
    /// Immutable, append-only, project and the like.
    InodeFlags,
    /// Times that the file system cannot hold.
    Time,
}

const KINDS: usize = 9;

impl LossKind {
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
    /// The first of them, relative to the target.
    pub first: Vec<u8>,
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
        by_kind[kind as usize]
            .get_or_insert_with(|| Loss {
                kind,
                entries: 0,
                first: path.to_vec(),
                text: text.to_owned(),
            })
            .entries += 1;
    }

    pub fn list(&self) -> Vec<Loss> {
        let by_kind = self.by_kind.lock().expect("no holder of this lock panics");
        by_kind.iter().flatten().cloned().collect()
    }
}
