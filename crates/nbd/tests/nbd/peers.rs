//! The client against the servers that people have: qemu-nbd and nbdkit with its filters.

use crate::peer::{
    Peer, allocation, chain, connect, extents, have_all, nbdinfo_map, pattern, sparse_file,
};
use bale_nbd::{NbdClient, NbdClientOptions, NbdUri};
use bale_testkit::TestCertificate;
use std::time::Duration;

const MIB: u64 = 1 << 20;

#[test]
fn an_image_is_read_whole_over_one_connection_and_over_several() {
    if !have_all(&["qemu-nbd", "nbdkit"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let len = 24 * MIB;
    let data = [(0, 70_000), (5 * MIB, 3 << 20), (20 * MIB + 4096, 1 << 20)];
    let path = sparse_file(&dir.path().join("disk"), len, &data);
    let expected = std::fs::read(&path).unwrap();
    let name = path.to_str().unwrap();
    let servers = [
        Peer::qemu_nbd(&path, "raw"),
        Peer::nbdkit(&["file", name]),
        Peer::nbdkit(&["--filter=noextents", "file", name]),
        // Without structured replies.
        Peer::nbdkit(&["--no-sr", "file", name]),
    ];
    for (number, server) in servers.iter().enumerate() {
        for connections in [1, 4] {
            let options = NbdClientOptions {
                connections,
                ..NbdClientOptions::default()
            };
            let client = NbdClient::connect(&server.uri(""), &options).unwrap();
            assert_eq!(client.len(), len);
            let mut found = vec![0xee; len as usize];
            client.read_at(0, &mut found).unwrap();
            assert!(
                found == expected,
                "server {number}, {connections} connections"
            );
            assert!(client.connections() <= connections);
        }
        let one_of_several = connect(&server.uri(""));
        for (offset, len) in [(1, 1), (4095, 2), (5 * MIB - 3, 100_001), (len - 1, 1)] {
            let mut found = vec![0; len];
            one_of_several.read_at(offset, &mut found).unwrap();
            let offset = offset as usize;
            assert!(found == expected[offset..offset + len]);
        }
        let error = one_of_several.read_at(len - 1, &mut [0; 2]).unwrap_err();
        assert!(error.to_string().ends_with("beyond its end"), "{error}");
    }
}

#[test]
fn a_server_that_allows_it_gets_several_connections() {
    if !have_all(&["nbdkit"]) {
        return;
    }
    let server = Peer::nbdkit(&["memory", "1M"]);
    let options = NbdClientOptions {
        connections: 4,
        ..NbdClientOptions::default()
    };
    let client = NbdClient::connect(&server.uri(""), &options).unwrap();
    assert_eq!(client.connections(), 4);
    let server = Peer::nbdkit(&[
        "--filter=multi-conn",
        "memory",
        "1M",
        "multi-conn-mode=disable",
    ]);
    let client = NbdClient::connect(&server.uri(""), &options).unwrap();
    assert_eq!(client.connections(), 1);
}

#[test]
fn extents_are_those_that_nbdinfo_lists() {
    if !have_all(&["qemu-nbd", "qemu-img", "nbdkit", "nbdinfo"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let places: Vec<_> = (0..200)
        .map(|place| (place * 317_440 / 4096 * 4096, 4096))
        .collect();
    let raw = sparse_file(&dir.path().join("raw"), 64 * MIB, &places);
    let qcow2 = dir.path().join("qcow2");
    let (from, to) = (raw.to_str().unwrap(), qcow2.to_str().unwrap());
    crate::peer::run(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", from, to],
    );
    let servers = [
        Peer::qemu_nbd(&raw, "raw"),
        Peer::qemu_nbd(&qcow2, "qcow2"),
        Peer::nbdkit(&["file", from]),
        Peer::nbdkit(&["--filter=noextents", "file", from]),
    ];
    for (number, server) in servers.iter().enumerate() {
        let uri = server.uri("");
        let client = connect(&uri);
        assert!(client.has_allocation());
        let found = allocation(&client);
        assert_eq!(
            found,
            nbdinfo_map(&uri, "base:allocation"),
            "server {number}"
        );
        assert!(
            number == 3 || found.len() > 100,
            "server {number}: {}",
            found.len()
        );
        let part: Vec<_> = client.extents(1000..MIB).map(Result::unwrap).collect();
        assert_eq!(part.first().unwrap().offset, 1000);
        assert_eq!(
            part.iter().map(|extent| extent.bytes).sum::<u64>(),
            MIB - 1000
        );
    }
    let silent = Peer::nbdkit(&["--no-sr", "file", from]);
    let client = connect(&silent.uri(""));
    assert_eq!(allocation(&client), [(0, 64 * MIB, 0)]);
}

#[test]
fn extents_are_requested_until_the_end_of_an_export_longer_than_a_request() {
    if !have_all(&["nbdkit"]) {
        return;
    }
    let server = Peer::nbdkit(&["memory", "100G"]);
    let client = connect(&server.uri(""));
    client.write_at(9 << 30, b"here").unwrap();
    let found = extents(&client);
    let data: Vec<_> = found.iter().filter(|extent| !extent.is_hole).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(data[0].offset, 9 << 30);
    assert_eq!(
        found.iter().map(|extent| extent.bytes).sum::<u64>(),
        100 << 30
    );
}

#[test]
fn the_blocks_that_a_server_wants_are_what_it_gets() {
    if !have_all(&["nbdkit"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = sparse_file(&dir.path().join("disk"), MIB, &[(0, 1 << 20)]);
    let expected = std::fs::read(&path).unwrap();
    let server = Peer::nbdkit(&[
        "--filter=blocksize-policy",
        "file",
        path.to_str().unwrap(),
        "blocksize-minimum=4096",
        "blocksize-preferred=8192",
        "blocksize-maximum=65536",
        "blocksize-error-policy=error",
    ]);
    let client = connect(&server.uri(""));
    assert_eq!(client.block_sizes().minimum, 4096);
    assert_eq!(client.request_bytes_max(), 65536);
    for (offset, len) in [(0, 1 << 20), (1, 5), (4095, 70_000), ((1 << 20) - 1, 1)] {
        let mut found = vec![0; len];
        client.read_at(offset, &mut found).unwrap();
        let offset = offset as usize;
        assert!(found == expected[offset..offset + len]);
    }
    let found: Vec<_> = client.extents(5..9).map(Result::unwrap).collect();
    assert_eq!((found[0].offset, found[0].bytes), (5, 4));
    let error = client.write_at(1, &[0; 4096]).unwrap_err();
    assert!(error.to_string().ends_with("whole blocks only"), "{error}");
    client.write_at(4096, &pattern(9, 200 * 1024)).unwrap();
    let mut found = vec![0; 200 * 1024];
    client.read_at(4096, &mut found).unwrap();
    assert!(found == pattern(9, 200 * 1024));
}

#[test]
fn what_is_written_zeroed_and_trimmed_is_there_and_stays() {
    if !have_all(&["nbdkit", "qemu-nbd"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = sparse_file(&dir.path().join("disk"), 8 * MIB, &[(0, 8 << 20)]);
    for server in [
        Peer::qemu_nbd(&path, "raw"),
        Peer::nbdkit(&["file", path.to_str().unwrap()]),
    ] {
        let mut expected = std::fs::read(&path).unwrap();
        let client = connect(&server.uri(""));
        let data = pattern(5, 3 << 20);
        client.write_at(MIB, &data).unwrap();
        expected[1 << 20..4 << 20].copy_from_slice(&data);
        client.write_zeroes(2 * MIB, MIB / 2).unwrap();
        expected[2 << 20..(2 << 20) + (1 << 19)].fill(0);
        client.trim(7 * MIB, MIB).unwrap();
        client.flush().unwrap();
        let found = std::fs::read(&path).unwrap();
        assert!(found[..7 << 20] == expected[..7 << 20]);
        let error = client.write_at(8 * MIB - 1, &[0; 2]).unwrap_err();
        assert!(error.to_string().ends_with("beyond its end"), "{error}");
    }
    let server = Peer::nbdkit(&["--readonly", "memory", "1M"]);
    let client = connect(&server.uri(""));
    let error = client.write_at(0, &[0; 512]).unwrap_err();
    assert!(client.is_read_only() && error.to_string().ends_with("it is read-only"));
}

#[test]
fn an_error_of_the_device_ends_its_request_and_no_other() {
    if !have_all(&["nbdkit"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trigger = dir.path().join("fail");
    let file = format!("error-file={}", trigger.display());
    let server = Peer::nbdkit(&[
        "--filter=error",
        "memory",
        "1M",
        "error=EIO",
        "error-rate=100%",
        &file,
    ]);
    let client = connect(&server.uri(""));
    let mut buffer = [1; 4096];
    client.read_at(0, &mut buffer).unwrap();
    std::fs::write(&trigger, b"").unwrap();
    let error = client.read_at(8192, &mut buffer).unwrap_err();
    let words = "read 4096 bytes at 8192: the server says that the device failed (EIO)";
    assert!(error.to_string().contains(words), "{error}");
    let error = client.extents(0..MIB).next().unwrap().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("list extents of 1048576 bytes at 0"),
        "{error}"
    );
    std::fs::remove_file(&trigger).unwrap();
    client.read_at(8192, &mut buffer).unwrap();
    assert_eq!(buffer, [0; 4096]);
}

#[test]
fn a_server_that_is_slow_is_waited_for_and_one_that_is_silent_is_not() {
    if !have_all(&["nbdkit"]) {
        return;
    }
    let server = Peer::nbdkit(&["--filter=delay", "memory", "1M", "delay-read=100ms"]);
    let client = connect(&server.uri(""));
    let mut buffer = vec![1; 1 << 20];
    client.read_at(0, &mut buffer).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 0));
    let server = Peer::nbdkit(&["--filter=delay", "memory", "1M", "delay-read=100000"]);
    let options = NbdClientOptions {
        idle_max: Duration::from_secs(1),
        ..NbdClientOptions::default()
    };
    let client = NbdClient::connect(&server.uri(""), &options).unwrap();
    let error = client.read_at(0, &mut buffer).unwrap_err();
    assert!(
        chain(&error).ends_with("silent for 1 s (time-out)"),
        "{}",
        chain(&error)
    );
    let error = client.read_at(0, &mut buffer).unwrap_err();
    assert!(
        error.to_string().ends_with("the connection is lost"),
        "{error}"
    );
}

#[test]
fn a_server_that_is_killed_fails_what_is_under_way() {
    if !have_all(&["nbdkit"]) {
        return;
    }
    let server = Peer::nbdkit(&["--filter=delay", "memory", "1M", "delay-read=100000"]);
    let client = connect(&server.uri(""));
    let readings: Vec<_> = (0..4)
        .map(|place| client.start_read(place * 512, vec![0; 512]))
        .collect();
    drop(server);
    for reading in readings {
        let error = reading.and_then(|reading| reading.wait()).unwrap_err();
        assert!(
            error.to_string().ends_with("the connection is lost"),
            "{error}"
        );
    }
}

#[test]
fn exports_are_listed_and_one_that_is_not_there_is_refused_by_name() {
    if !have_all(&["nbdkit", "qemu-nbd"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = sparse_file(&dir.path().join("disk"), MIB, &[(0, 1)]);
    let named = ["--persistent", "--format=raw", "--export-name=a/b c"];
    let server = Peer::start(
        "qemu-nbd",
        &[&named[..], &[path.to_str().unwrap()]].concat(),
    );
    let options = NbdClientOptions::default();
    assert_eq!(
        NbdClient::list(&server.uri(""), &options).unwrap(),
        ["a/b c"]
    );
    assert_eq!(connect(&server.uri("a/b%20c")).len(), MIB);
    let error = NbdClient::connect(&server.uri("other"), &options)
        .err()
        .unwrap();
    let words = "the server refuses the export other, as it does not exist";
    assert!(chain(&error).contains(words), "{}", chain(&error));
    let nowhere = NbdUri::parse("nbd+unix:///?socket=/nowhere/at/all").unwrap();
    let error = NbdClient::connect(&nowhere, &options).err().unwrap();
    assert!(
        chain(&error).starts_with("connect to nbd+unix:"),
        "{}",
        chain(&error)
    );
}

#[test]
fn an_encrypted_export_is_read_if_its_certificate_is_trusted() {
    if !have_all(&["nbdkit", "openssl"]) {
        return;
    }
    let certificate = TestCertificate::of_localhost();
    let certificates = tempfile::tempdir().unwrap();
    for (from, to) in [
        (certificate.file(), "ca-cert.pem"),
        (certificate.file(), "server-cert.pem"),
        (certificate.key_file(), "server-key.pem"),
    ] {
        std::fs::copy(from, certificates.path().join(to)).unwrap();
    }
    let tls = format!("--tls-certificates={}", certificates.path().display());
    let server = Peer::nbdkit(&["--tls=require", &tls, "pattern", "40M"]);
    let socket = server.dir.path().join("socket");
    let uri = |scheme: &str, more: &str| {
        NbdUri::parse(&format!(
            "{scheme}+unix:///?socket={}{more}",
            socket.display()
        ))
        .unwrap()
    };
    let trusting = format!("&tls-certificates={}", certificates.path().display());
    let client = connect(&uri("nbds", &trusting));
    let mut found = vec![0; 40 << 20];
    client.read_at(0, &mut found).unwrap();
    let numbers = found.chunks_exact(8).zip((0u64..).step_by(8));
    assert!(
        numbers
            .into_iter()
            .all(|(found, number)| found == number.to_be_bytes())
    );
    assert!(client.has_allocation());
    let refused = |uri: NbdUri| {
        let refused = NbdClient::connect(&uri, &NbdClientOptions::default());
        chain(&refused.err().unwrap())
    };
    let text = refused(uri("nbd", ""));
    assert!(text.ends_with("write nbds:// or nbds+unix://"), "{text}");
    let other = TestCertificate::of_localhost();
    let others = tempfile::tempdir().unwrap();
    std::fs::copy(other.file(), others.path().join("ca-cert.pem")).unwrap();
    let text = refused(uri(
        "nbds",
        &format!("&tls-certificates={}", others.path().display()),
    ));
    assert!(text.contains("no encrypted connection"), "{text}");
    let plain = Peer::nbdkit(&["--tls=off", "pattern", "1M"]);
    let at = format!(
        "nbds+unix:///?socket={}/socket{trusting}",
        plain.dir.path().display()
    );
    let text = refused(NbdUri::parse(&at).unwrap());
    assert!(text.ends_with("the server has no encryption"), "{text}");
}
