//! Exports of NBD servers: what a server says is believed as far as it can be, and whatever it does
//! ends in a snapshot that says so, or in none.

use crate::bench::{BLOCK, Images};
use bale_engine::backup::{BackupOptions, ImageSource, Outcome};
use bale_format::snapshot::ImageState;
use bale_format::{Entry, EntryFlags};
use bale_nbd::{AllocationRun, NbdExport, NbdServer, NbdServerAddress, NbdTransport};
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::CatalogReader;
use bale_source::raw::{RawImage, RawImageOptions};
use bale_testkit::scene::noise;
use bale_testkit::{FaultProxy, LineFault, Spoken, Toward};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Name of its row.
const ROW: &[u8] = b"disk.raw";

/// What a server serves.
#[derive(Default)]
struct Disk {
    bytes: Mutex<Vec<u8>>,
    /// Ranges that cannot be read.
    bad: Mutex<Vec<Range<u64>>>,
    /// Says of nothing that it is zeros.
    has_no_map: bool,
    /// Says that it has so many bytes more than it gives.
    missing: u64,
}

impl Disk {
    fn of(bytes: Vec<u8>) -> Disk {
        Disk {
            bytes: Mutex::new(bytes),
            ..Disk::default()
        }
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) {
        let range = offset as usize..offset as usize + bytes.len();
        self.bytes.lock().unwrap()[range].copy_from_slice(bytes);
    }
}

impl NbdExport for Disk {
    fn len(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64 + self.missing
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset + buffer.len() as u64;
        let bad = self.bad.lock().unwrap();
        if (bad.iter()).any(|bad| bad.start < end && offset < bad.end) {
            return Err(io::Error::other("a bad sector"));
        }
        let bytes = self.bytes.lock().unwrap();
        let bytes = bytes.get(offset as usize..end as usize);
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn run_at(&self, offset: u64) -> io::Result<AllocationRun> {
        if self.has_no_map {
            return Ok(AllocationRun {
                bytes: self.len() - offset,
                is_hole: false,
            });
        }
        let bytes = self.bytes.lock().unwrap();
        let left = &bytes[(offset as usize).min(bytes.len())..];
        let is_zero = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
        let is_hole = left.chunks(512).next().is_some_and(is_zero);
        let alike = left
            .chunks(512)
            .take_while(|sector| is_zero(sector) == is_hole);
        Ok(AllocationRun {
            bytes: match alike.map(<[u8]>::len).sum::<usize>() as u64 {
                0 => self.missing,
                bytes => bytes,
            },
            is_hole,
        })
    }
}

/// A server of one disk, and a repository.
struct Served {
    images: Images,
    disk: Arc<Disk>,
    server: NbdServer,
}

impl Served {
    fn new(disk: Disk) -> Served {
        let disk = Arc::new(disk);
        let exports = vec![("vm/disk".to_owned(), disk.clone() as Arc<dyn NbdExport>)];
        let address = NbdServerAddress::Loopback(SocketAddr::from(([127, 0, 0, 1], 0)));
        Served {
            images: Images::new(),
            server: NbdServer::start(&address, exports).unwrap(),
            disk,
        }
    }

    fn uri(&self) -> String {
        self.server.uri("vm/disk").to_string()
    }

    fn address(&self) -> SocketAddr {
        match self.server.uri("").transport {
            NbdTransport::Tcp { host, port } => format!("{host}:{port}").parse().unwrap(),
            NbdTransport::Unix(socket) => panic!("{}", socket.display()),
        }
    }

    fn backup_of(&self, image: RawImage) -> (Outcome, Vec<String>) {
        let (monitor, options) = (Recorder::default(), BackupOptions::default());
        let mut sources = [ImageSource::untracked(image)];
        let repository = self.images.scene.repository();
        let outcome = self
            .images
            .backup_into(&repository, &mut sources, &options, &monitor);
        let problems = monitor.problems.lock().unwrap();
        let problems = problems.iter().map(|problem| problem.text.clone());
        (outcome.unwrap(), problems.collect())
    }

    fn backup(&self) -> (Outcome, Vec<String>) {
        self.backup_of(open(&self.uri(), true).unwrap())
    }

