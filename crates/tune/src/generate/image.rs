//! An image file or block device, written by a thread of its own.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use bale_fsimage::mkext4::{BlockSink, Ext4Options, ScratchMaker};

/// Writes waiting for the thread: with buffers of 4 MiB at most 24 MiB.
const QUEUE_WRITES: usize = 4;

/// A sink that overlaps making blocks with writing them.
pub struct ImageFile {
    jobs: Option<SyncSender<Job>>,
    done: Receiver<io::Result<Vec<u8>>>,
    outstanding: usize,
    spare: Vec<Vec<u8>>,
    thread: Option<JoinHandle<()>>,
}

/// What a path is, before anything is opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageTarget {
    /// Size of the block device; `None` for a file, which takes any size.
    pub device_bytes: Option<u64>,
}

impl ImageTarget {
    /// Looks at a path; one that does not exist will be a file.
    pub fn look_at(path: &Path) -> io::Result<ImageTarget> {
        let is_device =
            std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
        let device_bytes = if is_device {
            Some(File::open(path)?.seek(SeekFrom::End(0))?)
        } else {
            None
        };
        Ok(ImageTarget { device_bytes })
    }

    /// What follows for the options: a device has its size, and keeps old bytes where nothing is written.
    pub fn apply(&self, options: &mut Ext4Options) {
        options.target_is_zeroed = self.device_bytes.is_none();
        if options.size_bytes.is_none() {
            options.size_bytes = self.device_bytes;
        }
    }
}

enum Job {
    Write(u64, Vec<u8>),
    Flush,
}

impl ImageFile {
    /// Opens a block device as it is, or makes an empty sparse file of `len_bytes`.
    pub fn open(path: &Path, len_bytes: u64) -> io::Result<ImageFile> {
        let is_device = ImageTarget::look_at(path)?.device_bytes.is_some();
        let file = if is_device {
            File::options().write(true).open(path)?
        } else {
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)?;
            file.set_len(len_bytes)?;
            file
        };
        let (jobs, jobs_out) = sync_channel::<Job>(QUEUE_WRITES);
        // Never full: at most as many answers wait as jobs were sent and not yet answered.
        let (done_in, done) = sync_channel(QUEUE_WRITES + 2);
        let thread = std::thread::spawn(move || {
            for job in jobs_out {
                let result = match job {
                    Job::Write(offset, buffer) => {
                        file.write_all_at(&buffer, offset).map(|()| buffer)
                    }
                    Job::Flush => file.sync_all().map(|()| Vec::new()),
                };
                if done_in.send(result).is_err() {
                    return;
                }
            }
        });
        let thread = Some(thread);
        Ok(ImageFile {
            jobs: Some(jobs),
            done,
            outstanding: 0,
            spare: Vec::new(),
            thread,
        })
    }

    fn send(&mut self, job: Job) -> io::Result<()> {
        let gone = || io::Error::other("the writing thread ended");
        self.jobs
            .as_ref()
            .ok_or_else(gone)?
            .send(job)
            .map_err(|_| gone())?;
        self.outstanding += 1;
        Ok(())
    }

    fn answer(&mut self) -> io::Result<Vec<u8>> {
        self.outstanding -= 1;
        self.done
            .recv()
            .map_err(|_| io::Error::other("the writing thread ended"))?
    }
}

/// Nameless scratch files in `directory`.
pub fn scratch_in(directory: &Path) -> ScratchMaker {
    let directory = directory.to_owned();
    Box::new(move || Ok(Box::new(tempfile::tempfile_in(&directory)?)))
}

impl BlockSink for ImageFile {
    fn write_at(&mut self, offset_bytes: u64, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        let len = buffer.len();
        self.send(Job::Write(offset_bytes, buffer))?;
        if self.outstanding > QUEUE_WRITES {
            let buffer = self.answer()?;
            self.spare.push(buffer);
        }
        // One as large as what was given, so that nobody has to make a small one large again.
        let fitting = self.spare.iter().position(|spare| spare.len() >= len);
        let buffer = fitting.map(|position| self.spare.swap_remove(position));
        self.spare.truncate(QUEUE_WRITES);
        Ok(buffer.unwrap_or_default())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send(Job::Flush)?;
        while self.outstanding > 0 {
            self.answer()?;
        }
        Ok(())
    }
}

impl Drop for ImageFile {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            while self.done.try_recv().is_ok() {}
            // With the answers gone the thread ends at its next one.
            drop(std::mem::replace(&mut self.done, sync_channel(0).1));
            let _ = thread.join();
        }
    }
}
