//! What is written to an overlay is there and below it nothing changes, also after a kill.

use crate::peer::{chain, have_all, pattern, run};
use bale_nbd::{
    AllocationRun, NbdExport, NbdOverlay, NbdServer, NbdServerAddress, OverlayError, OverlayOf,
};
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

const BLOCK: usize = 64 << 10;

/// Bytes that cannot be written, with holes where whole blocks are zeros.
struct Below {
    bytes: Vec<u8>,
    /// A block that cannot be read.
    bad: Option<usize>,
}

impl NbdExport for Below {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let (from, to) = (offset as usize, offset as usize + buffer.len());
        if let Some(bad) = self.bad
            && from < (bad + 1) * BLOCK
            && bad * BLOCK < to
        {
            return Err(io::Error::other("a bad block"));
        }
        buffer.copy_from_slice(&self.bytes[from..to]);
        Ok(())
    }

    fn run_at(&self, offset: u64) -> io::Result<AllocationRun> {
        let from = offset as usize;
        let end = (from / BLOCK * BLOCK + BLOCK).min(self.bytes.len());
        Ok(AllocationRun {
            bytes: (end - from) as u64,
            is_hole: self.bytes[from / BLOCK * BLOCK..end]
                .iter()
                .all(|byte| *byte == 0),
        })
    }
}

/// Of no whole number of blocks, every third one a hole.
fn below() -> Vec<u8> {
    let mut bytes = pattern(1, 21 * BLOCK + 1000);
    for block in (0..21).step_by(3) {
        bytes[block * BLOCK..(block + 1) * BLOCK].fill(0);
    }
    bytes
}

fn of(number: u8) -> OverlayOf {
    OverlayOf {
        identity: [number; 32],
        name: format!("image {number}"),
    }
}

fn open_over(path: &Path, bytes: &[u8]) -> Result<NbdOverlay, OverlayError> {
    let below = Below {
        bytes: bytes.to_vec(),
        bad: None,
    };
    NbdOverlay::open(path, Arc::new(below), &of(1))
}

fn bytes_of(overlay: &NbdOverlay) -> Vec<u8> {
    let mut bytes = vec![1; overlay.len() as usize];
    overlay.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Runs are without gaps, and holes are zeros.
fn assert_runs(overlay: &NbdOverlay, bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let run = overlay.run_at(at as u64).unwrap();
        let end = at + run.bytes as usize;
        assert!(run.bytes > 0 && end <= bytes.len(), "{at}: {run:?}");
        assert!(
            !run.is_hole || bytes[at..end].iter().all(|byte| *byte == 0),
            "{at}: {run:?}"
        );
        at = end;
    }
}

/// Numbers that look random.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695);
        (self.0 >> 33) as usize % bound
    }
}

/// One change of an overlay, and of the bytes that it must have.
fn change(overlay: &NbdOverlay, model: &mut [u8], choices: &mut Choices) {
    let whole = [1, 512, 4096, BLOCK, 2 * BLOCK, 5 * BLOCK][choices.below(6)];
    let grain = [1, 512, 4096, BLOCK][choices.below(4)];
    let offset = choices.below(model.len()) / grain * grain;
    // Often up to the very end.
    let to_end = choices.below(4) == 0;
    let end = if to_end {
        model.len()
    } else {
        (offset + whole).min(model.len())
    };
    let (at, range) = (offset as u64, offset..end);
    match choices.below(6) {
        0..3 => {
            let data = pattern(choices.below(1 << 20) as u64, range.len());
            overlay.write_at(at, &data).unwrap();
            model[range].copy_from_slice(&data);
        }
        3 => {
            let is_allocated = choices.below(2) == 0;
            overlay.zero(at, range.len() as u64, is_allocated).unwrap();
            model[range].fill(0);
        }
        _ => {
            overlay.trim(at, range.len() as u64).unwrap();
            // What is not a whole block may be as it was.
            overlay.read_at(at, &mut model[range]).unwrap();
        }
    }
}

#[test]
fn an_overlay_is_what_was_written_to_it_over_what_is_below_and_so_it_is_after_a_flush() {
    let directory = tempfile::tempdir().unwrap();
    for seed in 0..20 {
        let path = directory.path().join(seed.to_string());
        let (bytes, mut choices) = (below(), Choices(seed));
        let mut model = bytes.clone();
        for _ in 0..3 {
            let overlay = open_over(&path, &bytes).unwrap();
            assert!(bytes_of(&overlay) == model, "seed {seed}");
            for _ in 0..15 {
                change(&overlay, &mut model, &mut choices);
                assert!(bytes_of(&overlay) == model, "seed {seed}");
                assert_runs(&overlay, &model);
            }
            overlay.flush().unwrap();
        }
    }
}

#[test]
fn after_a_kill_each_block_is_as_it_was_flushed_or_as_it_was_written_last() {
    let directory = tempfile::tempdir().unwrap();
    for seed in 100..120 {
        let path = directory.path().join(seed.to_string());
        let (bytes, mut choices) = (below(), Choices(seed));
        let (mut model, mut flushed) = (bytes.clone(), bytes.clone());
        let overlay = open_over(&path, &bytes).unwrap();
        for step in 0..20 {
            change(&overlay, &mut model, &mut choices);
            if choices.below(5) == 0 {
                overlay.flush().unwrap();
                flushed.clone_from(&model);
            }
            // What the file is now is what a kill leaves.
            let left = directory.path().join("left");
            fs::copy(&path, &left).unwrap();
            let found = bytes_of(&open_over(&left, &bytes).unwrap());
            for (block, found) in found.chunks(BLOCK).enumerate() {
                let from = block * BLOCK;
                let range = from..from + found.len();
                let is_known = found == &flushed[range.clone()] || found == &model[range];
                assert!(is_known, "seed {seed}, step {step}, block {block}");
            }
        }
    }
}

