//! Chunks: their kinds, and how their bytes are made smaller.
//!
//! Compressing is 15 to 40 times slower than hashing, so a cheap sample decides first whether it is
//! worth trying. Contexts are kept by the caller, one per thread: a fresh pair of them costs 26 us.

use crate::error::{Fault, FormatError};
use crate::limits::{CHUNK_BYTES_MAX, ZSTD_WINDOW_LOG_MAX};
use crate::padding::check_padding;
use zstd::zstd_safe::{CParameter, DParameter};

/// What the bytes of a chunk are. The numbers are format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ChunkKind {
    /// Bytes of files.
    Data = 1,
    /// A segment of a catalog.
    Segment = 2,
    /// A list of pieces.
    Pieces = 3,
    /// A set of extended attributes.
    Xattrs = 4,
}

impl ChunkKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [ChunkKind; 4] = [
        ChunkKind::Data,
        ChunkKind::Segment,
        ChunkKind::Pieces,
        ChunkKind::Xattrs,
    ];

    /// Is it what names and describes files, and not their bytes?
    pub fn is_metadata(self) -> bool {
        self != ChunkKind::Data
    }

    /// From the number in a record.
    pub fn from_number(number: u8) -> Option<ChunkKind> {
        ChunkKind::ALL
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }

    pub(crate) fn position(self) -> usize {
        self as usize - 1
    }

    pub(crate) fn id_context(self) -> &'static str {
        match self {
            ChunkKind::Data => "bale 1 chunk id data",
            ChunkKind::Segment => "bale 1 chunk id segment",
            ChunkKind::Pieces => "bale 1 chunk id pieces",
            ChunkKind::Xattrs => "bale 1 chunk id xattrs",
        }
    }
}

/// How a plaintext is written. The numbers are format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// As it is.
    Stored = 0,
    /// One zstd frame.
    Zstd = 1,
}

impl Codec {
    /// From the number in a record.
    pub fn from_number(number: u8) -> Option<Codec> {
        match number {
            0 => Some(Codec::Stored),
            1 => Some(Codec::Zstd),
            _ => None,
        }
    }
}

/// Level for everything unless somebody asks for another.
pub const LEVEL_DEFAULT: i32 = 3;
/// From here on zstd compares the prices of many ways.
const LEVEL_OF_PRICES: i32 = 16;
/// The highest one that may be asked for.
pub const LEVEL_MAX: i32 = 19;

/// How contents are compressed. What describes them always is, at the default level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// At the level that keeps up with disks, what a sample says is worth it.
    #[default]
    Auto,
    /// Stored as they are.
    Off,
    /// At a level of zstd, 1 to [`LEVEL_MAX`], what a sample says is worth it.
    Level(i32),
}

/// Chunks below this are compressed without a sample: it would cost as much.
const PROBE_BYTES_MIN: usize = 64 << 10;
/// One sample of the probe.
const SAMPLE_BYTES: usize = 512;
const _: () = assert!(PROBE_BYTES_MIN / 8 > SAMPLE_BYTES);
/// One byte of this many is sampled, about 1 % of what the compressor would do.
const SAMPLE_SHARE: usize = 128;
/// A sample or a chunk that does not lose one byte of this many is stored as it is.
const WORTH_SHARE: usize = 32;
/// Where samples lie between two multiples of their distance: without it all of them would be at
/// the beginnings of a file system's blocks, in front of the zeros that fill up the last block of
/// each file.
const SAMPLE_PLACE_STEP: usize = 0x9e37_79b1;
/// Sampled bytes of which one of this many is zero may owe to zeros what they lose.
const ZEROS_SHARE: usize = 8;
/// They do, if compressing took no more than one of this many from the others.
const BESIDE_ZEROS_SHARE: usize = 16;

/// Level where zeros are all that can be made smaller. Measured on blocks of a file system with
/// files of 1.5 KiB: 2.8 GB/s, where level 1 has 1.0 and level 3 has 0.43, to sizes that differ by
/// 0.3 %.
const LEVEL_FOR_ZEROS: i32 = -5;

/// What a sample says of its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worth {
    Nothing,
    /// Zeros are all that can be made smaller, which [`LEVEL_FOR_ZEROS`] does as well.
    Zeros,
    All,
}

