//! The root key and everything derived from it. docs/FORMAT.md, section 3.
//!
//! Chunk ids are keyed and bound to their kind, so that nobody without the key can test whether a
//! repository holds some known file, and a piece list can never pass for data.

use crate::chunk::ChunkKind;
use crate::gear::GearTable;
use crate::id::{ChunkId, RepositoryId};
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

const CONTEXT_CONFIG: &str = "bale 1 config";
const CONTEXT_OBJECT: &str = "bale 1 object";
const CONTEXT_PACK: &str = "bale 1 pack";
const CONTEXT_CONTENT: &str = "bale 1 content hash";
const CONTEXT_GEAR: &str = "bale 1 gear";

/// The 32 bytes that all else comes from. Wiped when dropped.
#[derive(Clone)]
pub struct RootKey(Zeroizing<[u8; 32]>);

impl RootKey {
    /// From 32 random bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> RootKey {
        RootKey(Zeroizing::new(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootKey(..)")
    }
}

/// All keys of one repository. A clone is a reference.
#[derive(Clone)]
pub struct Keys(Arc<Derived>);

struct Derived {
    repository: RepositoryId,
    config: Zeroizing<[u8; 32]>,
    object: Zeroizing<[u8; 32]>,
    pack: Zeroizing<[u8; 32]>,
    chunk_ids: [Zeroizing<[u8; 32]>; ChunkKind::ALL.len()],
    content: Zeroizing<[u8; 32]>,
    gear: GearTable,
}

impl Keys {
    /// Everything follows from the root key; the repository id is bound into every seal.
    pub fn derive(root: &RootKey, repository: RepositoryId) -> Keys {
        let derive = |context: &str| Zeroizing::new(blake3::derive_key(context, root.bytes()));
        Keys(Arc::new(Derived {
            repository,
            config: derive(CONTEXT_CONFIG),
            object: derive(CONTEXT_OBJECT),
            pack: derive(CONTEXT_PACK),
            chunk_ids: ChunkKind::ALL.map(|kind| derive(kind.id_context())),
            content: derive(CONTEXT_CONTENT),
            gear: GearTable::from_key(&derive(CONTEXT_GEAR)),
        }))
    }

    /// The repository these keys belong to.
    pub fn repository(&self) -> RepositoryId {
        self.0.repository
    }

    pub fn chunk_id(&self, kind: ChunkKind, plain: &[u8]) -> ChunkId {
        let key = &self.0.chunk_ids[kind.position()];
        ChunkId(*blake3::keyed_hash(key, plain).as_bytes())
    }

    /// Name of a chunk that comes in portions.
    pub fn chunk_hasher(&self, kind: ChunkKind) -> ChunkHasher {
        ChunkHasher(blake3::Hasher::new_keyed(
            &self.0.chunk_ids[kind.position()],
        ))
    }

    /// Keys [`Keys::content_hash`], for who hashes many contents at once: the first 16 bytes of
    /// each keyed BLAKE3.
    pub fn content_key(&self) -> &[u8; 32] {
        &self.0.content
    }

    /// Of a bundled file's bytes, or of the plaintext of a file's root piece list.
    pub fn content_hash(&self, bytes: &[u8]) -> [u8; 16] {
        let hash = blake3::keyed_hash(&self.0.content, bytes);
        hash.as_bytes()[..16]
            .try_into()
            .expect("a hash is longer than 16 bytes")
    }

    /// Where large files are cut.
    pub fn gear_table(&self) -> &GearTable {
        &self.0.gear
    }

    /// Second line of a `config` with this first line.
    pub fn config_mac(&self, line: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.0.config, line)
    }

    /// Key of one sealed object.
    pub(crate) fn object_seal_key(&self, salt: &[u8; 32]) -> [u8; 32] {
        derive_salted("bale 1 object seal", &self.0.object, salt)
    }

    /// The salt of an object to be sealed: as random as `random`, and another for another plaintext
    /// even if a machine was set back and draws the same again.
    pub(crate) fn object_salt(&self, random: &[u8; 32], object_type: u8, plain: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("bale 1 object salt");
        hasher.update(&*self.0.object);
        hasher.update(random);
        hasher.update(&[object_type]);
        hasher.update(plain);
        *hasher.finalize().as_bytes()
    }

    /// Keys of one pack: of heads, of bodies, of nonces.
    pub(crate) fn pack_seal_keys(&self, salt: &[u8; 32]) -> Zeroizing<[[u8; 32]; 3]> {
        let mut keys = Zeroizing::new([[0; 32]; 3]);
        let mut hasher = blake3::Hasher::new_derive_key("bale 1 pack seal");
        hasher.update(&*self.0.pack);
        hasher.update(salt);
        hasher.finalize_xof().fill(keys.as_flattened_mut());
        keys
    }
}

/// Makes the id of a chunk from its bytes in order; what [`Keys::chunk_id`] says of all at once.
pub struct ChunkHasher(blake3::Hasher);

impl ChunkHasher {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The id of what came, and the beginning of another chunk.
    pub fn finish(&mut self) -> ChunkId {
        let id = ChunkId(*self.0.finalize().as_bytes());
        self.0.reset();
        id
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys(of {})", self.0.repository)
    }
}

/// `derive_key(context, key || salt)`.
fn derive_salted(context: &str, key: &[u8; 32], salt: &[u8; 32]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    hasher.update(key);
    hasher.update(salt);
    *hasher.finalize().as_bytes()
}