#[test]
fn a_flush_is_there_for_whoever_opens_it_next_and_takes_no_more_space_than_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("overlay");
    let bytes = vec![7; 400 * BLOCK];
    let overlay = open_over(&path, &bytes).unwrap();
    assert!(matches!(
        open_over(&path, &bytes),
        Err(OverlayError::InUse(_))
    ));
    overlay.write_at(5 * BLOCK as u64 + 9, b"written").unwrap();
    overlay
        .zero(100 * BLOCK as u64, 250 * BLOCK as u64, false)
        .unwrap();
    overlay.flush().unwrap();
    drop(overlay);
    let metadata = fs::metadata(&path).unwrap();
    assert!(metadata.blocks() * 512 < 10 * BLOCK as u64, "{metadata:?}");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let overlay = open_over(&path, &bytes).unwrap();
    let mut read = [0; 9];
    overlay.read_at(5 * BLOCK as u64 + 8, &mut read).unwrap();
    assert_eq!(&read, b"\x07written\x07");
    let run = overlay.run_at(100 * BLOCK as u64).unwrap();
    assert_eq!((run.is_hole, run.bytes), (true, 250 * BLOCK as u64));
}

#[test]
fn what_is_no_overlay_of_this_image_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("overlay");
    let bytes = below();
    drop(open_over(&path, &bytes).unwrap());
    let refused = |over: &[u8], of: &OverlayOf| {
        let before = fs::read(&path).unwrap();
        let below = Arc::new(Below {
            bytes: over.to_vec(),
            bad: None,
        });
        let error = NbdOverlay::open(&path, below, of)
            .err()
            .expect("it is refused");
        assert!(fs::read(&path).unwrap() == before);
        error
    };
    let error = refused(&bytes, &of(2));
    assert!(
        chain(&error).contains("of image 1, and not of image 2"),
        "{}",
        chain(&error)
    );
    assert!(matches!(
        refused(&bytes[1..], &of(1)),
        OverlayError::OfAnother { .. }
    ));
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(10 * BLOCK as u64).unwrap();
    assert!(matches!(
        refused(&bytes, &of(1)),
        OverlayError::CutShort { .. }
    ));
    // A length of a name that lies.
    file.write_all_at(&[255; 2], 48).unwrap();
    assert!(matches!(
        refused(&bytes, &of(1)),
        OverlayError::OfAnother { .. }
    ));
    for other in [&b""[..], b"a letter", &[0; 8192]] {
        fs::write(&path, other).unwrap();
        assert!(matches!(
            refused(&bytes, &of(1)),
            OverlayError::NoOverlay(_)
        ));
    }
}

#[test]
fn a_block_that_cannot_be_read_below_takes_whole_blocks_only_and_others_take_anything() {
    let directory = tempfile::tempdir().unwrap();
    let below = Below {
        bytes: vec![3; 4 * BLOCK],
        bad: Some(1),
    };
    let path = directory.path().join("overlay");
    let overlay = NbdOverlay::open(&path, Arc::new(below), &of(1)).unwrap();
    let block = BLOCK as u64;
    assert!(overlay.write_at(block + 1, b"x").is_err());
    assert!(overlay.read_at(block, &mut [0; 9]).is_err());
    overlay.write_at(2 * block + 1, b"x").unwrap();
    overlay.write_at(block, &vec![4; BLOCK]).unwrap();
    overlay.write_at(block + 1, b"x").unwrap();
    let mut read = [0; 3];
    overlay.read_at(block, &mut read).unwrap();
    assert_eq!(&read, b"\x04x\x04");
}

#[test]
fn qemu_writes_discards_and_reads_back_what_it_wrote() {
    if !have_all(&["qemu-io", "nbdcopy", "qemu-img"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("overlay");
    let bytes = below();
    let overlay = open_over(&path, &bytes).unwrap();
    let address = NbdServerAddress::Unix(directory.path().join("socket"));
    let exports: Vec<(String, Arc<dyn NbdExport>)> = vec![(String::new(), Arc::new(overlay))];
    let server = NbdServer::start(&address, exports).unwrap();
    let uri = server.uri("").to_string();
    let words = [
        "write -P 9 70000 200000",
        "write -z -u 524288 131072",
        "discard 720896 65536",
        "write -f -P 8 1000 24",
        "flush",
        "read -P 9 70000 200000",
        "read -P 0 524288 131072",
    ];
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(words.iter().flat_map(|word| ["-c", *word]));
    arguments.push(&uri);
    run("qemu-io", &arguments);
    let copied = directory.path().join("copied");
    run("nbdcopy", &[&uri, copied.to_str().unwrap()]);
    server.stop();
    let mut model = bytes.clone();
    model[70_000..270_000].fill(9);
    model[524_288..655_360].fill(0);
    model[720_896..786_432].fill(0);
    model[1000..1024].fill(8);
    assert!(fs::read(copied).unwrap() == model);
    assert!(bytes_of(&open_over(&path, &bytes).unwrap()) == model);
}
