//! A pack that is being written: records are sealed, read back, and appended; the trailer ends it.

use super::Job;
use crate::error::{Error, Result};
use crate::repository::Repository;
use crate::store::{ObjectName, ObjectWriter};
use bale_format::ObjectId;
use bale_format::chunk::{Codec, Compressor};
use bale_format::pack::{PackRecord, PackSealer};

/// A pack on its way into the store.
pub(super) struct OpenPack {
    sealer: PackSealer,
    hasher: blake3::Hasher,
    writer: Box<dyn ObjectWriter>,
    buffer: Vec<u8>,
    len: u64,
}

/// A pack that is durable and not yet named by an index object.
pub struct Published {
    /// Name.
    pub id: ObjectId,
    /// Length in bytes.
    pub len: u64,
    /// Its chunks.
    pub entries: Vec<PackRecord>,
}

impl OpenPack {
    pub(super) fn begin(repository: &Repository) -> Result<OpenPack> {
        let (sealer, header) = PackSealer::new(repository.keys(), repository.salt());
        let writer = repository.store().begin()?;
        let mut pack = OpenPack { sealer, hasher: blake3::Hasher::new(), writer, buffer: Vec::new(), len: 0 };
        pack.buffer.extend_from_slice(&header);
        pack.write()?;
        Ok(pack)
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Seals a chunk into the pack. What will be written is opened, decompressed and hashed again first: a bit that flipped
    /// in memory, or a compressor's mistake, must not become the only copy.
    pub(super) fn append(
        &mut self,
        repository: &Repository,
        compressor: &mut Compressor,
        job: &Job,
        codec: Codec,
        compressed: &[u8],
    ) -> Result<()> {
        self.buffer.clear();
        let plain_len = u32::try_from(job.bytes.len()).expect("chunks are at most 16 MiB");
        self.sealer.seal(job.id, job.kind, codec, plain_len, compressed, &mut self.buffer);
        let read_back = self.sealer.read_back(&self.buffer, plain_len, job.kind, compressor);
        let same = read_back.is_ok_and(|plain| repository.keys().chunk_id(job.kind, plain) == job.id);
        if !same {
            let text = "a chunk read back before it was published is not what was stored: memory or processor fault?";
            return Err(Error::Other(text.to_owned()));
        }
        self.write()
    }

    /// Writes the trailer and publishes the pack under the hash of its bytes.
    pub(super) fn publish(mut self, _repository: &Repository) -> Result<Published> {
        self.buffer.clear();
        let entries = self.sealer.finish(&mut self.buffer);
        self.write()?;
        let id = ObjectId(*self.hasher.finalize().as_bytes());
        self.writer.publish(&ObjectName::pack(id))?;
        Ok(Published { id, len: self.len, entries })
    }

    fn write(&mut self) -> Result<()> {
        self.hasher.update(&self.buffer);
        self.writer.append(&self.buffer)?;
        self.len += self.buffer.len() as u64;
        Ok(())
    }
}
