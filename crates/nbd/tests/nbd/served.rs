//! Our server with other people's clients, and with ours.

use crate::peer::{allocation, chain, connect, have_all, nbdinfo_map, pattern, run};
use bale_nbd::wire::HeaderStyle;
use bale_nbd::wire::negotiation::{encode_option, option};
use bale_nbd::wire::request::{NbdRequest, command, encode_request};
use bale_nbd::{
    AllocationRun, NbdClient, NbdClientOptions, NbdExport, NbdServer, NbdServerAddress, NbdUri,
};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use tempfile::TempDir;

const BLOCK: usize = 4096;

/// An image in memory: blocks that are there, and holes.
#[derive(Default)]
struct MemoryExport {
    blocks: Mutex<Vec<Option<Vec<u8>>>>,
    is_writable: bool,
    /// A read of this block fails.
    bad: Option<usize>,
    flushes: Mutex<usize>,
    gate: Gate,
}

/// Reads wait while it is closed.
#[derive(Default)]
struct Gate {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, is_closed: bool) {
        self.state.lock().unwrap().0 = is_closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.0).unwrap());
    }

    fn wait_for_one(&self) {
        let state = self.state.lock().unwrap();
        drop(
            self.changed
                .wait_while(state, |state| state.1 == 0)
                .unwrap(),
        );
    }
}

impl MemoryExport {
    /// Every third block is there.
    fn new(blocks: usize) -> MemoryExport {
        let block = |at: usize| (at.is_multiple_of(3)).then(|| pattern(at as u64 + 1, BLOCK));
        MemoryExport {
            blocks: Mutex::new((0..blocks).map(block).collect()),
            ..MemoryExport::default()
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let blocks = self.blocks.lock().unwrap();
        let zeroes = vec![0; BLOCK];
        blocks
            .iter()
            .flat_map(|block| block.clone().unwrap_or(zeroes.clone()))
            .collect()
    }
}

impl NbdExport for MemoryExport {
    fn len(&self) -> u64 {
        (self.blocks.lock().unwrap().len() * BLOCK) as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.gate.pass();
        let blocks = self.blocks.lock().unwrap();
        for (at, byte) in (offset as usize..).zip(buffer) {
            if self.bad == Some(at / BLOCK) {
                return Err(io::Error::other(format!("block {} is bad", at / BLOCK)));
            }
            *byte = blocks[at / BLOCK]
                .as_ref()
                .map_or(0, |block| block[at % BLOCK]);
        }
        Ok(())
    }

    fn run_at(&self, offset: u64) -> io::Result<AllocationRun> {
        let blocks = self.blocks.lock().unwrap();
        let first = offset as usize / BLOCK;
        let is_hole = blocks[first].is_none();
        let alike = blocks[first..]
            .iter()
            .take_while(|block| block.is_none() == is_hole);
        let end = ((first + alike.count()) * BLOCK) as u64;
        Ok(AllocationRun {
            bytes: end - offset,
            is_hole,
        })
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut blocks = self.blocks.lock().unwrap();
        for (at, byte) in (offset as usize..).zip(data) {
            blocks[at / BLOCK].get_or_insert_with(|| vec![0; BLOCK])[at % BLOCK] = *byte;
        }
        Ok(())
    }

    fn zero(&self, offset: u64, bytes: u64, _is_allocated: bool) -> io::Result<()> {
        self.write_at(offset, &vec![0; bytes as usize])
    }

    fn flush(&self) -> io::Result<()> {
        *self.flushes.lock().unwrap() += 1;
        Ok(())
    }
}

struct Served {
    dir: TempDir,
    server: NbdServer,
    export: Arc<MemoryExport>,
}

fn serve(export: MemoryExport) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let export = Arc::new(export);
    let address = NbdServerAddress::Unix(dir.path().join("socket"));
    let exports: Vec<(String, Arc<dyn NbdExport>)> = vec![("disk".to_owned(), export.clone())];
    let server = NbdServer::start(&address, exports).unwrap();
    Served {
        dir,
        server,
        export,
    }
}

