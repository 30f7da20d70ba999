//! How far a generator is.

/// Counts so far, or at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerateProgress {
    /// Directories, the root included.
    pub directories: u64,
    /// Regular files written.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files.
    pub links: u64,
    /// Names that were there before and were left alone.
    pub existing: u64,
    /// Bytes of content, holes not counted.
    pub content_bytes: u64,
}

impl std::ops::AddAssign for GenerateProgress {
    fn add_assign(&mut self, other: GenerateProgress) {
        self.directories += other.directories;
        self.files += other.files;
        self.symlinks += other.symlinks;
        self.links += other.links;
        self.existing += other.existing;
        self.content_bytes += other.content_bytes;
    }
}

/// Is told about progress after every batch of some hundred names, always from the calling thread.
pub trait GenerateMonitor {
    /// `false` stops the generator, which then fails with `Stopped`.
    fn progress(&self, so_far: &GenerateProgress) -> bool;
}

/// Nobody watches.
pub struct Unwatched;

impl GenerateMonitor for Unwatched {
    fn progress(&self, _so_far: &GenerateProgress) -> bool {
        true
    }
}
