//! Disks of machines that run in QEMU, at one moment of each machine, with what changed since a
//! snapshot: `qemu:NODE?qmp=SOCKET&scratch=DIRECTORY`.
//!
//! QEMU holds the moment and keeps account of what is written (`bale_nbd::QemuMachine`); here its
//! exports are images, and its dirty bitmaps a [`ChangeTracker`]. A snapshot records the bitmap
//! that began with it.

use super::block_ranges::BlockRanges;
use super::changes::{ChangeTracker, Changes};
use super::device::{DeviceRead, ImageDevice, row_name};
use super::export_reader::ExportReader;
use super::local::absolute;
use super::{DeviceRanges, RawImage};
use bale_format::entry::Entry;
use bale_format::snapshot::ImageState;
use bale_nbd::{MachineError, MachineOptions, QemuMachine};
use bale_pipeline::error::with_causes;
use bytes::Bytes;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a source of this kind begins with.
const SCHEME: &str = "qemu:";

/// A disk of a machine, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QemuSource {
    /// The block node that the machine writes to.
    pub node: String,
    /// Socket of QEMU's monitor, from the root.
    pub monitor: PathBuf,
    /// Where QEMU keeps what the machine overwrites meanwhile.
    pub scratch: PathBuf,
    /// Socket on which QEMU's server of NBD listens already; else one is started.
    pub server: Option<PathBuf>,
}

impl QemuSource {
    /// Is this to be read as a disk of a machine?
    pub fn is_meant(path: &Path) -> bool {
        path.to_str().is_some_and(|text| text.starts_with(SCHEME))
    }

    pub fn parse(path: &Path) -> io::Result<QemuSource> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
        let form = "it is not of the form qemu:NODE?qmp=SOCKET&scratch=DIRECTORY";
        let text = path.to_str().and_then(|text| text.strip_prefix(SCHEME));
        let (node, options) = text
            .and_then(|text| text.split_once('?'))
            .ok_or(wrong(form))?;
        let (mut monitor, mut scratch, mut server) = (None, None, None);
        for option in options.split('&') {
            let (name, value) = option.split_once('=').ok_or(wrong(form))?;
            let place = match name {
                "qmp" => &mut monitor,
                "scratch" => &mut scratch,
                "server" => &mut server,
                _ => return Err(wrong("its options are qmp, scratch and server, each once")),
            };
            if value.is_empty() || place.replace(PathBuf::from(value)).is_some() {
                return Err(wrong("its options are qmp, scratch and server, each once"));
            }
        }
        match (node.is_empty(), monitor, scratch) {
            (false, Some(monitor), Some(scratch)) => Ok(QemuSource {
                node: node.to_owned(),
                monitor: absolute(&monitor)?,
                scratch: absolute(&scratch)?,
                server: server.map(|server| absolute(&server)).transpose()?,
            }),
            _ => Err(wrong(form)),
        }
    }

    /// As a snapshot names its source: what is only of one run is left out.
    pub fn shown(&self) -> String {
        format!("{SCHEME}{}?qmp={}", self.node, self.monitor.display())
    }

    /// Disks of one machine are read at one moment.
    pub fn is_of_same_machine(&self, other: &QemuSource) -> bool {
        (&self.monitor, &self.scratch, &self.server)
            == (&other.monitor, &other.scratch, &other.server)
    }
}

/// Makes the moment of disks of one machine. `owner` names whose bitmaps these are: letters, digits
/// and dashes.
pub fn open_disks(
    sources: &[QemuSource],
    owner: &str,
) -> io::Result<Vec<(RawImage, Box<dyn ChangeTracker>)>> {
    let Some(first) = sources.first() else {
        return Ok(Vec::new());
    };
    let options = MachineOptions {
        monitor: first.monitor.clone(),
        scratch: first.scratch.clone(),
        server: first.server.clone(),
        nodes: sources.iter().map(|source| source.node.clone()).collect(),
        owner: owner.to_owned(),
    };
    let machine = Arc::new(QemuMachine::open(&options).map_err(io_error)?);
    let disks = sources.iter().enumerate().map(|(disk, source)| {
        let device = QemuDisk {
            path: source.shown().into(),
            name: row_name(source.node.as_bytes(), false)?,
            reader: ExportReader::connect(&machine.uri(disk))?,
            machine: machine.clone(),
            disk,
        };
        let tracker: Box<dyn ChangeTracker> = Box::new(QemuTracker {
            machine: machine.clone(),
            disk,
        });
        Ok((RawImage::of(Arc::new(device)), tracker))
    });
    disks.collect()
}

struct QemuDisk {
    path: PathBuf,
    name: Bytes,
    // Closed before the moment ends.
    reader: ExportReader,
    machine: Arc<QemuMachine>,
    disk: usize,
}

impl ImageDevice for QemuDisk {
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
        row.uid = rustix::process::geteuid().as_raw();
        row.gid = rustix::process::getegid().as_raw();
    }

    fn state(&self) -> ImageState {
        ImageState::Export
    }

    fn disturbance(&self) -> Option<String> {
        self.machine.disturbance(self.disk)
    }

    fn data_ranges(&self) -> DeviceRanges {
        self.reader.data_ranges()
    }

    fn read_into(&self, start: u64, buffer: &mut [u8], wanted: usize) -> io::Result<DeviceRead> {
        self.reader.read_into(start, buffer, wanted)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.reader.read_exact_at(offset, buffer)
    }
}

/// What QEMU's dirty bitmaps say.
struct QemuTracker {
    machine: Arc<QemuMachine>,
    disk: usize,
}

impl ChangeTracker for QemuTracker {
    fn name(&self) -> &'static str {
        "qemu"
    }

    fn changed_since(&mut self, basis: Option<&str>) -> Changes {
        let Some(bitmap) = basis else {
            return Changes::Everything("no snapshot before was made with a bitmap".to_owned());
        };
        let mut ranges = BlockRanges::default();
        let take = |range| ranges.push(range);
        match self.machine.changed_since(self.disk, bitmap, take) {
            Ok(()) => Changes::Ranges(ranges.finish()),
            Err(why) => Changes::Everything(why),
        }
    }

    fn next_basis(&self) -> Option<String> {
        Some(self.machine.bitmap())
    }

    fn committed(&mut self) {
        self.machine.committed(self.disk);
    }
}

fn io_error(error: MachineError) -> io::Error {
    io::Error::other(with_causes(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_of_a_machine_is_named_with_its_monitor_and_where_there_is_room() {
        let parse = |text: &str| QemuSource::parse(Path::new(text));
        let found = parse("qemu:drive0?qmp=/tmp/q&scratch=/tmp").unwrap();
        assert_eq!(found.shown(), "qemu:drive0?qmp=/tmp/q");
        assert_eq!((found.node.as_str(), found.server), ("drive0", None));
        for text in [
            "qemu:drive0",
            "qemu:?qmp=/tmp/q&scratch=/tmp",
            "qemu:drive0?qmp=/tmp/q",
            "qemu:drive0?qmp=/tmp/q&scratch=/tmp&qmp=/tmp/q",
            "qemu:drive0?qmp=/tmp/q&scratch=/tmp&other=x",
            "qemu:drive0?qmp=/tmp/q&scratch",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