impl Served {
    fn uri(&self) -> NbdUri {
        self.server.uri("disk")
    }

    fn socket(&self) -> UnixStream {
        UnixStream::connect(self.dir.path().join("socket")).unwrap()
    }

    /// Nobody is connected any more.
    fn wait_for_nobody(&self) {
        while self.server.clients() > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn an_export_is_what_nbdinfo_says_it_is() {
    if !have_all(&["nbdinfo"]) {
        return;
    }
    for is_writable in [false, true] {
        let served = serve(MemoryExport {
            is_writable,
            ..MemoryExport::new(100)
        });
        let output = run("nbdinfo", &["--json", "--list", &served.uri().to_string()]);
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&said["protocol"], &said["structured"]),
            (&"newstyle-fixed".into(), &true.into())
        );
        let export = &said["exports"][0];
        assert_eq!(export["export-name"], "disk");
        assert_eq!(export["contexts"], serde_json::json!(["base:allocation"]));
        assert_eq!(export["export-size"], 100 * BLOCK);
        assert_eq!(export["is_read_only"], !is_writable);
        assert_eq!(export["can_trim"], is_writable);
        assert_eq!(export["can_multi_conn"], true);
        assert_eq!(export["block_size_maximum"], 32 << 20);
        let map = nbdinfo_map(&served.uri(), "base:allocation");
        assert_eq!(map.len(), 67);
        assert_eq!(map[..2], [(0, 4096, 0), (4096, 8192, 3)]);
        assert_eq!(allocation(&connect(&served.uri())), map);
    }
}

