//! Every maximum of the format, and the proofs that they fit together. docs/FORMAT.md names each of
//! them.

/// Plain bytes of one chunk.
pub const CHUNK_BYTES_MAX: usize = 16 << 20;
/// Length of an AEAD tag.
pub(crate) const TAG_BYTES: usize = 16;
/// Record of one chunk, head, padding and tag: a writer that cannot shrink a chunk stores it.
pub(crate) const CHUNK_RECORD_BYTES_MAX: usize = crate::record::record_bytes(CHUNK_BYTES_MAX);
/// Plaintext of a sealed object.
pub const OBJECT_PLAIN_BYTES_MAX: usize = 256 << 20;
/// One pack, trailer and all.
pub(crate) const PACK_BYTES_MAX: u64 = 16 << 30;
/// Chunks in one pack.
pub const PACK_CHUNKS_MAX: usize = 1 << 20;
/// Packs named by one index object.
pub(crate) const INDEX_PACKS_MAX: usize = 1 << 16;
/// Chunks named by one index object.
pub const INDEX_CHUNKS_MAX: usize = 1 << 20;
/// Packs in one stretch.
pub const STRETCH_PACKS_MAX: usize = 1 << 16;
/// One stretch, table and all.
pub const STRETCH_LEN_MAX: u64 = 16 << 30;
/// The `config` object.
pub const CONFIG_BYTES_MAX: usize = 64 << 10;
pub(crate) const KEY_SLOT_BYTES_MAX: usize = 16 << 10;
/// A key slot's label.
pub(crate) const KEY_LABEL_BYTES_MAX: usize = 256;
pub(crate) const KEY_FILE_BYTES_MAX: usize = 4096;
/// A key file must carry a whole key's worth of bytes.
pub(crate) const KEY_FILE_BYTES_MIN: usize = 32;
/// Memory that a key slot may ask of Argon2id.
pub(crate) const KDF_M_KIB_MAX: u32 = 2 << 20;
/// Passes that a key slot may ask of Argon2id.
pub(crate) const KDF_T_MAX: u32 = 16;
/// Lanes that a key slot may ask of Argon2id.
pub(crate) const KDF_P_MAX: u32 = 16;
/// Memory times passes: about ten seconds of one core.
pub(crate) const KDF_WORK_KIB_MAX: u64 = 8 << 20;
/// Levels of piece lists: 0 is a leaf.
pub(crate) const PIECES_DEPTH_MAX: u8 = 3;
/// Entries of one piece list.
pub(crate) const PIECES_ENTRIES_MAX: usize = 16384;
/// A set of extended attributes.
pub(crate) const XATTRS_BYTES_MAX: usize = 1 << 20;
/// Sets up to this stand in the row itself.
pub const XATTRS_INLINE_BYTES_MAX: usize = 512;
/// Name of one extended attribute.
pub(crate) const XATTR_NAME_BYTES_MAX: usize = 255;
/// Rows of one segment.
pub(crate) const SEGMENT_ROWS_MAX: u32 = 131_072;
/// A directory's path in a row.
pub const PARENT_BYTES_MAX: usize = 4 << 20;
/// A name in a row.
pub const NAME_BYTES_MAX: usize = 255;
/// Transfers that the record of a run lists.
pub const TRANSFERS_LISTED_MAX: usize = 65_536;
/// Layers of one snapshot.
pub const LAYERS_MAX: usize = 4096;
/// File systems of one snapshot.
pub(crate) const FILESYSTEMS_MAX: usize = 65_536;
/// Window that a decoder must provide for: 16 MiB, a whole chunk.
pub(crate) const ZSTD_WINDOW_LOG_MAX: u32 = 24;

/// A bundle is closed at this many bytes at the latest.
pub const BUNDLE_BYTES_MAX: usize = 4 << 20;
/// A bundle is never closed by content before this many bytes.
pub const BUNDLE_BYTES_MIN: usize = 2 << 20;

const _: () = assert!(CHUNK_BYTES_MAX <= 1 << ZSTD_WINDOW_LOG_MAX);
const _: () = assert!(PACK_CHUNKS_MAX * crate::pack::PACK_ENTRY_BYTES < OBJECT_PLAIN_BYTES_MAX);
const _: () = assert!(
    8 + INDEX_PACKS_MAX * crate::index::INDEX_PACK_BYTES
        + INDEX_CHUNKS_MAX * crate::index::INDEX_ENTRY_BYTES
        <= OBJECT_PLAIN_BYTES_MAX
);
const _: () =
    assert!(8 + PIECES_ENTRIES_MAX * crate::pieces::LEAF_ENTRY_BYTES_MAX <= CHUNK_BYTES_MAX);
const _: () = assert!(XATTRS_BYTES_MAX <= CHUNK_BYTES_MAX);
const _: () = assert!(crate::stretch::STRETCH_RECORD_BYTES_MAX <= OBJECT_PLAIN_BYTES_MAX);
// An index that names every pack of a stretch can be written.
const _: () = assert!(STRETCH_PACKS_MAX <= INDEX_PACKS_MAX && STRETCH_LEN_MAX <= PACK_BYTES_MAX);
const _: () = assert!(KEY_FILE_BYTES_MIN <= KEY_FILE_BYTES_MAX);
