//! An image of a format that only QEMU reads, through a `qemu-nbd` started for the purpose.
//!
//! An image may name other files: what it is based on, where its data is. Somebody else may have
//! written it, so that QEMU is never left to follow such a name, nor to guess a format: the headers
//! are read here, each file that is named must lie in the directory of the one that names it, and
//! QEMU is told of every file with its format (`chain`).
//!
//! The process takes a socket that listens already, and a connection to it that was made before it
//! began: nothing is waited for blindly, and it ends by itself when that connection does, so also
//! when this process is killed.

mod chain;
pub mod convert;
pub mod image_header;
pub mod vmdk_descriptor;

use crate::client::{NbdClientOptions, Tether};
use crate::error::NbdFault;
use crate::shown::shown_end;
use crate::socket::{Socket, connect_unix};
use crate::uri::{NbdTransport, NbdUri};
use bale_pipeline::secret_variables::withhold_secrets;
use image_header::ImageHeaderError;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Connections to one image at most.
const SHARED: &str = "--shared=32";

/// Last bytes of what it says that are shown.
const SAID_BYTES_MAX: u64 = 4 << 10;

/// For it to end when it is told to, or has failed.
const END_MAX: Duration = Duration::from_secs(10);

/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Hands the socket, which is its input, to the program as systemd would: it need not be waited for
/// until it listens.
const HAND_OVER: &str = "exec 3<&0 </dev/null || exit; LISTEN_PID=$$; LISTEN_FDS=1; \
                         export LISTEN_PID LISTEN_FDS; exec \"$@\"";

/// A format that QEMU is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    Qcow2,
    Vmdk,
    Vdi,
    Vhdx,
}

impl ImageFormat {
    /// By the end of a file's name.
    pub fn by_name(path: &Path) -> Option<ImageFormat> {
        let end = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match end.as_str() {
            "qcow2" => ImageFormat::Qcow2,
            "vmdk" => ImageFormat::Vmdk,
            "vdi" => ImageFormat::Vdi,
            "vhdx" => ImageFormat::Vhdx,
            _ => return None,
        })
    }

    /// As QEMU calls it.
    pub fn name(self) -> &'static str {
        match self {
            ImageFormat::Qcow2 => "qcow2",
            ImageFormat::Vmdk => "vmdk",
            ImageFormat::Vdi => "vdi",
            ImageFormat::Vhdx => "vhdx",
        }
    }
}

/// How an image is opened.
#[derive(Clone, Debug)]
pub struct QemuImageOptions {
    /// May an image name files outside of its own directory?
    pub allows_files_elsewhere: bool,
    pub program: PathBuf,
    /// For it to open the image.
    pub begin_max: Duration,
}

impl Default for QemuImageOptions {
    fn default() -> QemuImageOptions {
        QemuImageOptions {
            allows_files_elsewhere: false,
            program: "qemu-nbd".into(),
            begin_max: Duration::from_secs(60),
        }
    }
}

/// Why an image cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum QemuImageError {
    #[error("read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} as an image", .path.display())]
    Header {
        path: PathBuf,
        source: ImageHeaderError,
    },
    #[error(
        "{} is made of {named}, which is not in its directory; if that is meant, allow files \
         elsewhere",
        .path.display()
    )]
    Elsewhere { path: PathBuf, named: String },
    #[error(
        "{} is made of {named}, which QEMU would not take for the name of a file",
        .path.display()
    )]
    NoFile { path: PathBuf, named: String },
    #[error("the images that {} is based on have no end", .0.display())]
    Endless(PathBuf),
    #[error("the name of {} is not UTF-8, which QEMU cannot be told", .0.display())]
    Name(PathBuf),
    #[error("start {program} (Debian's package qemu-utils has qemu-nbd)")]
    Start { program: String, source: io::Error },
    #[error("{program} does not open {}: {said}", .path.display())]
    Open {
        program: String,
        path: PathBuf,
        said: String,
        source: NbdFault,
    },
}

/// An image that is open. Dropping it ends the process.
pub struct QemuImage {
    child: Child,
    uri: NbdUri,
    /// The process lives for as long as this connection.
    _tether: Option<Tether>,
    said: File,
    _directory: TempDir,
}

impl QemuImage {
    /// The image and all files that it is made of, as it names them now.
    pub fn files(
        path: &Path,
        format: ImageFormat,
        options: &QemuImageOptions,
    ) -> Result<Vec<PathBuf>, QemuImageError> {
        let chain = chain::describe(path, format, options.allows_files_elsewhere)?;
        Ok(chain.files)
    }

    /// Starts a process for this image, which is read-only, and waits until it is open.
    pub fn open(
        path: &Path,
        format: ImageFormat,
        options: &QemuImageOptions,
    ) -> Result<QemuImage, QemuImageError> {
        let chain = chain::describe(path, format, options.allows_files_elsewhere)?;
        let program = options.program.display().to_string();
        let start = |source| QemuImageError::Start {
            program: program.clone(),
            source,
        };
        let deadline = Instant::now() + options.begin_max;
        let directory = tempfile::Builder::new()
            .prefix("bale-nbd-")
            .tempdir()
            .map_err(start)?;
        let socket = directory.path().join("socket");
        let said = tempfile::tempfile_in(directory.path()).map_err(start)?;
        let listener = UnixListener::bind(&socket).map_err(start)?;
        let tether = connect_unix(&socket, deadline).map_err(start)?;
        let mut command = Command::new("/bin/sh");
        let child = withhold_secrets(&mut command)
            .args(["-c", HAND_OVER, "sh"])
            .arg(&options.program)
            .args(["--read-only", SHARED])
            .arg(format!("json:{}", chain.description))
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(Stdio::from(said.try_clone().map_err(start)?))
            .spawn()
            .map_err(start)?;
        // The command holds the listening socket; without it a process that has ended is noticed.
        drop(command);
        let uri = NbdUri {
            transport: NbdTransport::Unix(socket),
            is_encrypted: false,
            certificates: None,
            export: String::new(),
            bitmap: None,
        };
        let mut image = QemuImage {
            child,
            uri,
            _tether: None,
            said,
            _directory: directory,
        };
        let waits = NbdClientOptions {
            connect_max: options.begin_max,
            wants_allocation: false,
            ..NbdClientOptions::default()
        };
        match Tether::hold(Socket::Unix(tether), &image.uri, &waits, deadline) {
            Ok(tether) => image._tether = Some(tether),
            Err(source) => {
                image.wait_for_end();
                return Err(QemuImageError::Open {
                    program,
                    path: path.to_owned(),
                    said: image.last_words(),
                    source,
                });
            }
        }
        Ok(image)
    }

    /// Where a client finds the image.
    pub fn uri(&self) -> &NbdUri {
        &self.uri
    }

    /// What it said last; empty if it had nothing to say.
    pub fn last_words(&self) -> String {
        let len = self.said.metadata().map_or(0, |metadata| metadata.len());
        let from = len.saturating_sub(SAID_BYTES_MAX);
        let mut words = vec![0; (len - from) as usize];
        match self.said.read_exact_at(&mut words, from) {
            Ok(()) => shown_end(&words),
            Err(_) => String::new(),
        }
    }

    /// The number of the process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// It ends when it cannot open the image; until then its last words are not complete.
    fn wait_for_end(&mut self) {
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < END_MAX {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for QemuImage {
    fn drop(&mut self) {
        // It may have ended. What it has open is read-only.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
