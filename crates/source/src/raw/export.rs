//! An export of an NBD server as an image: a virtual machine's disk, a snapshot of one, whatever
//! nbdkit reads.
//!
//! That its bytes are of one moment is known by who made the export and not by any flag of the
//! protocol: QEMU serves the disk of a running machine as read-only, and open to several
//! connections. So a connection that is lost ends the image: nobody could say whether another one
//! shows the same moment.

use super::DeviceRanges;
use super::device::{DeviceRead, ImageDevice, row_name};
use super::export_reader::ExportReader;
use super::local::absolute;
use bale_format::entry::Entry;
use bale_format::snapshot::ImageState;
use bale_nbd::{NbdTransport, NbdUri};
use bytes::Bytes;
use std::io;
use std::path::{Path, PathBuf};

/// An export that is open.
pub(super) struct ExportDevice {
    path: PathBuf,
    name: Bytes,
    reader: ExportReader,
    is_tracked: bool,
    is_point_in_time: bool,
}

impl ExportDevice {
    /// Connects to the server of this export. What is recorded of its URI has no path of
    /// certificates, and no bitmap. With `changes_only` nothing but what its bitmap has as changed
    /// may be requested.
    pub(super) fn connect(
        text: &str,
        is_point_in_time: bool,
        changes_only: bool,
    ) -> io::Result<ExportDevice> {
        let uri = uri_of(text)?;
        let reader = match changes_only && uri.bitmap.is_some() {
            true => ExportReader::connect_to_changes(&uri)?,
            false => ExportReader::connect(&uri)?,
        };
        Ok(ExportDevice {
            path: uri.to_string().into(),
            name: row_name(name_of(&uri).as_bytes(), false)?,
            reader,
            is_tracked: uri.bitmap.is_some(),
            is_point_in_time,
        })
    }
}

impl ImageDevice for ExportDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self) -> &Bytes {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.reader.len_bytes()
    }

    /// An export has neither times nor an owner: who reads it gets what he read.
    fn describe(&self, row: &mut Entry) {
        row.uid = rustix::process::geteuid().as_raw();
        row.gid = rustix::process::getegid().as_raw();
    }

    fn state(&self) -> ImageState {
        match self.is_point_in_time {
            true => ImageState::Export,
            false => ImageState::Fuzzy,
        }
    }

    fn disturbance(&self) -> Option<String> {
        let text = "nobody said that the export stands still (--point-in-time says it)";
        (!self.is_point_in_time).then(|| text.to_owned())
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

    fn tracked(&self) -> Option<&ExportReader> {
        self.is_tracked.then_some(&self.reader)
    }
}

/// The URI that a text is, its socket named from the root.
pub(super) fn uri_of(text: &str) -> io::Result<NbdUri> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let mut uri = NbdUri::parse(text).map_err(invalid)?;
    if let NbdTransport::Unix(socket) = &mut uri.transport {
        *socket = absolute(socket)?;
    }
    Ok(uri)
}

/// The last part of the export's name; of one without a name, of its socket or host.
fn name_of(uri: &NbdUri) -> String {
    let last = |text: &str| {
        let mut parts = text.rsplit('/');
        parts.find(|part| !part.is_empty()).map(str::to_owned)
    };
    let server = match &uri.transport {
        NbdTransport::Unix(socket) => last(&socket.to_string_lossy()),
        NbdTransport::Tcp { host, .. } => Some(host.clone()),
    };
    last(&uri.export).or(server).unwrap_or_default()
}