/// What the contexts of one thread that compresses and looks again take, beside its buffers
/// (measured 3.2 MiB).
pub const CONTEXT_BYTES_MAX: usize = 4 << 20;

/// Compresses chunks, one after the other, reusing its contexts and buffer.
pub struct Compressor {
    general: zstd::bulk::Compressor<'static>,
    probe: zstd::bulk::Compressor<'static>,
    for_zeros: Option<zstd::bulk::Compressor<'static>>,
    /// With long-distance matching: equal columns of a segment lie up to 2 MB apart.
    distant: Option<zstd::bulk::Compressor<'static>>,
    stores_contents: bool,
    sample: Vec<u8>,
    out: Vec<u8>,
}

impl Compressor {
    /// At a zstd level, 1 to 19.
    pub fn new(level: i32) -> Compressor {
        Compressor::of(Compression::Level(level))
    }

    /// As somebody wants it.
    pub fn of(compression: Compression) -> Compressor {
        let level = match compression {
            Compression::Level(level) => level.clamp(1, LEVEL_MAX),
            Compression::Auto | Compression::Off => LEVEL_DEFAULT,
        };
        Compressor {
            general: general(level),
            probe: compressor(1),
            for_zeros: None,
            distant: None,
            stores_contents: compression == Compression::Off,
            sample: Vec::new(),
            out: Vec::new(),
        }
    }

    /// The smaller of the plaintext and its compressed form, and which it is.
    pub fn compress<'a>(&'a mut self, kind: ChunkKind, plain: &'a [u8]) -> (Codec, &'a [u8]) {
        if self.stores_contents && kind == ChunkKind::Data {
            return (Codec::Stored, plain);
        }
        let worth = match kind == ChunkKind::Data && plain.len() >= PROBE_BYTES_MIN {
            true => self.worth(plain),
            false => Worth::All,
        };
        let zstd = match (worth, kind) {
            (Worth::Nothing, _) => return (Codec::Stored, plain),
            (Worth::Zeros, _) => {
                let new = || compressor(LEVEL_FOR_ZEROS);
                self.for_zeros.get_or_insert_with(new)
            }
            (Worth::All, ChunkKind::Segment) => {
                self.distant.get_or_insert_with(|| distant(LEVEL_DEFAULT))
            }
            (Worth::All, _) => &mut self.general,
        };
        smaller(zstd, plain, &mut self.out)
    }

    /// For plaintexts that are not chunks.
    pub(crate) fn compress_any<'a>(&'a mut self, plain: &'a [u8]) -> (Codec, &'a [u8]) {
        smaller(&mut self.general, plain, &mut self.out)
    }

    /// Compresses samples from all over the chunk together at the fastest level.
    fn worth(&mut self, plain: &[u8]) -> Worth {
        let samples = (plain.len() / SAMPLE_SHARE / SAMPLE_BYTES).max(8);
        let stride = plain.len() / samples;
        self.sample.clear();
        for number in 0..samples {
            let inside = number.wrapping_mul(SAMPLE_PLACE_STEP) % (stride - SAMPLE_BYTES);
            let start = number * stride + inside;
            self.sample
                .extend_from_slice(&plain[start..start + SAMPLE_BYTES]);
        }
        let zeros = self.sample.iter().filter(|byte| **byte == 0).count();
        let others = self.sample.len() - zeros;
        match shrink(&mut self.probe, &self.sample, &mut self.out) {
            None => Worth::Nothing,
            Some(compressed)
                if zeros >= self.sample.len() / ZEROS_SHARE
                    && compressed.len() >= others - others / BESIDE_ZEROS_SHARE =>
            {
                Worth::Zeros
            }
            Some(_) => Worth::All,
        }
    }
}

fn compressor(level: i32) -> zstd::bulk::Compressor<'static> {
    zstd::bulk::Compressor::new(level).expect("a zstd context is a small allocation")
}