#[test]
fn nbdcopy_and_qemu_img_copy_and_compare_an_export() {
    if !have_all(&["nbdcopy", "qemu-img"]) {
        return;
    }
    let served = serve(MemoryExport::new(3000));
    let uri = served.uri().to_string();
    let dir = tempfile::tempdir().unwrap();
    let [first, second, third] = ["a", "b", "c"].map(|name| dir.path().join(name));
    run("nbdcopy", &[&uri, first.to_str().unwrap()]);
    assert!(std::fs::read(&first).unwrap() == served.export.bytes());
    run(
        "nbdcopy",
        &[
            "--no-extents",
            "--connections=1",
            &uri,
            second.to_str().unwrap(),
        ],
    );
    assert!(std::fs::read(&second).unwrap() == served.export.bytes());
    run(
        "qemu-img",
        &[
            "convert",
            "-f",
            "raw",
            "-O",
            "qcow2",
            &uri,
            third.to_str().unwrap(),
        ],
    );
    run(
        "qemu-img",
        &[
            "compare",
            "-f",
            "raw",
            "-F",
            "qcow2",
            &uri,
            third.to_str().unwrap(),
        ],
    );
    let output = run("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
    let map: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(map.as_array().unwrap().len(), 2000);
}

#[test]
fn nbdcopy_and_qemu_img_write_into_a_writable_export() {
    if !have_all(&["nbdcopy", "qemu-img"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let places: Vec<_> = (0..50)
        .map(|place| (place * 5 * BLOCK as u64, BLOCK))
        .collect();
    let path = crate::peer::sparse_file(&dir.path().join("disk"), (300 * BLOCK) as u64, &places);
    let expected = std::fs::read(&path).unwrap();
    let name = path.to_str().unwrap();
    for tool in ["nbdcopy", "qemu-img"] {
        let served = serve(MemoryExport {
            is_writable: true,
            ..MemoryExport::new(300)
        });
        let uri = served.uri().to_string();
        match tool {
            "nbdcopy" => run(tool, &["--flush", name, &uri]),
            _ => run(
                tool,
                &["convert", "-n", "-f", "raw", "-O", "raw", name, &uri],
            ),
        };
        assert!(served.export.bytes() == expected, "{tool}");
        assert!(*served.export.flushes.lock().unwrap() > 0, "{tool}");
        run(
            "qemu-img",
            &["compare", "-f", "raw", "-F", "raw", &uri, name],
        );
    }
    let served = serve(MemoryExport::new(300));
    let before = served.export.bytes();
    let copied = std::process::Command::new("nbdcopy")
        .args([name, &served.uri().to_string()])
        .output();
    assert!(!copied.unwrap().status.success());
    assert!(served.export.bytes() == before);
}

#[test]
fn our_client_reads_and_writes_our_export_with_the_longest_headers() {
    let served = serve(MemoryExport {
        is_writable: true,
        ..MemoryExport::new(1000)
    });
    let options = NbdClientOptions {
        connections: 3,
        ..NbdClientOptions::default()
    };
    let client = NbdClient::connect(&served.uri(), &options).unwrap();
    let mut found = vec![0xee; 1000 * BLOCK];
    client.read_at(0, &mut found).unwrap();
    assert!(found == served.export.bytes());
    assert_eq!(allocation(&client).len(), 667);
    client.write_at(5, &pattern(77, 3 << 20)).unwrap();
    client.write_zeroes(10_000, 9_000).unwrap();
    client.flush().unwrap();
    client.read_at(0, &mut found).unwrap();
    assert!(found == served.export.bytes());
    assert!(found[5..10_000] == pattern(77, 3 << 20)[..9_995]);
    assert_eq!(found[10_000..19_000], [0; 9_000]);
    assert_eq!(*served.export.flushes.lock().unwrap(), 1);
}

/// Sixteen tebibytes, of which every second mebibyte is allocated.
struct Striped;

impl NbdExport for Striped {
    fn len(&self) -> u64 {
        16 << 40
    }

    fn read_at(&self, _offset: u64, _buffer: &mut [u8]) -> io::Result<()> {
        Err(io::Error::other("nothing is read"))
    }

    fn run_at(&self, offset: u64) -> io::Result<AllocationRun> {
        Ok(AllocationRun {
            bytes: (1 << 20) - offset % (1 << 20),
            is_hole: (offset >> 20).is_multiple_of(2),
        })
    }
}

#[test]
fn extents_of_sixteen_tebibytes_are_a_stream() {
    let dir = tempfile::tempdir().unwrap();
    let address = NbdServerAddress::Unix(dir.path().join("socket"));
    let export: Arc<dyn NbdExport> = Arc::new(Striped);
    let server = NbdServer::start(&address, vec![(String::new(), export)]).unwrap();
    let client = connect(&server.uri(""));
    let mut next = 0;
    for extent in client.extents(0..16 << 40) {
        let extent = extent.unwrap();
        assert_eq!((extent.offset, extent.bytes), (next, 1 << 20));
        assert_eq!(extent.is_hole, (next >> 20).is_multiple_of(2));
        next += extent.bytes;
    }
    assert_eq!(next, 16 << 40);
}

#[test]
fn a_bad_block_fails_the_reads_that_need_it_with_its_reason() {
    let served = serve(MemoryExport {
        bad: Some(6),
        ..MemoryExport::new(30)
    });
    let client = connect(&served.uri());
    let mut found = vec![0; 30 * BLOCK];
    let text = client.read_at(0, &mut found).unwrap_err().to_string();
    assert!(
        text.ends_with("the device failed (EIO): block 6 is bad"),
        "{text}"
    );
    client
        .read_at(7 * BLOCK as u64, &mut found[..BLOCK])
        .unwrap();
}

#[test]
fn a_name_that_is_not_there_is_refused_and_the_default_is_the_first() {
    let served = serve(MemoryExport::new(2));
    let options = NbdClientOptions::default();
    assert_eq!(NbdClient::list(&served.uri(), &options).unwrap(), ["disk"]);
    assert_eq!(connect(&served.server.uri("")).len(), 2 * BLOCK as u64);
    let text = chain(
        &NbdClient::connect(&served.server.uri("x"), &options)
            .err()
            .unwrap(),
    );
    assert!(text.contains("as it does not exist"), "{text}");
    let dirty = NbdClientOptions {
        dirty_bitmap: Some("b0".to_owned()),
        ..options
    };
    let text = chain(&NbdClient::connect(&served.uri(), &dirty).err().unwrap());
    assert!(text.contains("no context qemu:dirty-bitmap:b0"), "{text}");
}

#[test]
fn only_its_user_can_connect_and_nobody_from_elsewhere() {
    use std::os::unix::fs::PermissionsExt;
    let served = serve(MemoryExport::new(2));
    let path = served.dir.path().join("socket");
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let start = |address| {
        NbdServer::start(&address, Vec::new())
            .err()
            .unwrap()
            .to_string()
    };
    let text = start(NbdServerAddress::Unix(path.clone()));
    assert!(text.starts_with("somebody listens on the socket"), "{text}");
    let text = start(NbdServerAddress::Loopback("0.0.0.0:0".parse().unwrap()));
    assert!(
        text.contains("not an address of this machine alone"),
        "{text}"
    );
    let file = served.dir.path().join("file");
    std::fs::write(&file, b"precious").unwrap();
    let text = start(NbdServerAddress::Unix(file.clone()));
    assert!(text.ends_with("exists and is no socket"), "{text}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    let export: Arc<dyn NbdExport> = served.export.clone();
    let address = NbdServerAddress::Loopback("127.0.0.1:0".parse().unwrap());
    let tcp = NbdServer::start(&address, vec![("disk".to_owned(), export)]).unwrap();
    assert_eq!(connect(&tcp.uri("disk")).len(), 2 * BLOCK as u64);
}

#[test]
fn a_socket_that_a_killed_server_left_is_taken_over_and_removed_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let address = NbdServerAddress::Unix(path.clone());
    let export: Arc<dyn NbdExport> = Arc::new(MemoryExport::new(1));
    let server = NbdServer::start(&address, vec![(String::new(), export)]).unwrap();
    assert_eq!(connect(&server.uri("")).len(), BLOCK as u64);
    server.stop();
    assert!(!path.exists());
}

#[test]
fn a_server_that_is_stopped_answers_what_was_requested_and_nothing_more() {
    let served = serve(MemoryExport::new(30));
    let (client, idle) = (connect(&served.uri()), connect(&served.uri()));
    served.export.gate.set(true);
    let reading = client.start_read(0, vec![0; BLOCK]).unwrap();
    served.export.gate.wait_for_one();
    let Served {
        server,
        export,
        dir,
    } = served;
    let stopping = std::thread::spawn(move || server.stop());
    // Whoever requests nothing is sent away, and nobody comes in.
    while idle.flush().is_ok() {}
    assert!(!dir.path().join("socket").exists());
    export.gate.set(false);
    assert_eq!(reading.wait().unwrap(), pattern(1, BLOCK));
    stopping.join().unwrap();
    let text = client.read_at(0, &mut [0; 512]).unwrap_err().to_string();
    assert!(text.ends_with("the connection is lost"), "{text}");
}

#[test]
fn clients_are_bounded_and_one_that_goes_makes_room() {
    let served = serve(MemoryExport::new(2));
    let clients: Vec<_> = (0..16).map(|_| connect(&served.uri())).collect();
    let options = NbdClientOptions::default();
    assert!(NbdClient::connect(&served.uri(), &options).is_err());
    drop(clients);
    served.wait_for_nobody();
    connect(&served.uri());
}

/// What a client sends: everything that there is, in the style that it chooses.
fn conversation(style: HeaderStyle) -> Vec<u8> {
    let export = b"\0\0\0\x04disk";
    let contexts = [&export[..], b"\0\0\0\x01\0\0\0\x0fbase:allocation"].concat();
    let mut bytes = vec![0, 0, 0, 3];
    for (option, payload) in [
        (option::LIST, vec![]),
        (77, b"what?".to_vec()),
        (option::INFO, [&export[..], &[0, 0]].concat()),
        (option::STRUCTURED_REPLY, vec![]),
        (option::EXTENDED_HEADERS, vec![]),
        (option::LIST_META_CONTEXT, contexts.clone()),
        (option::SET_META_CONTEXT, contexts),
        (option::GO, [&export[..], &[0, 1, 0, 3]].concat()),
    ] {
        let is_left_out = match option {
            option::EXTENDED_HEADERS => style != HeaderStyle::Extended,
            option::STRUCTURED_REPLY => style == HeaderStyle::Simple,
            _ => false,
        };
        if !is_left_out {
            bytes.extend_from_slice(&encode_option(option, &payload));
        }
    }
    let requests = [
        (command::READ, 0, 10_000),
        (command::READ, u64::MAX, 10),
        (command::READ, 0, u32::MAX.into()),
        (command::WRITE, 4096, 8),
        (command::WRITE, 30 * BLOCK as u64 - 1, 8),
        (command::WRITE_ZEROES, 0, 4096),
        (command::TRIM, 0, 4096),
        (command::FLUSH, 0, 0),
        (command::BLOCK_STATUS, 0, 30 * BLOCK as u64),
        (command::BLOCK_STATUS, 0, 0),
        (99, 0, 0),
        (command::DISCONNECT, 0, 0),
    ];
    for (cookie, (command, offset, len)) in (1..).zip(requests) {
        let request = NbdRequest {
            flags: 0,
            command,
            cookie,
            offset,
            bytes: len,
        };
        bytes.extend_from_slice(&encode_request(&request, style));
        if command == command::WRITE {
            bytes.extend_from_slice(&vec![7; len as usize]);
        }
    }
    bytes
}

/// Sends it, and reads whatever comes until the server ends it.
fn send(served: &Served, bytes: &[u8]) -> usize {
    let mut socket = served.socket();
    let mut reader = socket.try_clone().unwrap();
    let reading = std::thread::spawn(move || {
        let mut answer = Vec::new();
        // The server may reset what it has had enough of.
        let _ = reader.read_to_end(&mut answer);
        answer.len()
    });
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(std::net::Shutdown::Write);
    reading.join().unwrap()
}

const STYLES: [HeaderStyle; 3] = [
    HeaderStyle::Simple,
    HeaderStyle::Structured,
    HeaderStyle::Extended,
];

#[test]
fn what_is_read_only_stays_as_it_is_whatever_a_client_sends() {
    let served = serve(MemoryExport::new(30));
    let before = served.export.bytes();
    for style in STYLES {
        send(&served, &conversation(style));
        assert!(served.export.bytes() == before, "{style:?}");
    }
}

#[test]
fn a_client_that_goes_at_any_byte_leaves_the_server_to_others() {
    let served = serve(MemoryExport {
        is_writable: true,
        ..MemoryExport::new(30)
    });
    for style in STYLES {
        let bytes = conversation(style);
        assert!(send(&served, &bytes) > BLOCK, "{style:?}");
        for len in 0..bytes.len() {
            send(&served, &bytes[..len]);
        }
    }
    served.wait_for_nobody();
    assert_eq!(connect(&served.uri()).len(), 30 * BLOCK as u64);
}

#[test]
fn a_client_that_sends_another_byte_anywhere_leaves_the_server_to_others() {
    let served = serve(MemoryExport {
        is_writable: true,
        ..MemoryExport::new(30)
    });
    for style in STYLES {
        let bytes = conversation(style);
        for place in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[place] ^= 0xff;
            send(&served, &bytes);
        }
    }
    served.wait_for_nobody();
    let client = connect(&served.uri());
    let mut found = vec![0; 30 * BLOCK];
    client.read_at(0, &mut found).unwrap();
    assert!(found == served.export.bytes());
}
