//! An image of a format of QEMU: the disk that is in the file, through a `qemu-nbd` started for it.
//!
//! All files that it is made of are looked at: who uses them before, and whether they changed
//! after. The format is said by the user, or by the name that he gave the file, and never guessed
//! from what is in it: what is in a raw image is a guest's to write, and may look like any format.

use super::DeviceRanges;
use super::device::{DeviceRead, ImageDevice, row_name};
use super::export_reader::ExportReader;
use super::local::{absolute, describe_file};
use super::state::Use;
use crate::scan::ImageStamp;
use bale_format::entry::Entry;
use bale_format::snapshot::ImageState;
use bale_nbd::{ImageFormat, QemuImage, QemuImageError, QemuImageOptions};
use bale_pipeline::error::with_causes;
use bytes::Bytes;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An image that is open.
pub(super) struct QemuFileDevice {
    path: PathBuf,
    name: Bytes,
    metadata: Metadata,
    files: Vec<ChainFile>,
    // Closed before the process ends.
    reader: ExportReader,
    image: QemuImage,
}

/// A file that the image is made of, as it was before the process began.
struct ChainFile {
    path: PathBuf,
    used: Use,
    stamp: ImageStamp,
}

impl QemuFileDevice {
    /// Opens the image with every file that it names, which lie in its directory unless that is
    /// allowed otherwise.
    pub(super) fn open(
        path: &Path,
        format: ImageFormat,
        allows_files_elsewhere: bool,
    ) -> io::Result<QemuFileDevice> {
        let path = absolute(path)?;
        let last = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let options = QemuImageOptions {
            allows_files_elsewhere,
            ..QemuImageOptions::default()
        };
        let named = QemuImage::files(&path, format, &options).map_err(io_error)?;
        let files = named.into_iter().map(ChainFile::of);
        let files = files.collect::<io::Result<_>>()?;
        let image = QemuImage::open(&path, format, &options).map_err(io_error)?;
        Ok(QemuFileDevice {
            name: row_name(last.as_bytes(), false)?,
            metadata: std::fs::metadata(&path)?,
            reader: ExportReader::connect(image.uri())?,
            path,
            files,
            image,
        })
    }

    /// With what the process said last.
    fn explained(&self, error: io::Error) -> io::Error {
        match self.image.last_words() {
            words if words.is_empty() => error,
            words => io::Error::new(error.kind(), format!("{error} (qemu-nbd: {words})")),
        }
    }
}

impl ChainFile {
    fn of(path: PathBuf) -> io::Result<ChainFile> {
        let metadata = std::fs::metadata(&path)?;
        Ok(ChainFile {
            used: Use::of(&path, &metadata),
            stamp: ImageStamp::of(&path)?,
            path,
        })
    }

    fn disturbance(&self) -> Option<String> {
        let path = self.path.display();
        if let Use::Others(text) = &self.used {
            return Some(format!("{path} {text}"));
        }
        let problem = self.stamp.check()?;
        Some(format!("{path}: {}", problem.error))
    }
}

impl ImageDevice for QemuFileDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self) -> &Bytes {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.reader.len_bytes()
    }

    fn describe(&self, row: &mut Entry) {
        describe_file(&self.metadata, row);
    }

    fn state(&self) -> ImageState {
        let is_used = |file: &ChainFile| matches!(file.used, Use::Others(_));
        match self.files.iter().any(is_used) {
            true => ImageState::Fuzzy,
            false => ImageState::Still,
        }
    }

    fn disturbance(&self) -> Option<String> {
        self.files.iter().find_map(ChainFile::disturbance)
    }

    fn data_ranges(&self) -> DeviceRanges {
        self.reader.data_ranges()
    }

    fn read_into(&self, start: u64, buffer: &mut [u8], wanted: usize) -> io::Result<DeviceRead> {
        let read = self.reader.read_into(start, buffer, wanted);
        read.map_err(|error| self.explained(error))
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let read = self.reader.read_exact_at(offset, buffer);
        read.map_err(|error| self.explained(error))
    }
}

fn io_error(error: QemuImageError) -> io::Error {
    io::Error::other(with_causes(&error))
}
