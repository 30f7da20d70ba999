//! A kind of file in the cache: a magic, a body, and a seal that only a holder of the repository's
//! key can make. What is damaged, of another kind or another repository's counts as not there, so
//! whoever uses one works without it, too.

use super::Repository;
use crate::error::Result;
use bale_pipeline::private_dir;
use std::path::Path;

const SEAL_BYTES: usize = 16;

/// What all files of one kind have in common.
pub struct SealedFile {
    /// Its first bytes; another form of body has another magic.
    pub magic: &'static [u8; 8],
    /// Longest body, in bytes.
    pub body_bytes_max: usize,
}

impl SealedFile {
    /// The body of the file at a path, if there is one, and whole.
    pub fn load(&self, repository: &Repository, path: &Path) -> Option<Vec<u8>> {
        let mut bytes = private_dir::read(path, self.file_bytes_max()).ok()?;
        let (sealed, seal) = bytes.split_last_chunk::<SEAL_BYTES>()?;
        let is_ours = sealed.starts_with(self.magic) && repository.cache_seal(sealed) == *seal;
        let body = self.magic.len()..sealed.len();
        is_ours.then(|| {
            bytes.truncate(body.end);
            bytes.split_off(body.start)
        })
    }

    /// The old file or the new one is there afterwards. A body that is too long is not kept.
    pub fn save(&self, repository: &Repository, path: &Path, body: &[u8]) -> Result<()> {
        if body.len() > self.body_bytes_max {
            return Ok(());
        }
        let mut bytes = [self.magic.as_slice(), body].concat();
        bytes.extend_from_slice(&repository.cache_seal(&bytes));
        Ok(private_dir::keep(path, &bytes)?)
    }

    fn file_bytes_max(&self) -> u64 {
        (self.magic.len() + self.body_bytes_max + SEAL_BYTES) as u64
    }
}
