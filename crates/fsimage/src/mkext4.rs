//! Writing a complete ext4 file system in one sequential pass.
