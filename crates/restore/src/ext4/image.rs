//! The file or device of an image, written by a thread of its own while the next blocks are made.

use crate::image_writer::ImageWriter;
use bale_fsimage::mkext4::BlockSink;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::fs::File;
use std::io;
use std::thread::JoinHandle;

/// Writes waiting for the thread.
const QUEUE_WRITES: usize = 4;
/// Buffers: waiting, being written, answered, spare, and those that are filled.
pub const BUFFERS_MAX: usize = 2 * QUEUE_WRITES + 4;

/// A sink that overlaps making blocks with writing them.
pub struct ImageFile {
    jobs: Option<Sender<Job>>,
    done: Option<Receiver<io::Result<Vec<u8>>>>,
    outstanding: usize,
    spare: Vec<Vec<u8>>,
    thread: Option<JoinHandle<()>>,
}

enum Job {
    Write(u64, Vec<u8>),
    Flush,
}

impl ImageFile {
    /// Writes to an open file.
    pub fn new(file: File) -> ImageFile {
        let (jobs, jobs_out) = bounded::<Job>(QUEUE_WRITES);
        // Never full: at most as many answers wait as jobs were sent and not yet answered.
        let (done_in, done) = bounded(QUEUE_WRITES + 2);
        let thread = std::thread::spawn(move || {
            let mut writer = ImageWriter::new(file);
            for job in jobs_out {
                let result = match job {
                    Job::Write(offset, buffer) => writer.write(offset, &buffer).map(|()| buffer),
                    Job::Flush => writer.file().sync_all().map(|()| Vec::new()),
                };
                if done_in.send(result).is_err() {
                    return;
                }
            }
        });
        ImageFile {
            jobs: Some(jobs),
            done: Some(done),
            outstanding: 0,
            spare: Vec::new(),
            thread: Some(thread),
        }
    }

    fn send(&mut self, job: Job) -> io::Result<()> {
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(job).map_err(|_| gone())?;
        self.outstanding += 1;
        Ok(())
    }

    fn answer(&mut self) -> io::Result<Vec<u8>> {
        self.outstanding -= 1;
        let done = self.done.as_ref().ok_or_else(gone)?;
        done.recv().map_err(|_| gone())?
    }
}

fn gone() -> io::Error {
    io::Error::other("the writing thread ended")
}

impl BlockSink for ImageFile {
    fn write_at(&mut self, offset_bytes: u64, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        let len = buffer.len();
        self.send(Job::Write(offset_bytes, buffer))?;
        if self.outstanding > QUEUE_WRITES {
            let buffer = self.answer()?;
            self.spare.push(buffer);
        }
        // One just as large as what was given, so that nobody has to make a small one large again.
        let fits = |(_, spare): &(usize, &Vec<u8>)| spare.len() >= len;
        let spares = self.spare.iter().enumerate().filter(fits);
        let fitting = spares.min_by_key(|(_, spare)| spare.len());
        let fitting = fitting.map(|(position, _)| position);
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
        // With the answers gone the thread ends at its next one.
        self.jobs = None;
        self.done = None;
        if let Some(thread) = self.thread.take() {
            let _its_error_was_told = thread.join();
        }
    }
}
