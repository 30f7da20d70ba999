//! Objects whose bytes nobody holds: beginning is tried again, and the look whether one is there
//! whose answer was lost. Bytes are sent once.

use super::Retried;
use bale_repository::store::{ObjectName, ObjectWriter, Result, Store};

pub(super) struct RetriedStream {
    stream: Box<dyn ObjectWriter>,
    store: Retried,
    len: u64,
}

impl Retried {
    pub(super) fn stream(&self) -> Result<RetriedStream> {
        Ok(RetriedStream {
            stream: self.until_answered(|| self.store.begin_stream())?,
            store: self.clone(),
            len: 0,
        })
    }
}

impl ObjectWriter for RetriedStream {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.append(bytes)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()> {
        match self.stream.publish(name) {
            Err(error) if error.may_pass() => match self.store.stat(name) {
                // It was named, and the answer was lost.
                Ok(Some(there)) if there.len == self.len => Ok(()),
                _ => Err(error),
            },
            published => published,
        }
    }
}
