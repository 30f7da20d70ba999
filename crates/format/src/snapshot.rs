//! A snapshot: the record that makes a backup visible. Written last.
//!
//! JSON inside a sealed object (docs/FORMAT.md, section 8). Paths are base64 of their bytes.

use crate::entry::{Key, Time};
use crate::id::{ChunkId, ObjectId};
use crate::transfers::Transfers;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Stands in `source_filesystems` for a source that is backed up as it is, byte by byte.
pub const SOURCE_IS_RAW: &str = "raw";
/// The same for what came from standard input or a command.
pub const SOURCE_IS_STREAM: &str = "stream";
/// Images of one snapshot.
pub const IMAGES_MAX: usize = 1024;
/// Views of one image, and of all images of a snapshot.
pub const VIEWS_MAX: usize = 4096;
/// Runs of blocks that an image names as left out.
pub const LEFT_OUT_RUNS_MAX: usize = 256;
/// Directories of a view that its record names as its densest.
pub const DENSEST_MAX: usize = 10;
/// Of one of them; those with longer paths are not named.
pub const DENSEST_PATH_BYTES_MAX: usize = 1024;
/// Stands in `filesystems` for a source that is itself a file system, read as an image.
pub const SOURCE_IS_IMAGE: &str = "image";
/// Problems listed by name in a snapshot; all are counted.
pub const PROBLEMS_LISTED_MAX: usize = 1000;
/// Snapshots that one names as those in whose place it is.
pub const REPLACES_LISTED_MAX: usize = 64;
/// Paths that a snapshot can say were left out without a row.
pub const WITHHELD_LISTED_MAX: usize = 1000;

/// One committed backup, or what an unfinished one has finished so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of this record: 1, or 2 of one with images.
    pub version: u32,
    /// The run that made it, 32 hex digits.
    pub run: String,
    /// Rows at or after `until` are missing.
    #[serde(default)]
    pub partial: bool,
    /// Of a partial one: the first key that may be missing.
    #[serde(
        default,
        with = "key_text_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub until: Option<Key>,
    /// When the run started.
    pub time: Time,
    /// When this record was written.
    pub finished: Time,
    pub host: String,
    pub user: String,
    /// Program and version.
    pub program: String,
    #[serde(default)]
    pub tags: Vec<String>,
    /// No rule and no id removes it, until that is taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Snapshots of this repository in whose place it is, the oldest first: other tags, or without
    /// what was excluded later. At most [`REPLACES_LISTED_MAX`], the last ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<ObjectId>,
    /// Sources: absolute, without trailing slash (`/` itself is `/`).
    pub paths: Vec<PathText>,
    /// File systems that the sources are on, as far as known, sorted: UUIDs, of those without a
    /// device `KIND:WHAT WAS MOUNTED`, or `image` of a source that is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_filesystems: Vec<String>,
    /// Excludes as given.
    #[serde(default)]
    pub excludes: Vec<String>,
    /// What has no row though no exclude names it: names of the key files in use, files mounted
    /// from another file system. Sorted, at most [`WITHHELD_LISTED_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<PathText>,
    /// There is more of that than `withheld` names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld_more: bool,
    /// Rows say when entries were last accessed, as this run found it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub atimes: bool,
    /// Snapshot compared against.
    #[serde(default)]
    pub parent: Option<ObjectId>,
    /// Of a copy: the snapshot that was copied first of all, in whatever repository that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<ObjectId>,
    /// File systems that rows point at.
    #[serde(default)]
    pub filesystems: Vec<Filesystem>,
    /// Images of devices, in the order of their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRecord>,
    /// Of the whole snapshot.
    #[serde(default)]
    pub totals: Totals,
    /// Of this run.
    #[serde(default)]
    pub counts: Counts,
    /// Packs that this run sent to a server.
    #[serde(default, skip_serializing_if = "Transfers::is_empty")]
    pub transfers: Transfers,
    /// At most [`PROBLEMS_LISTED_MAX`].
    #[serde(default)]
    pub problems: Vec<ProblemRecord>,
    /// Catalog, oldest layer first.
    #[serde(default)]
    pub layers: Vec<Layer>,
    /// Data chunks used but little.
    #[serde(default)]
    pub thin: Vec<ChunkId>,
}

/// A file system that entries came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    /// UUID or other stable identity, as text; empty if none is known.
    pub uuid: String,
    /// `ext4`, `xfs` ...
    pub kind: String,
    pub mount: PathText,
    /// `walk` or `inode`.
    pub scanner: String,
    /// Entries with a ctime at or after this are read again by the next backup.
    pub barrier: Option<Time>,
}

/// What a snapshot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Regular files, every name counted.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Everything else.
    pub others: u64,
    /// Bytes of regular files, every name counted.
    pub bytes: u64,
    /// Rows whose inode has several names.
    pub hard_links: u64,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Not in the parent.
    pub files_new: u64,
    /// Other than in the parent.
    pub files_changed: u64,
    /// As in the parent, not read.
    pub files_unmodified: u64,
    /// Read from the source.
    pub bytes_read: u64,
    /// Written to the repository.
    pub bytes_stored: u64,
    /// What the rest of what was read takes there, as it was there before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_stored_before: u64,
    /// Problems, listed or not.
    pub problems: u64,
}

