//! Block devices over a wire: a client and a server of the NBD protocol, and `qemu-nbd` started for
//! an image of a format that only it reads.
//!
//! What the other side sends is untrusted: `wire` decodes it as pure functions, with bounds before
//! memory, and what does not fit the request that it answers ends the connection with a sentence.
//! Nothing here knows of repositories; who serves a snapshot implements [`NbdExport`].

#![forbid(unsafe_code)]

mod client;
mod error;
mod export;
mod machine;
mod overlay;
mod qemu;
mod qmp;
mod server;
mod shown;
mod socket;
mod stream;
mod uri;
pub mod wire;

pub use client::{
    EXTENTS_BYTES, NbdClient, NbdClientOptions, NbdExtent, NbdExtents, NbdReading, NbdWriting,
};
pub use error::{NbdAction, NbdError, NbdFault};
pub use export::{AllocationRun, NbdExport};
pub use machine::{MachineError, MachineOptions, QemuMachine};
pub use overlay::{NbdOverlay, OverlayError, OverlayOf};
pub use qemu::convert::{QemuConvertError, convert, is_alike};
pub use qemu::{
    ImageFormat, QemuImage, QemuImageError, QemuImageOptions, image_header, vmdk_descriptor,
};
pub use qmp::{QmpClient, QmpError};
pub use server::{NbdServer, NbdServerAddress, NbdServerError, SERVER_BYTES};
pub use uri::{NbdTransport, NbdUri, NbdUriError};