/// At its default level with tables that stay in a core's second-level cache: 384 KiB where the
/// level has 768. On a machine whose third level is shared with others it compresses a fifth
/// faster; tiny files become 0.2 % larger, source code 1.4 %. Higher levels get tables of such
/// sizes, too: with their own a thread would take up to 80 MiB.
fn general(level: i32) -> zstd::bulk::Compressor<'static> {
    let mut zstd = compressor(level);
    if level >= LEVEL_DEFAULT {
        // The highest ones hold prices of all that may come next, too.
        let (hash, chain) = match level {
            LEVEL_OF_PRICES.. => (15, 14),
            _ => (16, 15),
        };
        for parameter in [CParameter::HashLog(hash), CParameter::ChainLog(chain)] {
            zstd.set_parameter(parameter)
                .expect("this zstd knows tables of such sizes");
        }
    }
    zstd
}

fn distant(level: i32) -> zstd::bulk::Compressor<'static> {
    let mut zstd = compressor(level);
    for parameter in [
        CParameter::EnableLongDistanceMatching(true),
        CParameter::WindowLog(ZSTD_WINDOW_LOG_MAX),
    ] {
        zstd.set_parameter(parameter)
            .expect("this zstd knows long-distance matching and windows of 16 MiB");
    }
    zstd
}

fn smaller<'a>(
    zstd: &mut zstd::bulk::Compressor<'_>,
    plain: &'a [u8],
    out: &'a mut Vec<u8>,
) -> (Codec, &'a [u8]) {
    match shrink(zstd, plain, out) {
        Some(compressed) => (Codec::Zstd, compressed),
        None => (Codec::Stored, plain),
    }
}

/// The compressed form, if it is smaller enough to be worth decompressing.
fn shrink<'o>(
    zstd: &mut zstd::bulk::Compressor<'_>,
    plain: &[u8],
    out: &'o mut Vec<u8>,
) -> Option<&'o [u8]> {
    // No more room than would be worth it: the compressor gives up by itself.
    let worth_bytes = plain.len() - plain.len().div_ceil(WORTH_SHARE).min(plain.len());
    make_room(out, worth_bytes);
    match zstd.compress_to_buffer(plain, &mut out[..worth_bytes]) {
        Ok(count) => Some(&out[..count]),
        Err(_) => None,
    }
}

/// A buffer grows by this: to twice its length it would take twice what is needed.
const GROWN_BYTES: usize = 256 << 10;

const fn grown_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(GROWN_BYTES)
}

/// At least so many bytes of any content.
fn make_room(buffer: &mut Vec<u8>, bytes: usize) {
    if buffer.len() < bytes {
        // Before the new one comes.
        *buffer = Vec::new();
        *buffer = vec![0; grown_bytes(bytes)];
    }
}

/// Opens what a [`Compressor`] made, reusing its context and buffers.
pub struct Decompressor {
    zstd: zstd::bulk::Decompressor<'static>,
    /// Opened, still compressed bytes.
    pub(crate) opened: Vec<u8>,
    /// What was only looked at, opened and decompressed. `looked_at` never shrinks, so that it is
    /// not filled with zeros again and again.
    looked_at: Vec<u8>,
    inflated: Vec<u8>,
    /// Room for the next plaintext that is handed out.
    supplied: Vec<u8>,
}

impl Default for Decompressor {
    fn default() -> Decompressor {
        Decompressor::new()
    }
}