    /// Backs up without a problem, and restores what is served now.
    fn assert_backed_up(&self) -> Outcome {
        let (outcome, problems) = self.backup();
        assert!(problems.is_empty(), "{problems:?}");
        self.assert_restores(&outcome);
        outcome
    }

    fn assert_restores(&self, outcome: &Outcome) {
        let repository = self.images.scene.repository();
        let id = outcome.id.unwrap();
        self.images
            .assert_restores(&repository, id, &self.disk.bytes());
    }

    /// As it comes back, whatever is missing of it.
    fn restored(&self, outcome: &Outcome) -> Vec<u8> {
        let repository = self.images.scene.repository();
        let snapshot = Images::named(&repository, outcome.id.unwrap());
        let target = self.images.path("incomplete.raw");
        let monitor = Recorder::default();
        let report = self
            .images
            .restore_to(&repository, &snapshot, &target, &monitor);
        report.unwrap();
        std::fs::read(&target).unwrap()
    }

    fn row(&self, outcome: &Outcome) -> Entry {
        let repository = self.images.scene.repository();
        let (_, snapshot) = Images::named(&repository, outcome.id.unwrap());
        let catalog = CatalogReader::open(repository.segment_source(), snapshot.layers);
        catalog.unwrap().lookup(ROW).unwrap().unwrap()
    }
}

fn open(uri: &str, is_point_in_time: bool) -> io::Result<RawImage> {
    let options = RawImageOptions {
        is_point_in_time,
        ..RawImageOptions::default()
    };
    RawImage::open_with(Path::new(uri), &options)
}

/// Blocks, and a part of one, of which the first, the fourth and the last hold something.
fn sparse(blocks: u64) -> Vec<u8> {
    let mut bytes = vec![0; (blocks * BLOCK) as usize + 777];
    let last = bytes.len() - 100;
    for (seed, offset, len) in [
        (1, 0, 700_000),
        (2, 3 * BLOCK as usize + 9000, 5),
        (3, last, 100),
    ] {
        bytes[offset..offset + len].copy_from_slice(&noise(seed, len));
    }
    bytes
}

#[test]
fn an_export_comes_back_and_what_its_server_says_to_be_zeros_is_not_read() {
    let served = Served::new(Disk::of(sparse(20)));
    let outcome = served.assert_backed_up();
    let record = &outcome.snapshot.images[0];
    assert_eq!(record.how, ImageState::Export);
    assert_eq!(record.source.0, served.uri().into_bytes());
    assert_eq!(record.path.0, [b"/", ROW].concat());
    let held = (served.disk.bytes())
        .chunks(BLOCK as usize)
        .filter(|block| block.iter().any(|byte| *byte != 0))
        .map(|block| block.len() as u64)
        .sum::<u64>();
    assert_eq!(held, 2 * BLOCK + 777);
    assert_eq!(outcome.snapshot.counts.bytes_read, held);
    // A second one stores what changed, and the row is the same whenever it is read.
    served.disk.write_at(9 * BLOCK, b"here");
    served.disk.write_at(0, &[0; BLOCK as usize]);
    let outcome = served.assert_backed_up();
    let counts = outcome.snapshot.counts;
    assert!(counts.bytes_stored < 64 << 10, "{counts:?}");
    assert_eq!(counts.bytes_read, held);
    let outcome = served.assert_backed_up();
    let counts = outcome.snapshot.counts;
    assert_eq!((counts.files_unmodified, counts.files_changed), (1, 0));
}

#[test]
fn where_a_server_does_not_say_what_is_zeros_all_is_read() {
    let served = Served::new(Disk {
        has_no_map: true,
        ..Disk::of(sparse(6))
    });
    let outcome = served.assert_backed_up();
    let len = served.disk.bytes().len() as u64;
    assert_eq!(outcome.snapshot.counts.bytes_read, len);
    let bytes = open(&served.uri(), false).unwrap().byte_source();
    assert_eq!(bytes.len_bytes(), len);
    let expected = served.disk.bytes();
    for range in [0..1, 511..1_500_000, expected.len() - 3..expected.len()] {
        let mut found = vec![0xee; range.len()];
        bytes.read_exact_at(range.start as u64, &mut found).unwrap();
        assert!(found == expected[range]);
    }
    let behind = bytes.read_exact_at(len - 1, &mut [0; 2]).unwrap_err();
    assert_eq!(behind.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn an_export_is_fuzzy_unless_somebody_says_that_it_stands_still() {
    let served = Served::new(Disk::of(sparse(4)));
    let (outcome, problems) = served.backup_of(open(&served.uri(), false).unwrap());
    assert_eq!(outcome.snapshot.images[0].how, ImageState::Fuzzy);
    assert!(problems[0].contains("--point-in-time"), "{problems:?}");
    assert!(served.row(&outcome).flags.has(EntryFlags::CHANGED));
    let outcome = served.assert_backed_up();
    assert!(!served.row(&outcome).flags.has(EntryFlags::CHANGED));
}

#[test]
fn what_a_server_cannot_give_is_named_with_its_bytes_and_everything_else_is_stored() {
    let served = Served::new(Disk::of(noise(5, 5 * BLOCK as usize)));
    let (first, second) = (BLOCK + 8192, 3 * BLOCK + 100);
    *served.disk.bad.lock().unwrap() = vec![first..first + 5000, second..second + 1];
    let (outcome, problems) = served.backup();
    let named = [(first, first + 8192), (second - 100, second - 100 + 4096)];
    assert_eq!(problems.len(), 2, "{problems:?}");
    for (problem, (from, to)) in problems.iter().zip(named) {
        let text = format!("bytes {from} to {to}: ");
        assert!(problem.starts_with(&text), "{problem}");
        assert!(problem.contains("EIO"), "{problem}");
    }
    assert!(served.row(&outcome).flags.has(EntryFlags::INCOMPLETE));
    let mut expected = served.disk.bytes();
    for (from, to) in named {
        expected[from as usize..to as usize].fill(0);
    }
    assert!(served.restored(&outcome) == expected);
    // Mended.
    served.disk.bad.lock().unwrap().clear();
    let outcome = served.assert_backed_up();
    assert!(!served.row(&outcome).flags.has(EntryFlags::INCOMPLETE));
}

#[test]
fn a_server_that_says_it_has_more_than_it_gives_is_named_with_the_bytes() {
    let served = Served::new(Disk {
        missing: 2 * BLOCK,
        ..Disk::of(noise(6, 2 * BLOCK as usize))
    });
    let (outcome, problems) = served.backup();
    let (from, to) = (2 * BLOCK, 3 * BLOCK);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with(&format!("bytes {from} to {to}: ")));
    assert!(served.row(&outcome).flags.has(EntryFlags::INCOMPLETE));
    assert_eq!(served.row(&outcome).size, 4 * BLOCK);
}

#[test]
fn a_connection_that_ends_at_any_byte_is_named_and_the_next_backup_is_right() {
    let served = Served::new(Disk::of(noise(7, 6 * BLOCK as usize)));
    let (mut refused, mut named) = (0, 0);
    for after in [0, 10, 18, 30, 60, 100, 150, 5000, 400_000, 1 << 20] {
        let fault = LineFault::CutEach(Toward::Client, after);
        let proxy = FaultProxy::of(Spoken::Bytes, served.address(), fault);
        let image = match open(&format!("nbd://{}/vm/disk", proxy.address()), true) {
            Ok(image) => image,
            Err(error) => {
                assert!(
                    error.to_string().starts_with("connect to nbd://"),
                    "{error}"
                );
                refused += 1;
                continue;
            }
        };
        let (outcome, problems) = served.backup_of(image);
        named += 1;
        assert!(problems[0].contains(" and all behind it: "), "{problems:?}");
        assert!(
            problems[0].contains("the connection is lost"),
            "{problems:?}"
        );
        assert!(served.row(&outcome).flags.has(EntryFlags::INCOMPLETE));
        // What is in front of that is as it is served.
        let number = problems[0].strip_prefix("byte ").unwrap();
        let (number, _) = number.split_once(' ').unwrap();
        let restored = served.restored(&outcome);
        let before = number.parse().unwrap();
        assert!(restored[..before] == served.disk.bytes()[..before]);
        served.assert_backed_up();
    }
    assert!(refused >= 3 && named >= 3, "{refused} {named}");
}
