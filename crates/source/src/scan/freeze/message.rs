//! What the processes of a barrier say to each other: one datagram of 64 bytes at a time, in the
//! words of this machine, since all of them are the same program.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Numbers in a message.
const NUMBERS: usize = 7;
const MESSAGE_BYTES: usize = (NUMBERS + 1) * 8;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Caller: be the freezer. With the mount and the socket to the watchdog.
    BeFreezer,
    /// Caller: be the watchdog (longest freeze in ms, freezer's process number). With the mount and
    /// the socket.
    BeWatchdog,
    /// Both: taken up.
    Ready,
    /// Caller: make a barrier (kind).
    Barrier,
    /// Freezer: made (coarse s, ns, fine s, ns, waited ns, frozen ns).
    Made,
    /// Freezer: not made (what failed, error number).
    Failed,
    /// Freezer to watchdog: about to freeze. The watchdog answers `Ready`.
    Freezing,
    /// Freezer to watchdog: frozen.
    Frozen,
    /// Freezer to watchdog: not frozen any more, or not at all.
    Thawed,
}

const KINDS: [Kind; 9] = [
    Kind::BeFreezer,
    Kind::BeWatchdog,
    Kind::Ready,
    Kind::Barrier,
    Kind::Made,
    Kind::Failed,
    Kind::Freezing,
    Kind::Frozen,
    Kind::Thawed,
];

/// One message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) numbers: [i64; NUMBERS],
}

impl Message {
    pub(super) fn new(kind: Kind) -> Message {
        Message {
            kind,
            numbers: [0; NUMBERS],
        }
    }

    /// Of a failure: what failed, and the kernel's error number.
    pub(super) fn failed(what: i64, error: &io::Error) -> Message {
        let mut message = Message::new(Kind::Failed);
        message.numbers[0] = what;
        message.numbers[1] = error.raw_os_error().unwrap_or(0).into();
        message
    }

    /// The error that a failure carries.
    pub(super) fn error(&self) -> io::Error {
        match i32::try_from(self.numbers[1]) {
            Ok(number) if self.kind == Kind::Failed && number > 0 => {
                io::Error::from_raw_os_error(number)
            }
            _ => io::ErrorKind::InvalidData.into(),
        }
    }

    fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        let kind = KINDS.iter().position(|kind| *kind == self.kind);
        let kind = kind.expect("the list names all kinds") as i64;
        for (to, number) in bytes
            .chunks_exact_mut(8)
            .zip([kind].iter().chain(&self.numbers))
        {
            to.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> io::Result<Message> {
        let mut numbers = bytes
            .chunks_exact(8)
            .map(|eight| i64::from_ne_bytes(eight.try_into().expect("cut into eights")));
        let kind = numbers.next().and_then(|at| usize::try_from(at).ok());
        let kind = kind.and_then(|at| KINDS.get(at)).copied();
        match (kind, bytes.len()) {
            (Some(kind), MESSAGE_BYTES) => {
                let mut message = Message::new(kind);
                message
                    .numbers
                    .iter_mut()
                    .zip(numbers)
                    .for_each(|(to, number)| *to = number);
                Ok(message)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// One end of a socket that keeps messages apart. Nothing here allocates once a message is
/// received.
pub(super) struct Channel {
    socket: OwnedFd,
}

impl Channel {
    pub(super) fn new(socket: OwnedFd) -> Channel {
        Channel { socket }
    }

    /// Never waits: a peer that does not read gets no more.
    pub(super) fn send(&self, message: &Message) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        retry(|| send(&self.socket, &message.encode(), flags))?;
        Ok(())
    }

    /// Sends open files along.
    pub(super) fn send_with(&self, message: &Message, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bytes = message.encode();
        sendmsg(
            &self.socket,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// The next message; `None` when the other end is gone, `TimedOut` when it says nothing for so
    /// long.
    pub(super) fn receive(&self, wait_max: Option<Duration>) -> io::Result<Option<Message>> {
        self.wait(wait_max)?;
        let mut bytes = [0_u8; MESSAGE_BYTES];
        let received =
            retry(|| recv(&self.socket, &mut bytes, RecvFlags::empty()).map(|(len, _)| len));
        match received {
            Ok(0) => Ok(None),
            Ok(len) => Message::decode(&bytes[..len.min(MESSAGE_BYTES)]).map(Some),
            // It went without reading what we sent.
            Err(Errno::CONNRESET) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The next message and the open files that came with it.
    pub(super) fn receive_with(&self) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0_u8; MESSAGE_BYTES];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(
            &self.socket,
            &mut parts,
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        let mut files = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                files.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        let message = Message::decode(&bytes[..received.bytes.min(MESSAGE_BYTES)])?;
        Ok(Some((message, files)))
    }

    fn wait(&self, wait_max: Option<Duration>) -> io::Result<()> {
        let until = wait_max.map(|wait| (Instant::now(), wait));
        loop {
            let left = until.map(|(start, wait)| wait.saturating_sub(start.elapsed()));
            let left = left.map(|left| Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
            match poll(&mut fds, left.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_the_same_on_the_other_side() {
        for (at, kind) in KINDS.into_iter().enumerate() {
            let mut message = Message::new(kind);
            message.numbers = [i64::MIN, -1, 0, 1, 2, 3, at as i64];
            let decoded = Message::decode(&message.encode()).unwrap();
            assert_eq!((decoded.kind, decoded.numbers), (kind, message.numbers));
        }
    }

    #[test]
    fn what_is_not_a_message_is_refused() {
        let good = Message::new(Kind::Ready).encode();
        assert!(Message::decode(&good[..MESSAGE_BYTES - 1]).is_err());
        assert!(Message::decode(b"").is_err());
        let mut unknown = good;
        unknown[..8].copy_from_slice(&99_i64.to_ne_bytes());
        assert!(Message::decode(&unknown).is_err());
    }
}
