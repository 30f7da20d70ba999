//! A pack that is being written: records are sealed, read back, and appended; the trailer ends it.
//! Its bytes go to the store as they come, or are gathered in memory until it is whole.

use super::EncodeJob;
use super::plan::whole_bytes;
use crate::error::{Error, Result};
use crate::repository::Repository;
use crate::store::{ObjectName, ObjectWriter, PackContent, Store, StoreError};
use bale_format::ObjectId;
use bale_format::chunk::{Codec, Compressor, Decompressor, LEVEL_DEFAULT};
use bale_format::error::FormatError;
use bale_format::pack::{PackEntry, PackLayout, Payload};
use bale_format::record::record_bytes;
use bytes::Bytes;

/// What a trailer takes for each chunk, at most, and beside them.
const TRAILER_ENTRY_BYTES: u64 = 64;
const TRAILER_BYTES: u64 = 4 << 10;

/// A pack on its way into the store.
pub(super) struct OpenPack {
    layout: PackLayout,
    sink: Sink,
}

enum Sink {
    Streamed(Box<Streamed>),
    /// The pack from its first byte on.
    Gathered(Vec<u8>, PackContent),
}

struct Streamed {
    hasher: blake3::Hasher,
    writer: Box<dyn ObjectWriter>,
    buffer: Vec<u8>,
}

/// A pack that is durable and not yet named by an index object.
pub struct Published {
    pub id: ObjectId,
    pub bytes: u64,
    /// Its chunks.
    pub entries: Vec<PackEntry>,
}

impl OpenPack {
    pub(super) fn stream(repository: &Repository, content: PackContent) -> Result<OpenPack> {
        let layout = PackLayout::new(repository.keys(), repository.salt()?);
        let mut streamed = Streamed {
            hasher: blake3::Hasher::new(),
            writer: repository.store().begin_pack(content)?,
            buffer: layout.header().encode().to_vec(),
        };
        streamed.write()?;
        let sink = Sink::Streamed(Box::new(streamed));
        Ok(OpenPack { layout, sink })
    }

    /// In a buffer that has been used before, perhaps.
    pub(super) fn gather(
        repository: &Repository,
        content: PackContent,
        pack_bytes: u64,
        mut buffer: Vec<u8>,
    ) -> Result<OpenPack> {
        let layout = PackLayout::new(repository.keys(), repository.salt()?);
        buffer.clear();
        buffer.reserve_exact(whole_bytes(pack_bytes));
        buffer.extend_from_slice(&layout.header().encode());
        let sink = Sink::Gathered(buffer, content);
        Ok(OpenPack { layout, sink })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.layout.bytes()
    }

    /// Would it stay below a size with one chunk more? One without chunks takes any.
    pub(super) fn has_room(&self, payload_bytes: usize, pack_bytes: u64) -> bool {
        let chunks = self.layout.entries().len() as u64;
        let trailer = TRAILER_BYTES + (chunks + 1) * TRAILER_ENTRY_BYTES;
        let record = record_bytes(payload_bytes) as u64;
        chunks == 0 || self.bytes() + record + trailer <= pack_bytes
    }

    /// Seals a chunk into the pack. What will be written is opened, decompressed and hashed again
    /// first: a bit that flipped in memory, or a compressor's mistake, must not become the only
    /// copy.
    pub(super) fn append(
        &mut self,
        repository: &Repository,
        job: &EncodeJob,
        payload: &Payload<'_>,
        decompressor: &mut Decompressor,
    ) -> Result<()> {
        let out = match &mut self.sink {
            Sink::Streamed(streamed) => &mut streamed.buffer,
            Sink::Gathered(bytes, _) => bytes,
        };
        let start = out.len();
        let entry = self
            .layout
            .push(job.id, job.kind, payload, out)
            .map_err(sealing)?;
        let key = self.layout.key();
        key.verify_record(repository.keys(), &entry, &out[start..], decompressor)
            .map_err(sealing)?;
        match &mut self.sink {
            Sink::Streamed(streamed) => streamed.write(),
            Sink::Gathered(..) => Ok(()),
        }
    }

    /// As [`OpenPack::append`], of a chunk that is stored as it is: sealed where it lies, and so
    /// used up.
    pub(super) fn append_stored(
        &mut self,
        repository: &Repository,
        job: &mut EncodeJob,
        decompressor: &mut Decompressor,
    ) -> Result<()> {
        let payload = Payload {
            codec: Codec::Stored,
            bytes: job.bytes.plain(),
            plain_bytes: job.bytes.plain().len(),
        };
        let entry = self
            .layout
            .place(job.id, job.kind, &payload)
            .map_err(sealing)?;
        let key = self.layout.key();
        let (buffer, start) = job.bytes.in_place();
        let head = key.seal_in_place(&entry, buffer, start);
        let sealed = &buffer[start..];
        key.verify_sealed(repository.keys(), &entry, &head, sealed, decompressor)
            .map_err(sealing)?;
        match &mut self.sink {
            Sink::Streamed(streamed) => streamed.append(&[&head[..], sealed]),
            Sink::Gathered(bytes, _) => {
                bytes.extend_from_slice(&head);
                bytes.extend_from_slice(sealed);
                Ok(())
            }
        }
    }

    /// Writes the trailer and publishes the pack under the hash of its bytes. `again` learns of
    /// tries to upload it that are followed by another. With it comes the buffer that it was
    /// gathered in, to be used again.
    pub(super) fn publish(
        self,
        store: &dyn Store,
        again: &mut dyn FnMut(&StoreError),
    ) -> Result<(Published, Vec<u8>)> {
        match self.sink {
            Sink::Streamed(streamed) => Ok((streamed.publish(self.layout)?, Vec::new())),
            Sink::Gathered(mut bytes, content) => {
                let finished = self
                    .layout
                    .finish(&mut Compressor::new(LEVEL_DEFAULT), &mut bytes)
                    .map_err(sealing)?;
                let published = Published {
                    id: ObjectId(*blake3::hash(&bytes).as_bytes()),
                    bytes: finished.bytes,
                    entries: finished.entries,
                };
                let bytes = Bytes::from(bytes);
                let name = ObjectName::pack(published.id);
                store.upload(&name, &bytes, content, again)?;
                Ok((published, bytes.into()))
            }
        }
    }
}

impl Streamed {
    fn publish(mut self, layout: PackLayout) -> Result<Published> {
        let finished = layout
            .finish(&mut Compressor::new(LEVEL_DEFAULT), &mut self.buffer)
            .map_err(sealing)?;
        self.write()?;
        let id = ObjectId(*self.hasher.finalize().as_bytes());
        self.writer.publish(&ObjectName::pack(id))?;
        Ok(Published {
            id,
            bytes: finished.bytes,
            entries: finished.entries,
        })
    }

    fn write(&mut self) -> Result<()> {
        self.hasher.update(&self.buffer);
        self.writer.append(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn append(&mut self, parts: &[&[u8]]) -> Result<()> {
        for part in parts {
            self.hasher.update(part);
            self.writer.append(part)?;
        }
        Ok(())
    }
}

fn sealing(source: FormatError) -> Error {
    Error::Object {
        object: "new pack".to_owned(),
        source,
    }
}