impl Decompressor {
    /// With a window of at most 16 MiB.
    pub fn new() -> Decompressor {
        let mut zstd =
            zstd::bulk::Decompressor::new().expect("a zstd context is a small allocation");
        zstd.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))
            .expect("this zstd knows windows of 16 MiB");
        Decompressor {
            zstd,
            opened: Vec::new(),
            looked_at: Vec::new(),
            inflated: Vec::new(),
            supplied: Vec::new(),
        }
    }

    /// The next plaintext that is opened goes into this buffer, which grows if need be.
    pub fn supply(&mut self, buffer: Vec<u8>) {
        self.supplied = buffer;
        self.supplied.clear();
    }

    /// Exactly `plain_bytes` bytes or an error; never allocates more than that.
    pub fn decompress(
        &mut self,
        codec: Codec,
        payload: &[u8],
        plain_bytes: usize,
    ) -> Result<Vec<u8>, FormatError> {
        check_plain_bytes(plain_bytes)?;
        inflate(
            "chunk",
            &mut self.zstd,
            codec,
            (payload, plain_bytes),
            Vec::new(),
        )
    }

    /// As [`Decompressor::decompress`], of bytes just opened, for plaintexts whose bound the caller
    /// has checked. What follows the payload must be zeros.
    pub(crate) fn decompress_opened(
        &mut self,
        what: &'static str,
        codec: Codec,
        payload_bytes: usize,
        plain_bytes: usize,
    ) -> Result<Vec<u8>, FormatError> {
        check_padding(what, &self.opened, payload_bytes)?;
        self.opened.truncate(payload_bytes);
        if codec == Codec::Stored {
            // Hand out the buffer itself instead of a copy.
            let supplied = std::mem::take(&mut self.supplied);
            let plain = std::mem::replace(&mut self.opened, supplied);
            check_length(what, plain.len(), plain_bytes)?;
            return Ok(plain);
        }
        let plain = std::mem::take(&mut self.supplied);
        let opened = (&self.opened[..], plain_bytes);
        inflate(what, &mut self.zstd, codec, opened, plain)
    }

    /// Decompresses the payload at the start of the `opened_bytes` that `open` puts where it is
    /// told to, for a look: the buffers stay here and are used again.
    pub(crate) fn look_at(
        &mut self,
        what: &'static str,
        codec: Codec,
        opened_bytes: usize,
        (payload_bytes, plain_bytes): (usize, usize),
        open: impl FnOnce(&mut [u8]) -> Result<(), FormatError>,
    ) -> Result<&[u8], FormatError> {
        make_room(&mut self.looked_at, opened_bytes);
        let opened = &mut self.looked_at[..opened_bytes];
        open(opened)?;
        check_padding(what, opened, payload_bytes)?;
        let opened = &opened[..payload_bytes.min(opened_bytes)];
        let plain = match codec {
            Codec::Stored => opened,
            Codec::Zstd => {
                if self.inflated.capacity() < plain_bytes {
                    self.inflated = Vec::with_capacity(grown_bytes(plain_bytes));
                }
                self.inflated.clear();
                inflate_into(what, &mut self.zstd, opened, &mut self.inflated)?;
                &self.inflated[..]
            }
        };
        check_length(what, plain.len(), plain_bytes)?;
        Ok(plain)
    }
}

fn check_plain_bytes(plain_bytes: usize) -> Result<(), FormatError> {
    if plain_bytes > CHUNK_BYTES_MAX {
        return Err(FormatError::over(
            "chunk",
            "plain length",
            plain_bytes,
            CHUNK_BYTES_MAX,
        ));
    }
    Ok(())
}

fn check_length(what: &'static str, found: usize, expected: usize) -> Result<(), FormatError> {
    if found != expected {
        return Err(FormatError::damaged(
            what,
            Fault::Length {
                expected: expected as u64,
                found: found as u64,
            },
        ));
    }
    Ok(())
}

fn inflate(
    what: &'static str,
    zstd: &mut zstd::bulk::Decompressor<'_>,
    codec: Codec,
    (payload, plain_bytes): (&[u8], usize),
    mut plain: Vec<u8>,
) -> Result<Vec<u8>, FormatError> {
    match codec {
        Codec::Stored => {
            check_length(what, payload.len(), plain_bytes)?;
            plain.extend_from_slice(payload);
        }
        Codec::Zstd => {
            plain.reserve_exact(plain_bytes);
            inflate_into(what, zstd, payload, &mut plain)?;
        }
    }
    check_length(what, plain.len(), plain_bytes)?;
    Ok(plain)
}

