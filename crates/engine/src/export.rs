//! Export: images of a snapshot, served to other programs at once and without being restored.
//!
//! Nothing is written to the repository; what clients write, if they may, goes to a file of this
//! machine that is laid over an image. What cannot be read fails the requests that need it, is a
//! problem, and does not end the export.

mod convert;
mod image;
mod unfinished;

use crate::dump::options_of;
use crate::restore::{RepositoryChunks, SnapshotCatalog, into_engine_error};
use bale_nbd::{NbdExport, NbdOverlay, NbdServer, NbdServerAddress, NbdUri, OverlayOf};
use bale_pipeline::error::with_causes;
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use bale_repository::snapshots::clean_path;
use bale_restore::image_reader::{CachedChunks, IMAGES_AT_ONCE_MAX};
use bale_restore::{
    CatalogSource, ChunkSource, ReadableChunks, ScratchSpace, Warmer, make_readable,
};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use convert::{Converted, convert_image};
pub use image::ImageExport;

/// Between two looks at what clients did.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What is served, and to whom.
pub struct ExportOptions {
    pub address: NbdServerAddress,
    /// The end comes when the last client has gone.
    pub is_once: bool,
}

/// What was done when an export ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Connections that chose an image.
    pub clients: u64,
    /// That they were sent.
    pub bytes_read: u64,
    pub problems: u64,
}

/// The images at and below a path (without leading slash) of a snapshot, once a warmer has made
/// readable what they need.
pub fn open_images(
    repository: &Arc<Repository>,
    snapshot: &Named,
    path: &[u8],
    warmer: Option<Box<dyn Warmer>>,
    scratch: &ScratchSpace,
    monitor: &dyn Monitor,
) -> Result<(Vec<Arc<ImageExport>>, u64)> {
    let catalog = SnapshotCatalog::of(repository, &snapshot.1)?;
    let paths = image_paths(&catalog, snapshot, path)?;
    if paths.len() > IMAGES_AT_ONCE_MAX {
        return Err(Error::Other(format!(
            "{} images: at most {IMAGES_AT_ONCE_MAX} are served at once. Name one: SNAP:/IMAGE",
            paths.len()
        )));
    }
    let chunks = RepositoryChunks::new(repository.clone())?;
    let (chunks, problems): (Arc<dyn ChunkSource + Send>, u64) = match warmer {
        None => (Arc::new(chunks), 0),
        Some(warmer) => {
            let mut options = options_of(path);
            options.warmer = Some(&*warmer);
            let made = make_readable(&catalog, &chunks, scratch, &options, monitor, &*warmer);
            let problems = made.map_err(|error| into_engine_error(error, snapshot, &options))?;
            (Arc::new(WarmedChunks { chunks, warmer }), problems)
        }
    };
    let catalog: Arc<dyn CatalogSource + Send> = Arc::new(catalog);
    let chunks = CachedChunks::start(chunks, &repository.memory());
    let chunks =
        chunks.map_err(|error| Error::Other(format!("start threads that read ahead: {error}")))?;
    let chunks = Arc::new(chunks);
    let (mut images, count) = (Vec::new(), paths.len());
    for path in paths {
        let image = ImageExport::open(&catalog, (&chunks, count), path, snapshot)?;
        images.push(Arc::new(image));
    }
    Ok((images, problems))
}

/// Paths without leading slash. A path that is no image is refused with what there is.
fn image_paths(catalog: &SnapshotCatalog, snapshot: &Named, path: &[u8]) -> Result<Vec<Vec<u8>>> {
    let all = snapshot.1.images.iter();
    let all: Vec<Vec<u8>> = all.map(|image| clean_path(&image.path.0)).collect();
    let is_wanted = |image: &&Vec<u8>| {
        let below = [path, b"/"].concat();
        path.is_empty() || image.as_slice() == path || image.starts_with(&below)
    };
    let wanted: Vec<Vec<u8>> = all.iter().filter(is_wanted).cloned().collect();
    if !wanted.is_empty() {
        return Ok(wanted);
    }
    let has_path = path.is_empty()
        || catalog
            .rows(path)
            .is_ok_and(|mut rows| rows.next().is_some());
    let shown = |path: &[u8]| format!("/{}", String::from_utf8_lossy(path).escape_debug());
    if !has_path {
        return Err(Error::NoPath {
            path: shown(path),
            snapshot: snapshot.0.short(),
        });
    }
    let images: Vec<String> = all.iter().map(|image| shown(image)).collect();
    let others = match images.is_empty() {
        true => "bale backup --image makes snapshots that hold some".to_owned(),
        false => format!("the snapshot holds {}", images.join(", ")),
    };
    Err(Error::Other(format!(
        "{} is no image of a device: {others}",
        shown(path)
    )))
}

