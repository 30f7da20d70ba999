//! Where snapshots come from: what a mount is given.

use bale_format::{ObjectId, Snapshot, Time};
use bale_repository::catalog::CatalogReader;
use bale_restore::CatalogSource;
use std::sync::Arc;

/// Why a snapshot, or which there are, cannot be had.
pub type StoreTrouble = Box<dyn std::error::Error + Send + Sync>;

/// The catalog of one snapshot, for those who want a row and those who want an image.
pub struct SnapshotCatalogs {
    /// Of a source that keeps decoded segments (`bale_repository::catalog::KeptSegments`), or each
    /// look-up decodes one.
    pub rows: CatalogReader,
    pub images: Arc<dyn CatalogSource + Send>,
}

/// The snapshots of a repository; used by many threads at once.
pub trait SnapshotStore: Send + Sync {
    /// Which there are now, of those that are to be shown or were not read yet.
    fn list(&self) -> Result<Vec<ObjectId>, StoreTrouble>;

    /// Reads one; `None`: it is not to be shown.
    fn read(&self, id: &ObjectId) -> Result<Option<Snapshot>, StoreTrouble>;

    /// Opens a catalog; reads nothing of it.
    fn open(&self, snapshot: &Snapshot) -> Result<SnapshotCatalogs, StoreTrouble>;

    /// What time it is.
    fn now(&self) -> Time;
}