/// At most as many bytes as `plain` has room for.
fn inflate_into(
    what: &'static str,
    zstd: &mut zstd::bulk::Decompressor<'_>,
    payload: &[u8],
    plain: &mut Vec<u8>,
) -> Result<(), FormatError> {
    match zstd.decompress_to_buffer(payload, plain) {
        Ok(_) => Ok(()),
        Err(_) => Err(FormatError::damaged(what, Fault::Compression)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::BUNDLE_BYTES_MAX;

    /// Each block of 4 KiB begins with 1.5 KiB that do not compress, and the rest is zeros.
    fn blocks_of_small_files(bytes: usize) -> Vec<u8> {
        let mut blocks = vec![0; bytes];
        let mut noise = blake3::Hasher::new().finalize_xof();
        for block in blocks.chunks_mut(4096) {
            noise.fill(&mut block[..1536]);
        }
        blocks
    }

    #[test]
    fn blocks_that_all_begin_with_noise_and_end_with_zeros_lose_the_zeros() {
        let mut compressor = Compressor::new(LEVEL_DEFAULT);
        for bytes in [64 << 10, 1 << 20, BUNDLE_BYTES_MAX] {
            let blocks = blocks_of_small_files(bytes);
            assert_eq!(compressor.worth(&blocks), Worth::Zeros, "{bytes}");
            let (codec, packed) = compressor.compress(ChunkKind::Data, &blocks);
            assert_eq!(codec, Codec::Zstd);
            assert!(packed.len() < bytes * 2 / 5, "{bytes}: {}", packed.len());
            let packed = packed.to_vec();
            let opened = Decompressor::new()
                .decompress(codec, &packed, bytes)
                .unwrap();
            assert!(opened == blocks);
        }
    }

    #[test]
    fn noise_is_stored_as_it_is_and_text_between_zeros_is_compressed_as_text() {
        let mut compressor = Compressor::new(LEVEL_DEFAULT);
        let mut noise = vec![0; 1 << 20];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        assert_eq!(compressor.worth(&noise), Worth::Nothing);
        let mut text = vec![0; 1 << 20];
        for (number, block) in text.chunks_mut(4096).enumerate() {
            let words = format!("of lines that are alike, this is number {number}\n").repeat(60);
            block[..words.len()].copy_from_slice(words.as_bytes());
        }
        assert_eq!(compressor.worth(&text), Worth::All);
    }

    #[test]
    fn contents_are_compressed_as_somebody_wants() {
        let text = b"of lines that are alike, this is number 0".repeat(10_000);
        let stored = |compression, kind| {
            let mut compressor = Compressor::of(compression);
            let (codec, packed) = compressor.compress(kind, &text);
            (codec, packed.len())
        };
        assert_eq!(
            stored(Compression::Off, ChunkKind::Data),
            (Codec::Stored, text.len())
        );
        assert_eq!(stored(Compression::Off, ChunkKind::Segment).0, Codec::Zstd);
        let default = stored(Compression::Level(LEVEL_DEFAULT), ChunkKind::Data);
        assert_eq!(stored(Compression::Auto, ChunkKind::Data), default);
        let words: Vec<u8> = (0..200_000_u32)
            .flat_map(|number| {
                format!("{:x} ", number.wrapping_mul(0x9e37_79b1) % 4096).into_bytes()
            })
            .collect();
        let bytes_at = |level| {
            Compressor::new(level)
                .compress(ChunkKind::Data, &words)
                .1
                .len()
        };
        assert!(
            bytes_at(LEVEL_MAX) < bytes_at(1),
            "{} {}",
            bytes_at(LEVEL_MAX),
            bytes_at(1)
        );
    }

    #[test]
    fn contexts_take_no_more_than_is_counted() {
        for level in 1..=LEVEL_MAX {
            contexts_of_a_level(level);
        }
    }

    fn contexts_of_a_level(level: i32) {
        let (mut compressor, mut decompressor) = (Compressor::new(level), Decompressor::new());
        let text = b"of lines that are alike, this is number 0".repeat(BUNDLE_BYTES_MAX / 41);
        for kind in ChunkKind::ALL {
            let (codec, packed) = compressor.compress(kind, &text);
            let packed = packed.to_vec();
            assert_eq!(codec, Codec::Zstd);
            let opened = decompressor.decompress(codec, &packed, text.len());
            assert!(opened.unwrap() == text);
        }
        let blocks = blocks_of_small_files(BUNDLE_BYTES_MAX);
        assert_eq!(compressor.worth(&blocks), Worth::Zeros);
        assert_eq!(compressor.compress(ChunkKind::Data, &blocks).0, Codec::Zstd);
        let Compressor {
            general,
            probe,
            for_zeros,
            distant,
            ..
        } = &mut compressor;
        let distant = distant.as_mut().expect("it compressed a segment");
        let for_zeros = for_zeros.as_mut().expect("it compressed zeros");
        let contexts = [general, probe, for_zeros, distant].map(|zstd| zstd.context_mut().sizeof());
        let bytes = contexts.iter().sum::<usize>();
        // And that of decompressing, which does not tell: 160 KiB.
        let bytes = bytes + (256 << 10);
        assert!(bytes <= CONTEXT_BYTES_MAX, "level {level}: {bytes}");
    }
}
