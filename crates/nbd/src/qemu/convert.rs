//! An export written as a file of a format that QEMU writes, by its `qemu-img`.
//!
//! The export is ours, so that the program reads nothing that somebody else has named. It loses its
//! source when this process ends, and ends with an error then.

use super::{ImageFormat, LOOK, SAID_BYTES_MAX};
use crate::shown::shown_end;
use crate::uri::NbdUri;
use bale_pipeline::secret_variables::withhold_secrets;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Requests that it has in flight.
const REQUESTS: &str = "8";

/// Why a file was not written, or not compared.
#[derive(Debug, thiserror::Error)]
pub enum QemuConvertError {
    #[error("start qemu-img (Debian's package qemu-utils has it)")]
    Start(#[source] io::Error),
    #[error("qemu-img {action} {}: {said}", path.display())]
    Failed {
        action: &'static str,
        path: PathBuf,
        said: String,
    },
    #[error("stopped")]
    Stopped,
}

/// Writes an export to a file, which is replaced; holes are none of its blocks. Stops when it is
/// told to.
pub fn convert(
    uri: &NbdUri,
    target: &Path,
    format: ImageFormat,
    is_stopped: &mut dyn FnMut() -> bool,
) -> Result<(), QemuConvertError> {
    let uri = uri.to_string();
    let words = [
        "convert",
        "-f",
        "raw",
        "-O",
        format.name(),
        "-m",
        REQUESTS,
        "-W",
        &uri,
    ];
    match run("write", &words, target, is_stopped)? {
        (Some(0), _) => Ok(()),
        (_, said) => Err(failed("write", target, said)),
    }
}

/// Does a file hold what an export does?
pub fn is_alike(
    uri: &NbdUri,
    file: &Path,
    format: ImageFormat,
    is_stopped: &mut dyn FnMut() -> bool,
) -> Result<bool, QemuConvertError> {
    let uri = uri.to_string();
    let words = ["compare", "-q", "-f", "raw", "-F", format.name(), &uri];
    match run("compare", &words, file, is_stopped)? {
        (Some(0), _) => Ok(true),
        (Some(1), _) => Ok(false),
        (_, said) => Err(failed("compare", file, said)),
    }
}

fn failed(action: &'static str, path: &Path, said: String) -> QemuConvertError {
    let path = path.to_owned();
    QemuConvertError::Failed { action, path, said }
}

/// Its code, and its last words.
fn run(
    action: &'static str,
    words: &[&str],
    file: &Path,
    is_stopped: &mut dyn FnMut() -> bool,
) -> Result<(Option<i32>, String), QemuConvertError> {
    let said = tempfile::tempfile().map_err(QemuConvertError::Start)?;
    let errors = said.try_clone().map_err(QemuConvertError::Start)?;
    let mut command = Command::new("qemu-img");
    let mut child = withhold_secrets(&mut command)
        .args(words)
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(errors))
        .spawn()
        .map_err(QemuConvertError::Start)?;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok((status.code(), last_words(&said))),
            Err(error) => return Err(failed(action, file, error.to_string())),
            Ok(None) => {}
        }
        if is_stopped() {
            // It may have ended just now.
            let _ = child.kill();
            let _ = child.wait();
            return Err(QemuConvertError::Stopped);
        }
        std::thread::sleep(LOOK);
    }
}

fn last_words(said: &File) -> String {
    let len = said.metadata().map_or(0, |metadata| metadata.len());
    let from = len.saturating_sub(SAID_BYTES_MAX);
    let mut words = vec![0; (len - from) as usize];
    match said.read_exact_at(&mut words, from) {
        Ok(()) => shown_end(&words),
        Err(_) => String::new(),
    }
}