/// An overlay over an image, in a file that is made if it is not there. It belongs to this image of
/// this snapshot alone.
pub fn open_overlay(
    repository: &Repository,
    snapshot: &Named,
    image: &Arc<ImageExport>,
    file: &Path,
) -> Result<Arc<NbdOverlay>> {
    let mut identity = blake3::Hasher::new_derive_key("bale overlay of an image 1");
    identity.update(&repository.id().0);
    identity.update(&snapshot.0.0);
    identity.update(image.path());
    let of = OverlayOf {
        identity: *identity.finalize().as_bytes(),
        name: format!(
            "{}:/{}",
            snapshot.0.short(),
            String::from_utf8_lossy(image.path())
        ),
    };
    let overlay = NbdOverlay::open(file, image.clone(), &of);
    let overlay = overlay.map_err(|error| Error::Other(with_causes(&error)))?;
    Ok(Arc::new(overlay))
}

/// Serves until the monitor asks for the end, or the last client has gone. `started` is told where,
/// in the order of the images.
pub fn serve_images(
    images: &[Arc<ImageExport>],
    exports: Vec<Arc<dyn NbdExport>>,
    options: &ExportOptions,
    monitor: &dyn Monitor,
    started: &mut dyn FnMut(&[NbdUri]),
) -> Result<ExportReport> {
    let names = images.iter().map(|image| image.name().to_owned());
    let served = names.clone().zip(exports).collect();
    let server = NbdServer::start(&options.address, served);
    let server = server.map_err(|error| Error::Other(with_causes(&error)))?;
    let uris: Vec<NbdUri> = names.map(|name| server.uri(&name)).collect();
    started(&uris);
    let mut report = ExportReport::default();
    loop {
        let is_over = options.is_once && server.sessions() > 0 && server.clients() == 0;
        look(images, monitor, &mut report);
        if is_over || monitor.interrupted() {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    report.clients = server.sessions();
    server.stop();
    look(images, monitor, &mut report);
    Ok(report)
}

/// Reports what clients did, and what they could not be given.
fn look(images: &[Arc<ImageExport>], monitor: &dyn Monitor, report: &mut ExportReport) {
    let read = images.iter().map(|image| image.bytes_read()).sum();
    if read != report.bytes_read {
        report.bytes_read = read;
        let progress = Progress {
            bytes_done: read,
            ..Progress::default()
        };
        monitor.progress(Phase::Restore, progress);
    }
    for image in images {
        report.problems += image.report_problems(monitor);
    }
}

/// Chunks of packs that were made readable.
struct WarmedChunks {
    chunks: RepositoryChunks,
    warmer: Box<dyn Warmer>,
}

impl WarmedChunks {
    fn readable(&self) -> ReadableChunks<'_> {
        ReadableChunks::new(&self.chunks, &*self.warmer)
    }
}

impl ChunkSource for WarmedChunks {
    fn place(&self, id: &bale_format::ChunkId) -> Option<bale_format::ChunkPlace> {
        self.chunks.place(id)
    }

    fn expect(&self, ids: &[bale_format::ChunkId]) {
        self.readable().expect(ids);
    }

    fn fetch_ahead(&self, ids: &[bale_format::ChunkId]) {
        self.chunks.fetch_ahead(ids);
    }

    fn is_far_away(&self) -> bool {
        self.chunks.is_far_away()
    }

    fn read(
        &self,
        id: &bale_format::ChunkId,
        kind: bale_format::ChunkKind,
    ) -> std::result::Result<Bytes, bale_restore::ChunkTrouble> {
        self.readable().read(id, kind)
    }
}
