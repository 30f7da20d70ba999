//! What segments point at, remembered from one prune to the next: a prune then reads the segments
//! that are new.
//!
//! A segment's name is the hash of its content, so what it points at never changes and a forgotten
//! file costs time only. The file is sealed as a whole, so that nobody without the key can make
//! one; one that is cut or changed counts as none. It serves plans: whoever deletes reads the
//! segments themselves.

use bale_format::ChunkId;
use bale_format::segment::Pointer;
use bale_repository::error::Result;
use bale_repository::repository::{Repository, SealedFile};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// All that is remembered, in memory and on disk. A segment of small files takes some 4 KB, so this
/// is 500 million files.
const REMEMBERED_BYTES_MAX: usize = 32 << 20;
/// Pointers of one segment; one with more is of large files, whose piece lists must be read in any
/// case.
const POINTERS_MAX: usize = 8192;

/// For each segment its id, how many pointers it has, and these.
const FILE: SealedFile = SealedFile {
    magic: b"BALEUSE2",
    body_bytes_max: REMEMBERED_BYTES_MAX,
};
const ID_BYTES: usize = 32;
const POINTER_BYTES: usize = 1 + ID_BYTES;
const HEAD_BYTES: usize = ID_BYTES + 4;

/// Pointers by segment: as read, and as they are to be written.
pub(super) struct Remembered<'a> {
    repository: &'a Repository,
    path: Option<PathBuf>,
    old: HashMap<ChunkId, Vec<Pointer>>,
    new: HashMap<ChunkId, Vec<Pointer>>,
    new_bytes: usize,
    learned: bool,
}

impl<'a> Remembered<'a> {
    /// What the last prune with this cache directory left.
    pub(super) fn load(repository: &'a Repository) -> Remembered<'a> {
        let path = repository
            .cache_dir()
            .ok()
            .map(|dir| dir.join("segment-uses"));
        let old = (path.as_deref())
            .and_then(|path| read(repository, path))
            .unwrap_or_default();
        Remembered {
            repository,
            path,
            old,
            new: HashMap::new(),
            new_bytes: 0,
            learned: false,
        }
    }

    /// The pointers of a segment, or what `learn` makes of it. They stay remembered.
    pub(super) fn pointers<E>(
        &mut self,
        id: &ChunkId,
        learn: impl FnOnce() -> std::result::Result<Vec<Pointer>, E>,
    ) -> std::result::Result<Vec<Pointer>, E> {
        let pointers = match self.old.remove(id) {
            Some(pointers) => pointers,
            None => {
                self.learned = true;
                learn()?
            }
        };
        let bytes = HEAD_BYTES + pointers.len() * POINTER_BYTES;
        if pointers.len() <= POINTERS_MAX && self.new_bytes + bytes <= REMEMBERED_BYTES_MAX {
            self.new_bytes += bytes;
            self.new.insert(*id, pointers.clone());
        }
        Ok(pointers)
    }

    /// What was not asked for stays, too, as far as there is room.
    pub(super) fn keep_others(&mut self) {
        for (id, pointers) in std::mem::take(&mut self.old) {
            let bytes = HEAD_BYTES + pointers.len() * POINTER_BYTES;
            if self.new_bytes + bytes <= REMEMBERED_BYTES_MAX {
                self.new_bytes += bytes;
                self.new.insert(id, pointers);
            }
        }
    }

    /// Leaves what was asked for to the next prune. If that fails, nothing is left.
    pub(super) fn save(self) {
        if let Some(path) = self.path.filter(|_| self.learned || !self.old.is_empty()) {
            let _costs_time_only = write(self.repository, &path, &self.new);
        }
    }
}

fn read(repository: &Repository, path: &Path) -> Option<HashMap<ChunkId, Vec<Pointer>>> {
    let body = FILE.load(repository, path)?;
    let mut rest = body.as_slice();
    let mut found = HashMap::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_first_chunk::<HEAD_BYTES>()?;
        let id = ChunkId::from_slice(&head[..ID_BYTES]).ok()?;
        let count = u32::from_le_bytes(head[ID_BYTES..].try_into().ok()?) as usize;
        let (pointers, after) = after.split_at_checked(count.checked_mul(POINTER_BYTES)?)?;
        let pointers = pointers.chunks_exact(POINTER_BYTES).map(decode);
        found.insert(id, pointers.collect::<Option<Vec<_>>>()?);
        rest = after;
    }
    Some(found)
}

fn decode(bytes: &[u8]) -> Option<Pointer> {
    let id = ChunkId::from_slice(&bytes[1..]).ok()?;
    match bytes[0] {
        1 => Some(Pointer::Bundle(id)),
        2 => Some(Pointer::Pieces(id)),
        3 => Some(Pointer::Xattrs(id)),
        _ => None,
    }
}

fn write(
    repository: &Repository,
    path: &Path,
    pointers: &HashMap<ChunkId, Vec<Pointer>>,
) -> Result<()> {
    let mut bytes = Vec::new();
    for (id, pointers) in pointers {
        bytes.extend_from_slice(&id.0);
        let count = u32::try_from(pointers.len()).expect("bounded above");
        bytes.extend_from_slice(&count.to_le_bytes());
        for pointer in pointers {
            let (tag, id) = match pointer {
                Pointer::Bundle(id) => (1, id),
                Pointer::Pieces(id) => (2, id),
                Pointer::Xattrs(id) => (3, id),
            };
            bytes.push(tag);
            bytes.extend_from_slice(&id.0);
        }
    }
    FILE.save(repository, path, &bytes)
}
