//! An object whose bytes nobody holds, on its way to a server that takes files piece by piece:
//! written to `tmp/` in one transfer, looked at, and named like every other.
//!
//! A transfer that broke is given up with all that was sent. Once all of it is there, what is left
//! are short requests, and they are made again.

use super::{Core, FileStore, Named, REFUSALS, RemoteFiles, RemoteUpload};
use bale_repository::store::{ObjectName, ObjectWriter, Result};
use std::io::{self, ErrorKind};

/// How often it is tried to give a whole file its name over a connection that is lost.
const NAMING_ROUNDS_MAX: u32 = 3;

/// An object on its way.
pub(super) struct FileStream<F: RemoteFiles + 'static> {
    store: FileStore<F>,
    temporary: String,
    /// `None` once it has ended, or failed.
    upload: Option<Box<dyn RemoteUpload>>,
    len: u64,
    /// It is removed, or has another name.
    is_gone: bool,
}

impl<F: RemoteFiles + 'static> FileStore<F> {
    pub(super) fn stream(&self) -> Result<FileStream<F>> {
        let (temporary, upload) = self.with("write", "an object", |core| {
            core.sweep_once();
            let temporary = core.draw_temporary_name()?;
            let upload = core.in_temporary_dir(|| core.files.upload(&temporary))?;
            Ok((temporary, upload))
        })?;
        Ok(FileStream {
            store: self.clone(),
            temporary,
            upload: Some(upload),
            len: 0,
            is_gone: false,
        })
    }
}

impl<F: RemoteFiles + 'static> ObjectWriter for FileStream<F> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let upload = self.upload.take();
        let store = self.store.clone();
        let upload = store.with("write", "an object", |_| {
            let mut upload = upload.ok_or_else(failed_before)?;
            upload.append(bytes)?;
            Ok(upload)
        })?;
        self.upload = Some(upload);
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn publish(mut self: Box<Self>, name: &ObjectName) -> Result<()> {
        let upload = self.upload.take();
        let store = self.store.clone();
        store.with("write", name, |core| {
            upload.ok_or_else(failed_before)?.finish()?;
            let named = core.name_whole(&self.temporary, name, self.len)?;
            self.is_gone = matches!(named, Named::Now);
            Ok(())
        })
    }
}

impl<F: RemoteFiles + 'static> Drop for FileStream<F> {
    fn drop(&mut self) {
        // Ends its transfer first.
        self.upload = None;
        if !self.is_gone {
            // What cannot be removed is swept another day.
            let _ = self.store.core.files.remove(&self.temporary);
        }
    }
}

impl<F: RemoteFiles> Core<F> {
    /// Names a file of which all was sent.
    fn name_whole(&self, temporary: &str, name: &ObjectName, len: u64) -> io::Result<Named> {
        let mut rounds_left = NAMING_ROUNDS_MAX;
        loop {
            rounds_left -= 1;
            let named = self.try_to_name(temporary, name, len);
            match named {
                Err(error) if rounds_left > 0 && is_connection(error.kind()) => {}
                named => return named,
            }
        }
    }

    fn try_to_name(&self, temporary: &str, name: &ObjectName, len: u64) -> io::Result<Named> {
        let path = name.path();
        // An earlier try, whose answer was lost; or somebody else.
        if self.len(&path)? == Some(len) {
            return match self.len(temporary)? {
                None => Ok(Named::Now),
                Some(_) => Ok(Named::ByAnother),
            };
        }
        self.check_arrived(temporary, len)?;
        let named = self.give_name(temporary, &path, Some(name), len)?;
        self.check_named(&path, len).map(|()| named)
    }
}

/// Is it the way to the server that failed, and not the server?
fn is_connection(kind: ErrorKind) -> bool {
    !REFUSALS.contains(&kind) && kind != ErrorKind::WriteZero
}

fn failed_before() -> io::Error {
    io::Error::other("a part of it could not be written")
}
