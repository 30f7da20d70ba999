//! Randomness: the only place that draws random bytes.
//!
//! Salts, run ids and temporary names come from here. Operations are handed a `Random`, so that a
//! test can replay a run.

use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::rand::{GetRandomFlags, getrandom};

/// Draws random bytes.
pub trait Random: Send + Sync {
    /// Fills all of `bytes`, or fails; never with fewer or weaker bytes.
    fn fill(&self, bytes: &mut [u8]) -> io::Result<()>;
}

/// So many random bytes.
pub fn draw<const N: usize>(random: &dyn Random) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    random.fill(&mut bytes)?;
    Ok(bytes)
}

/// The kernel's generator. Fit for keys; asked each time, so a cloned or forked process never
/// repeats what it drew.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsRandom;

impl Random for OsRandom {
    fn fill(&self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match getrandom(&mut *bytes, GetRandomFlags::empty()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(drawn) => bytes = &mut bytes[drawn..],
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// The same bytes for the same seed, for tests. Never for keys.
#[derive(Debug)]
pub struct SeededRandom {
    stream: Mutex<blake3::OutputReader>,
}

impl SeededRandom {
    /// Starts the stream that belongs to a seed.
    pub fn new(seed: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("bale 1 test randomness");
        hasher.update(&seed.to_le_bytes());
        Self {
            stream: Mutex::new(hasher.finalize_xof()),
        }
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fill(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_the_same_bytes() {
        let (one, same, other) = (
            SeededRandom::new(1),
            SeededRandom::new(1),
            SeededRandom::new(2),
        );
        let first: [u8; 100] = draw(&one).unwrap();
        assert_eq!(first, draw(&same).unwrap());
        assert_ne!(first, draw(&other).unwrap());
        assert_ne!(first, draw(&one).unwrap(), "the stream goes on");
    }

    #[test]
    fn the_kernel_fills_every_byte() {
        // 1,000 draws of 300 bytes: a byte that is never written would be zero every time.
        let mut touched = [0_u8; 300];
        for _ in 0..1_000 {
            let drawn: [u8; 300] = draw(&OsRandom).unwrap();
            touched
                .iter_mut()
                .zip(drawn)
                .for_each(|(seen, byte)| *seen |= byte);
        }
        assert!(touched.iter().all(|&byte| byte != 0));
    }
}
