//! Directories that names are in and that are not there, where names are with the inodes that they
//! lead to.
//!
//! Nobody would come by such names. One of each directory is said, as all of them may be many. Of
//! directories that lead in a circle nothing is noticed: each of them is there.

use super::faults::Faults;
use crate::image::Image;
use bale_pipeline::spill::{Sorter, Spill};
use std::io;

/// Memory for sorting directories.
pub(super) const SORT_DIRECTORIES_BYTES: usize = 4 << 20;

/// Behind the number of a directory in a key: first that it is there.
const IS_THERE: u8 = 0;
const HAS_NAME: u8 = 1;

/// Directories, and those of names.
pub(super) struct NamedDirectories {
    sorter: Sorter,
    /// Of the name before: most neighbours are in one.
    last: Option<u64>,
}

impl NamedDirectories {
    pub(super) fn new(spill: Spill<'_>) -> NamedDirectories {
        let memory = spill.memory.inode_share(SORT_DIRECTORIES_BYTES);
        NamedDirectories {
            sorter: Sorter::new(spill.directory, memory),
            last: None,
        }
    }

    pub(super) fn add_directory(&mut self, number: u64) -> io::Result<()> {
        self.add(number, IS_THERE, &[])
    }

    /// A name, and the directory that it is in.
    pub(super) fn add_name(&mut self, directory: u64, name: &[u8]) -> io::Result<()> {
        if self.last == Some(directory) {
            return Ok(());
        }
        self.last = Some(directory);
        self.add(directory, HAS_NAME, name)
    }

    fn add(&mut self, number: u64, what: u8, name: &[u8]) -> io::Result<()> {
        let number = number.to_be_bytes();
        let pushed = (self.sorter).push_parts([&number, &[what]], [name, &[], &[]]);
        pushed.map_err(io::Error::other)
    }

    /// Names those that are not there, but for what is left out on purpose.
    pub(super) fn report(self, image: &Image, faults: &mut Faults) -> io::Result<()> {
        let mut sorted = self.sorter.finish().map_err(io::Error::other)?;
        let mut last = None;
        while let Some((key, name)) = sorted.next_record().map_err(io::Error::other)? {
            let Some(([number @ .., what], [])) = key.split_first_chunk::<9>() else {
                return Err(io::Error::other("a temporary file is damaged"));
            };
            let number = u64::from_be_bytes(*number);
            let is_first = last.replace(number) != Some(number);
            if is_first && *what == HAS_NAME && !image.names().is_left_out(number) {
                faults.general(format!(
                    "what is in directory {} is missing, as it is not there: {} and perhaps others",
                    image.content().shown_number(number),
                    String::from_utf8_lossy(name).escape_debug()
                ));
            }
        }
        Ok(())
    }
}
