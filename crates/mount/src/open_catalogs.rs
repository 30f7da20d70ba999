//! Catalogs of the snapshots that somebody looks into, the last few of them kept open.

use crate::latest_used::LatestUsed;
use crate::limits::CATALOGS_OPEN_MAX;
use crate::numbers::SnapshotNumber;
use crate::shown::ShownSnapshot;
use crate::store::{SnapshotStore, StoreTrouble};
use bale_format::Entry;
use bale_repository::catalog::{NumberedCatalog, Result, RowNumber};
use bale_restore::CatalogSource;
use std::sync::{Arc, Mutex, PoisonError};

/// A catalog that is open.
pub struct OpenCatalog {
    pub rows: NumberedCatalog,
    /// For the bytes of images.
    pub images: Arc<dyn CatalogSource + Send>,
}

impl OpenCatalog {
    /// The row of the root, if it has one.
    pub fn root(&self) -> Result<Option<Entry>> {
        Ok(self.rows.lookup(b"")?.map(|(_, row)| row))
    }

    /// Path of a row, without leading slash; `None`: there is no such row.
    pub fn path(&self, row: RowNumber) -> Result<Option<Vec<u8>>> {
        Ok(self.rows.row(row)?.map(|row| row.path()))
    }
}

/// Used by many threads at once.
pub struct OpenCatalogs {
    store: Arc<dyn SnapshotStore>,
    open: Mutex<LatestUsed<SnapshotNumber, Arc<OpenCatalog>>>,
}

impl OpenCatalogs {
    pub fn new(store: Arc<dyn SnapshotStore>) -> OpenCatalogs {
        OpenCatalogs {
            store,
            open: Mutex::new(LatestUsed::new(CATALOGS_OPEN_MAX)),
        }
    }

    /// One that is open already.
    pub fn known(&self, number: SnapshotNumber) -> Option<Arc<OpenCatalog>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&number)
    }

    /// Opens it, if it is not: its record is read. `None`: it is not there any more.
    pub fn open(
        &self,
        shown: &ShownSnapshot,
    ) -> std::result::Result<Arc<OpenCatalog>, StoreTrouble> {
        if let Some(catalog) = self.known(shown.number) {
            return Ok(catalog);
        }
        let snapshot = self.store.read(&shown.id)?;
        let snapshot = snapshot.ok_or("the snapshot is not to be shown any more")?;
        let catalogs = self.store.open(&snapshot)?;
        let catalog = Arc::new(OpenCatalog {
            rows: NumberedCatalog::new(catalogs.rows),
            images: catalogs.images,
        });
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.put(shown.number, catalog.clone());
        Ok(catalog)
    }
}
