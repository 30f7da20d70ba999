//! Reads from many files at once by one system call (`io_uring`).
//!
//! A thread that reads files one after the other sleeps and is woken once for each. Through a ring
//! it hands over a group of reads and sleeps once. Where the kernel has no rings or refuses them
//! (containers often do), [`ReadRing::new`] fails and the caller reads as ever.

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Between two looks for reads that cannot be waited for.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// One read from the beginning of a file.
pub struct Read<'a> {
    /// Open for reading.
    pub fd: BorrowedFd<'a>,
    /// To be filled.
    pub buffer: &'a mut [u8],
    /// How many bytes came; as from `pread`, these may be fewer than the file has.
    pub result: Result<usize, Errno>,
}

impl<'a> Read<'a> {
    /// A read that was not tried yet.
    pub fn new(fd: BorrowedFd<'a>, buffer: &'a mut [u8]) -> Read<'a> {
        Read {
            fd,
            buffer,
            result: Err(Errno::CANCELED),
        }
    }
}

pub struct ReadRing {
    ring: IoUring,
    entries: usize,
    broken: bool,
}

impl ReadRing {
    /// Room for `entries` reads at a time. An error: there are no rings here, or not for us.
    pub fn new(entries: u32) -> io::Result<ReadRing> {
        Ok(ReadRing {
            ring: IoUring::new(entries)?,
            entries: entries as usize,
            broken: false,
        })
    }

    /// Does all reads and returns when none is under way any more. After an error, reads without a
    /// result were not done, and the ring does nothing more.
    pub fn read_all(&mut self, reads: &mut [Read<'_>]) -> io::Result<()> {
        for group in reads.chunks_mut(self.entries) {
            if self.broken {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.broken = true;
            self.read_group(group)?;
            self.broken = false;
        }
        Ok(())
    }

    fn read_group(&mut self, group: &mut [Read<'_>]) -> io::Result<()> {
        for (number, read) in group.iter_mut().enumerate() {
            let fd = types::Fd(read.fd.as_raw_fd());
            // A longer buffer is not filled at once; the caller sees a short read.
            let len = u32::try_from(read.buffer.len()).unwrap_or(u32::MAX);
            let entry = opcode::Read::new(fd, read.buffer.as_mut_ptr(), len)
                .build()
                .user_data(number as u64);
            // SAFETY: descriptor and buffer are borrowed until `read_all` returns, and it returns
            // only when the kernel has answered every entry that it took. Entries that it did not
            // take stay in a ring that is never submitted again (`broken`).
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("a group has as many entries as the ring, and the ring was empty");
        }
        let mut answered = 0;
        let mut failed = None;
        loop {
            answered += self.take_answers(group);
            let not_taken = self.ring.submission().len();
            let under_way = group.len() - not_taken - answered;
            match (&failed, under_way, not_taken) {
                (None, 0, 0) => return Ok(()),
                (Some(_), 0, _) => return Err(failed.take().expect("matched above")),
                // Nothing may be left under way, whatever the kernel says to waiting.
                (Some(_), ..) => std::thread::sleep(LOOK_EVERY),
                (None, ..) => match self.ring.submit_and_wait(group.len() - answered) {
                    Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                        failed = Some(error);
                    }
                    _ => {}
                },
            }
        }
    }

    fn take_answers(&mut self, group: &mut [Read<'_>]) -> usize {
        let mut answered = 0;
        for answer in self.ring.completion() {
            let read = &mut group[answer.user_data() as usize];
            read.result = match usize::try_from(answer.result()) {
                Ok(bytes) => Ok(bytes),
                Err(_) => Err(Errno::from_raw_os_error(-answer.result())),
            };
            answered += 1;
        }
        answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    /// Makes the kernel answer `io_uring_setup` of this thread, and no other call, with an error.
    fn refuse_rings(errno: Errno) {
        const LOAD_CALL_NUMBER: libc::sock_filter = libc::sock_filter {
            code: 0x20,
            jt: 0,
            jf: 0,
            k: 0,
        };
        let answer = |k| libc::sock_filter {
            code: 0x06,
            jt: 0,
            jf: 0,
            k,
        };
        let mut filter = [
            LOAD_CALL_NUMBER,
            libc::sock_filter {
                code: 0x15,
                jt: 0,
                jf: 1,
                k: libc::SYS_io_uring_setup as u32,
            },
            answer(0x0005_0000 | errno.raw_os_error() as u32),
            answer(0x7fff_0000),
        ];
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: plain numbers; the program and its filter live across the call.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &program), 0);
        }
    }

    /// `None`, loudly: no rings on this machine.
    fn ring(entries: u32) -> Option<ReadRing> {
        match ReadRing::new(entries) {
            Ok(ring) => Some(ring),
            Err(error) => {
                // The kernel's business, and no missing tool.
                eprintln!("SKIPPED: this kernel gives no io_uring: {error}");
                None
            }
        }
    }

    fn files(count: usize) -> Vec<(File, Vec<u8>)> {
        let file = |number: usize| {
            let mut file = tempfile::tempfile().unwrap();
            let bytes = vec![number as u8; number * 997 % 9000];
            file.write_all(&bytes).unwrap();
            (file, bytes)
        };
        (0..count).map(file).collect()
    }

    #[test]
    fn more_reads_than_the_ring_has_room_for_all_give_their_own_bytes() {
        let Some(mut ring) = ring(4) else { return };
        let files = files(50);
        let mut buffers = vec![vec![0; 9001]; files.len()];
        for _ in 0..3 {
            let pairs = files.iter().zip(&mut buffers);
            let mut reads: Vec<Read<'_>> = pairs
                .map(|((file, _), buffer)| Read::new(file.as_fd(), buffer))
                .collect();
            ring.read_all(&mut reads).unwrap();
            for (read, (_, bytes)) in reads.iter().zip(&files) {
                assert_eq!(read.result, Ok(bytes.len()));
                assert_eq!(read.buffer[..bytes.len()], bytes[..]);
            }
        }
    }

    #[test]
    fn a_read_that_fails_says_why_and_disturbs_no_other() {
        let Some(mut ring) = ring(4) else { return };
        let files = files(2);
        let directory = File::open("/").unwrap();
        let mut buffers = [[0; 4096]; 2];
        let [one, two] = &mut buffers;
        let mut reads = [
            Read::new(directory.as_fd(), one),
            Read::new(files[1].0.as_fd(), two),
        ];
        ring.read_all(&mut reads).unwrap();
        assert_eq!(reads[0].result, Err(Errno::ISDIR));
        assert_eq!(reads[1].result, Ok(997));
    }

    #[test]
    fn where_rings_are_refused_it_says_so_at_once() {
        for errno in [Errno::NOSYS, Errno::PERM] {
            let refused = std::thread::spawn(move || {
                refuse_rings(errno);
                ReadRing::new(4).err()
            });
            let error = refused.join().unwrap().unwrap();
            assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()));
        }
    }
}
