//! A pack that is being written: records are sealed, read back, and appended; the trailer ends it.

use super::EncodeJob;
use crate::error::{Error, Result};
use crate::repository::Repository;
use crate::store::{ObjectName, ObjectWriter};
use bale_format::ObjectId;
use bale_format::chunk::{Codec, Compressor, Decompressor, LEVEL_DEFAULT};
use bale_format::error::FormatError;
use bale_format::pack::{PackEntry, PackLayout, Payload};

/// A pack on its way into the store.
pub(super) struct OpenPack {
    layout: PackLayout,
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
    pub(super) fn begin(repository: &Repository) -> Result<OpenPack> {
        let layout = PackLayout::new(repository.keys(), repository.salt()?);
        let writer = repository.store().begin()?;
        let buffer = layout.header().encode().to_vec();
        let mut pack = OpenPack {
            layout,
            hasher: blake3::Hasher::new(),
            writer,
            buffer,
        };
        pack.write()?;
        Ok(pack)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.layout.bytes()
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
        let entry = self
            .layout
            .push(job.id, job.kind, payload, &mut self.buffer)
            .map_err(sealing)?;
        let key = self.layout.key();
        key.verify_record(repository.keys(), &entry, &self.buffer, decompressor)
            .map_err(sealing)?;
        self.write()
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
            bytes: &job.bytes,
            plain_bytes: job.bytes.len(),
        };
        let entry = self
            .layout
            .place(job.id, job.kind, &payload)
            .map_err(sealing)?;
        let key = self.layout.key();
        let head = key.seal_in_place(&entry, &mut job.bytes);
        key.verify_sealed(repository.keys(), &entry, &head, &job.bytes, decompressor)
            .map_err(sealing)?;
        for part in [&head[..], &job.bytes] {
            self.hasher.update(part);
            self.writer.append(part)?;
        }
        Ok(())
    }

    /// Writes the trailer and publishes the pack under the hash of its bytes.
    pub(super) fn publish(mut self) -> Result<Published> {
        let layout = self.layout;
        let finished = layout
            .finish(&mut Compressor::new(LEVEL_DEFAULT), &mut self.buffer)
            .map_err(sealing)?;
        self.hasher.update(&self.buffer);
        self.writer.append(&self.buffer)?;
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
}

fn sealing(source: FormatError) -> Error {
    Error::Object {
        object: "new pack".to_owned(),
        source,
    }
}
