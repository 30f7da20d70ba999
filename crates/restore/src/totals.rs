//! The sums of a plan: what the progress and the look at free space go by.

/// What a restore will write at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanTotals {
    /// Regular files, each inode once.
    pub files: u64,
    pub directories: u64,
    /// Symbolic links, devices, pipes.
    pub others: u64,
    /// Further names of inodes.
    pub links: u64,
    /// Content bytes, holes not counted.
    pub bytes: u64,
}

impl PlanTotals {
    /// Entries of all kinds.
    pub fn entries(&self) -> u64 {
        self.files + self.directories + self.others + self.links
    }

    /// Inodes that will be made.
    pub fn inodes(&self) -> u64 {
        self.files + self.directories + self.others
    }

    /// At least this is taken from the device: content, and a block for each directory. The last
    /// block of a file may be shared or inlined by a clever file system, so it is counted as it is.
    pub fn bytes_on_device(&self, block_bytes: u64) -> u64 {
        self.bytes
            .saturating_add(self.directories.saturating_mul(block_bytes))
    }
}