/// A problem of one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemRecord {
    /// Path, absolute.
    pub path: PathText,
    /// What was attempted: `read`, `list`, `stat` ...
    pub action: String,
    /// Why it failed.
    pub text: String,
}

/// An image of a device: how it was read, and what the next backup may believe of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Path of its row, absolute.
    pub path: PathText,
    /// Device or file that it is of, absolute.
    pub source: PathText,
    pub how: ImageState,
    /// Who said what had changed; `none` where everything was read.
    pub tracker: String,
    /// What the tracker needs to say what changed after this snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<String>,
    /// Blocks that were not read, as the file system that each belongs to had all of it as free:
    /// `[first, count]` in blocks of [`IMAGE_BLOCK_BYTES`](crate::extent::IMAGE_BLOCK_BYTES), in
    /// order. A superset: runs that are close may be one. At most [`LEFT_OUT_RUNS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<(u64, u64)>,
    /// The files in it: a directory for each file system. At most [`VIEWS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<ImageView>,
}

/// A directory whose rows are the files of a file system in an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageView {
    /// Path of its row, absolute: a child of the root.
    pub path: PathText,
    /// `ext4`, `xfs` ...
    pub kind: String,
    /// As text; empty if none is known.
    pub uuid: String,
    /// Of its rows, which those of the snapshot do not count.
    pub totals: Totals,
    /// Trouble met while it was listed: it is listed again by the next backup.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub problems: u64,
    /// Of its files, what is in no block that is stored of the image: also then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_apart: u64,
    /// Why it has no rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_listed: Option<String>,
    /// Its directories with the most entries, densest first. At most [`DENSEST_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub densest: Vec<DenseDirectory>,
}

/// A directory, and how many entries are directly in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenseDirectory {
    /// Absolute. At most [`DENSEST_PATH_BYTES_MAX`].
    pub path: PathText,
    pub children: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Whether the bytes of an image are of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageState {
    /// A point in time that whoever serves the device holds.
    Export,
    /// A storage snapshot.
    Snapshot,
    /// The file system in it was frozen.
    Frozen,
    /// Nobody had the device in use, or could begin to use it.
    Unmounted,
    /// A file that nobody wrote to, as far as can be seen.
    Still,
    /// It was in use, or changed while it was read: its bytes may be of several moments.
    Fuzzy,
}

impl ImageState {
    /// As in the record.
    pub fn text(self) -> &'static str {
        match self {
            ImageState::Export => "export",
            ImageState::Snapshot => "snapshot",
            ImageState::Frozen => "frozen",
            ImageState::Unmounted => "unmounted",
            ImageState::Still => "still",
            ImageState::Fuzzy => "fuzzy",
        }
    }
}

/// One sorted sequence of rows; newer layers hide older rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Rows in all its segments that count.
    pub rows: u64,
    /// Segments in key order, not overlapping.
    pub segments: Vec<SegmentRef>,
}

/// One stored segment of a catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRef {
    /// Chunk of kind segment.
    pub id: ChunkId,
    /// Rows in the segment.
    pub rows: u32,
    /// Bytes of the regular files in it.
    pub bytes: u64,
    #[serde(with = "key_text")]
    pub first: Key,
    #[serde(with = "key_text")]
    pub last: Key,
    /// Rows before this do not count.
    #[serde(
        default,
        with = "key_text_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub from: Option<Key>,
    /// Rows at or after this do not count.
    #[serde(
        default,
        with = "key_text_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub to: Option<Key>,
}

impl SegmentRef {
    /// The first key that counts: of two parts of one segment, `first` is the same.
    pub fn start(&self) -> &Key {
        self.from
            .as_ref()
            .map_or(&self.first, |from| from.max(&self.first))
    }
}

/// A path of any bytes; base64 in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathText(pub Vec<u8>);

impl Serialize for PathText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64
            .decode(text)
            .map(PathText)
            .map_err(serde::de::Error::custom)
    }
}

mod key_text {
    use super::{BASE64, Bytes, Deserialize, Key, Serialize};
    use base64::Engine as _;

    pub(crate) fn serialize<S: serde::Serializer>(
        key: &Key,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        [BASE64.encode(&key.parent), BASE64.encode(&key.name)].serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Key, D::Error> {
        let [parent, name] = <[String; 2]>::deserialize(deserializer)?;
        let bytes = |text: String| {
            BASE64
                .decode(text)
                .map(Bytes::from)
                .map_err(serde::de::Error::custom)
        };
        Ok(Key {
            parent: bytes(parent)?,
            name: bytes(name)?,
        })
    }
}

mod key_text_option {
    use super::{Deserialize, Key};

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Wrapped(#[serde(with = "super::key_text")] Key);

    pub(crate) fn serialize<S: serde::Serializer>(
        key: &Option<Key>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match key {
            Some(key) => super::key_text::serialize(key, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Key>, D::Error> {
        Ok(Option::<Wrapped>::deserialize(deserializer)?.map(|wrapped| wrapped.0))
    }
}
