//! An image of a snapshot as a file of another format: an export of it, read by QEMU's program.

use super::ImageExport;
use super::unfinished::UnfinishedFile;
use bale_nbd::{
    AllocationRun, ImageFormat, NbdExport, NbdServer, NbdServerAddress, QemuConvertError, convert,
    is_alike,
};
use bale_pipeline::error::with_causes;
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress};
use bale_repository::error::{Error, Result};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What became of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Read of the image, holes not counted.
    pub bytes: u64,
    /// Ranges that could not be read, for which zeros stand.
    pub problems: u64,
    /// The file holds something else: only if it was compared.
    pub differs: bool,
}

/// Writes an image to a new file, which takes its name when it is whole and durable. With
/// `replaces`, a file of that name makes way.
pub fn convert_image(
    image: &Arc<ImageExport>,
    target: &Path,
    format: ImageFormat,
    (replaces, compares): (bool, bool),
    monitor: &dyn Monitor,
) -> Result<Converted> {
    if !replaces && target.symlink_metadata().is_ok() {
        return Err(Error::Other(format!(
            "{} exists: name another file, or say --force to replace it",
            target.display()
        )));
    }
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = (target.file_name())
        .ok_or_else(|| Error::Other(format!("{} names no file", target.display())))?;
    let made = UnfinishedFile::begin(directory, name);
    let made = made.map_err(|error| failed("make a file beside", target, &error))?;
    let mut done = fill(image, made.path(), format, compares, monitor)?;
    if done.differs {
        done.problems += 1;
        monitor.problem(&Problem {
            path: image.path().to_vec(),
            action: "verify",
            text: format!("{} holds something else", target.display()),
        });
    }
    let named = made.finish(target, replaces);
    named.map_err(|error| failed("sync and name", target, &error))?;
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| failed("sync the directory of", target, &error))?;
    Ok(done)
}

/// Serves the image to the program that writes the file.
fn fill(
    image: &Arc<ImageExport>,
    file: &Path,
    format: ImageFormat,
    compares: bool,
    monitor: &dyn Monitor,
) -> Result<Converted> {
    let private = tempfile::Builder::new().prefix("bale-export-").tempdir();
    let private = private.map_err(|error| failed("make a socket for", file, &error))?;
    let address = NbdServerAddress::Unix(private.path().join("socket"));
    let whole: Arc<dyn NbdExport> = Arc::new(ZerosForUnreadable(image.clone()));
    let server = NbdServer::start(&address, vec![(String::new(), whole)]);
    let server = server.map_err(|error| failed("serve the image for", file, &error))?;
    let mut done = Converted::default();
    let mut look = || {
        done.problems += image.report_problems(monitor);
        let progress = Progress {
            bytes_done: image.bytes_read(),
            ..Progress::default()
        };
        monitor.progress(Phase::Restore, progress);
        monitor.interrupted()
    };
    let into_error = |error: QemuConvertError| match error {
        QemuConvertError::Stopped => Error::Interrupted,
        error => Error::Other(with_causes(&error)),
    };
    let uri = server.uri("");
    convert(&uri, file, format, &mut look).map_err(into_error)?;
    let bytes = image.bytes_read();
    let differs = match compares {
        true => !is_alike(&uri, file, format, &mut look).map_err(into_error)?,
        false => false,
    };
    server.stop();
    done.problems += image.report_problems(monitor);
    Ok(Converted {
        bytes,
        differs,
        ..done
    })
}

fn failed(action: &str, target: &Path, error: &dyn std::error::Error) -> Error {
    let why = with_causes(error);
    Error::Other(format!("{action} {}: {why}", target.display()))
}

/// For a program that would end at the first range that cannot be read.
struct ZerosForUnreadable(Arc<ImageExport>);

impl NbdExport for ZerosForUnreadable {
    fn len(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_or_zeros(offset, buffer);
        Ok(())
    }

    fn run_at(&self, offset: u64) -> io::Result<AllocationRun> {
        self.0.run_at(offset)
    }
}
