//! An unnamed file that is written by a thread of its own, from front to back.

use bale_pipeline::spill::unnamed_file;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::thread::JoinHandle;

/// Stretches on their way to the file.
pub(super) const STRETCHES_AHEAD_MAX: usize = 8;

/// Takes stretches of bytes.
pub(super) struct Appender {
    stretches: Sender<Vec<u8>>,
    /// Empty again.
    spares: Receiver<Vec<u8>>,
    thread: JoinHandle<io::Result<File>>,
}

impl Appender {
    pub(super) fn create(spill: &Path) -> io::Result<Appender> {
        let mut file = unnamed_file(spill)?;
        let (stretches, queue) = bounded::<Vec<u8>>(STRETCHES_AHEAD_MAX);
        let (spare, spares) = bounded(STRETCHES_AHEAD_MAX);
        let write = move || {
            for mut stretch in queue {
                file.write_all(&stretch)?;
                stretch.clear();
                let _more_than_needed_are_freed = spare.try_send(stretch);
            }
            Ok(file)
        };
        Ok(Appender {
            stretches,
            spares,
            thread: std::thread::Builder::new().spawn(write)?,
        })
    }

    /// Where stretches come back, empty and with their room.
    pub(super) fn spares(&self) -> Receiver<Vec<u8>> {
        self.spares.clone()
    }

    /// False: writing failed, and [`Appender::finish`] tells why.
    pub(super) fn append(&self, stretch: Vec<u8>) -> bool {
        stretch.is_empty() || self.stretches.send(stretch).is_ok()
    }

    /// The file, when all is written.
    pub(super) fn finish(self) -> io::Result<File> {
        drop(self.stretches);
        self.thread.join().expect("writing does not panic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn stretches_come_one_behind_the_other() {
        let appender = Appender::create(&std::env::temp_dir()).unwrap();
        for number in 0..100u8 {
            assert!(appender.append(vec![number; 1000]));
        }
        let file = appender.finish().unwrap();
        let mut bytes = vec![0; 100_000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!((0..100_000).all(|at| usize::from(bytes[at]) == at / 1000));
        assert_eq!(file.metadata().unwrap().len(), 100_000);
    }
}
