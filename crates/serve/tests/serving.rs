//! `bale serve` as clients meet it: the store of `bale-remote` in front of it passes what every
//! store must pass, and clients that lie, stop or come too many get nothing that is not theirs.

#[path = "serving/client.rs"]
mod client;
#[path = "serving/faults.rs"]
mod faults;
#[path = "serving/refusals.rs"]
mod refusals;

use bale_format::ObjectId;
use bale_remote::{HttpOptions, HttpUrl, RestStore};
use bale_repository::store::{Area, LocalStore, ObjectName, Store, conformance};
use bale_serve::{
    CONNECTIONS_MAX, ServeAccess, ServeError, ServeListen, ServeOptions, Server, Users, users_line,
};
use client::{Running, answer_to, hashed, options, raw, status_of};
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

const LEN_MAX: u64 = 64 << 20;

#[test]
fn a_store_behind_it_does_what_every_store_does() {
    let running = Running::with(|options| options.checks_hashes = false);
    let number = AtomicUsize::new(0);
    conformance::run_slow(|| {
        let name = format!("r{}", number.fetch_add(1, Ordering::Relaxed));
        Box::new(running.create(&name))
    });
    let store = running.create("foreign");
    conformance::foreign_names_are_skipped(&store, &mut |path, bytes| {
        let path = running.dir().join("foreign").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    });
}

#[test]
fn what_it_keeps_is_a_repository_of_a_local_directory() {
    let running = Running::new();
    let store = running.create("team/web1");
    let (name, bytes) = hashed(Area::Packs, 3 << 20);
    let mut writer = store.begin().unwrap();
    writer.append(&bytes).unwrap();
    writer.publish(&name).unwrap();
    let local = LocalStore::open(&running.dir().join("team/web1")).unwrap();
    assert!(local.get(&name, LEN_MAX).unwrap() == bytes);
    assert!(running.dir().join("team/web1/BALE-REPOSITORY.TAG").exists());
    let (small, bytes) = hashed(Area::Index, 100);
    local.put(&small, &bytes).unwrap();
    assert_eq!(store.get(&small, LEN_MAX).unwrap(), bytes);
}

#[test]
fn what_took_the_place_of_an_object_on_the_disk_is_what_is_sent() {
    let running = Running::new();
    let store = running.create("a");
    let (name, bytes) = hashed(Area::Packs, 3 << 20);
    store.put(&name, &bytes).unwrap();
    assert!(store.get(&name, LEN_MAX).unwrap() == bytes);
    let mut part = [0; 10];
    store.read_at(&name, 1 << 20, &mut part).unwrap();
    // As a program does that copies files.
    let path = running.dir().join("a").join(name.path());
    let (beside, other) = (running.dir().join("beside"), vec![7; 3 << 20]);
    std::fs::write(&beside, &other).unwrap();
    std::fs::rename(&beside, &path).unwrap();
    assert!(store.get(&name, LEN_MAX).unwrap() == other);
    store.read_at(&name, 1 << 20, &mut part).unwrap();
    assert_eq!(part, [7; 10]);
    std::fs::remove_file(&path).unwrap();
    let gone = store.read_at(&name, 1 << 20, &mut part).unwrap_err();
    assert!(gone.is_not_found(), "{gone}");
}

#[test]
fn a_repository_is_made_once() {
    let running = Running::new();
    let store = running.create("a");
    store.put(&ObjectName::config(), b"first").unwrap();
    let again = RestStore::create(running.url("a"), &options());
    assert_eq!(again.err().unwrap().kind(), ErrorKind::AlreadyExists);
    store.put(&ObjectName::config(), b"second").unwrap();
    assert_eq!(store.get(&ObjectName::config(), LEN_MAX).unwrap(), b"first");
    let missing = running.open("nowhere");
    assert!(
        missing
            .get(&ObjectName::config(), LEN_MAX)
            .unwrap_err()
            .is_not_found()
    );
    assert!(missing.list(Area::Packs, &mut |_| {}).is_err());
    assert!(missing.put(&ObjectName::config(), b"x").is_err());
    assert!(!running.dir().join("nowhere").exists());
}

#[test]
fn a_body_with_another_hash_than_its_name_is_refused() {
    let running = Running::new();
    let store = running.create("a");
    for area in [
        Area::Keys,
        Area::Packs,
        Area::Index,
        Area::Snapshots,
        Area::Condemned,
        Area::Damaged,
    ] {
        for len in [10, 1 << 20] {
            let (name, mut bytes) = hashed(area, len);
            bytes[len / 2] ^= 1;
            let error = store.put(&name, &bytes).unwrap_err();
            assert!(error.to_string().contains("hash"), "{error}");
            assert_eq!(store.stat(&name).unwrap(), None);
            bytes[len / 2] ^= 1;
            store.put(&name, &bytes).unwrap();
        }
    }
    assert!(
        running
            .metrics()
            .contains("bale_serve_refused_hashes_total 12\n")
    );
    assert_eq!(running.temporary_files("a"), 0);
}

#[test]
fn a_body_cut_short_leaves_nothing() {
    let running = Running::new();
    let store = running.create("a");
    for (name, bytes) in [hashed(Area::Packs, 3 << 20), hashed(Area::Index, 1_000)] {
        for sent in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            let head = format!(
                "POST /a/{name} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
                bytes.len()
            );
            let mut connection = running.connect();
            connection.write_all(head.as_bytes()).unwrap();
            connection.write_all(&bytes[..sent]).unwrap();
            connection.shutdown(std::net::Shutdown::Write).unwrap();
            // Whatever it says, it says it when it is through with this request.
            let mut answer = Vec::new();
            let _ = connection.read_to_end(&mut answer);
            assert!(
                !String::from_utf8_lossy(&answer).contains(" 200 "),
                "{sent}"
            );
            assert_eq!(store.stat(&name).unwrap(), None, "{sent}");
        }
        store.put(&name, &bytes).unwrap();
    }
    running.end();
}

#[test]
fn no_path_and_no_link_leads_out_of_the_directory() {
    let running = Running::new();
    let secret = running.outside().join("config");
    std::fs::create_dir(running.outside().join("keys")).unwrap();
    std::fs::write(&secret, b"secret").unwrap();
    let link =
        |at: &str| std::os::unix::fs::symlink(running.outside(), running.dir().join(at)).unwrap();
    link("linked");
    let store = running.create("a");
    std::fs::remove_dir(running.dir().join("a/index")).unwrap();
    link("a/index");
    std::fs::remove_dir(running.dir().join("a/packs/ab")).unwrap();
    link("a/packs/ab");
    std::os::unix::fs::symlink(&secret, running.dir().join("a/config")).unwrap();
    let id = "ab".repeat(32);
    std::fs::write(running.outside().join(&id), b"secret").unwrap();
    for path in [
        "/../config".to_owned(),
        "/a/../../outside/config".to_owned(),
        "/%2e%2e/config".to_owned(),
        "/a/%2e%2e/%2e%2e/config".to_owned(),
        "//config".to_owned(),
        "/a//config".to_owned(),
        "/linked/config".to_owned(),
        "/a/config".to_owned(),
        "/a/tmp/x".to_owned(),
        "/a/BALE-REPOSITORY.TAG".to_owned(),
        format!("/a/index/{id}"),
        format!("/a/packs/ab/{id}"),
        "/a/index/".to_owned(),
    ] {
        for method in ["GET", "HEAD", "POST", "DELETE", "PUT"] {
            let answer = raw(
                &running,
                &format!(
                    "{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\
                     Connection: close\r\n\r\n"
                ),
            );
            // Deleting takes the link away, and nothing that it leads to.
            let is_link_itself = method == "DELETE" && path == "/a/config";
            assert!(
                status_of(&answer) >= 400 || is_link_itself,
                "{method} {path}: {answer}"
            );
            assert!(!answer.contains("secret"), "{method} {path}: {answer}");
        }
    }
    assert!(
        store
            .list(Area::Index, &mut |_| panic!("what is listed is elsewhere"))
            .is_err()
    );
    let (name, bytes) = hashed(Area::Index, 10);
    assert!(store.put(&name, &bytes).is_err());
    assert!(
        store
            .delete(&ObjectName::index(ObjectId([0xab; 32])))
            .is_err()
    );
    assert!(running.open("linked").put(&name, &bytes).is_err());
    assert!(RestStore::create(running.url("linked"), &options()).is_err());
    assert!(RestStore::create(running.url("linked/x"), &options()).is_err());
    assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
    assert!(running.outside().join(&id).exists());
    // What was put there above, and nothing else.
    assert_eq!(std::fs::read_dir(running.outside()).unwrap().count(), 3);
}

#[test]
fn what_is_no_request_is_refused_and_the_server_goes_on() {
    let running = Running::new();
    let store = running.create("a");
    let (name, bytes) = hashed(Area::Index, 10);
    store.put(&name, &bytes).unwrap();
    let long = "x".repeat(200_000);
    for request in [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        format!("GET /{long} HTTP/1.1\r\n\r\n"),
        format!("GET /a/config HTTP/1.1\r\nX: {long}\r\n\r\n"),
        format!("POST /a/{name} HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n"),
        format!(
            "POST /a/{name} HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"
        ),
        format!(
            "POST /a/{name} HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999\r\n\
             Connection: close\r\n\r\n"
        ),
        format!(
            "POST /a/{name} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n1\r\nx\r\n0\r\n\r\n"
        ),
        "POST /a/ HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
        "PATCH /a/config HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned(),
        "DELETE /a/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned(),
        "DELETE /a/packs/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned(),
    ] {
        let mut connection = running.connect();
        let _ = connection.write_all(request.as_bytes());
        let _ = connection.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = connection.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || status_of(&answer) >= 400,
            "{request:.60}: {answer}"
        );
        assert_eq!(store.get(&name, LEN_MAX).unwrap(), bytes);
    }
}

#[test]
fn ranges_are_answered_as_other_servers_answer_them() {
    let running = Running::new();
    let store = running.create("a");
    let (name, bytes) = hashed(Area::Packs, 300_000);
    store.put(&name, &bytes).unwrap();
    for (range, status, content_range) in [
        ("bytes=0-9", 206, "content-range: bytes 0-9/300000\r\n"),
        (
            "bytes=1000-250000",
            206,
            "content-range: bytes 1000-250000/300000\r\n",
        ),
        (
            "bytes=-5",
            206,
            "content-range: bytes 299995-299999/300000\r\n",
        ),
        ("bytes=300000-", 416, "content-range: bytes */300000\r\n"),
        ("rubbish", 200, "content-length: 300000\r\n"),
    ] {
        let answer = raw(
            &running,
            &format!(
                "GET /a/{name} HTTP/1.1\r\nHost: h\r\nRange: {range}\r\nConnection: close\r\n\r\n"
            ),
        );
        assert_eq!(status_of(&answer), status, "{range}");
        assert!(answer.contains(content_range), "{range}");
    }
    let listed = raw(
        &running,
        "GET /a/packs/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    );
    let id = name.id().unwrap();
    assert!(
        listed.contains(&format!("[{{\"name\":\"{id}\",\"size\":300000}}]")),
        "{listed}"
    );
}

#[test]
fn an_append_only_server_takes_what_is_new_and_gives_up_only_records_of_runs() {
    let running = Running::with(|options| options.is_append_only = true);
    let store = running.create("a");
    store.put(&ObjectName::config(), b"config").unwrap();
    for area in Area::ALL.into_iter().filter(|area| area.is_directory()) {
        let (name, bytes) = hashed(area, 100);
        store.put(&name, &bytes).unwrap();
        store.put(&name, &bytes).expect("what is there is no error");
        let deleted = store.delete(&name);
        if area == Area::Runs {
            deleted.unwrap();
            assert_eq!(store.stat(&name).unwrap(), None);
            continue;
        }
        let error = deleted.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{area}");
        assert!(error.to_string().contains("append-only"), "{error}");
        assert_eq!(store.get(&name, LEN_MAX).unwrap(), bytes);
    }
    assert!(store.delete(&ObjectName::config()).is_err());
    // A thief with all secrets of the client, past our own client's look at what is there.
    let length = "Content-Length: 4\r\nConnection: close\r\n";
    raw(
        &running,
        &format!("POST /a/config HTTP/1.1\r\nHost: h\r\n{length}\r\nevil"),
    );
    assert_eq!(
        store.get(&ObjectName::config(), LEN_MAX).unwrap(),
        b"config"
    );
}

#[test]
fn without_a_right_password_there_is_nothing() {
    let users = || Users::parse(&users_line("me", "s3cr3t").unwrap()).unwrap();
    let running = Running::with(|options| options.access = ServeAccess::Users(users()));
    let url =
        |login: &str| HttpUrl::parse(&format!("http://{login}{}/a/", running.address())).unwrap();
    let store = RestStore::create(url("me:s3cr3t@"), &options()).unwrap();
    let (name, bytes) = hashed(Area::Packs, 1 << 20);
    store.put(&name, &bytes).unwrap();
    for login in [
        "",
        "me@",
        "me:s3cr3@",
        "me:s3cr3t2@",
        "you:s3cr3t@",
        "ME:s3cr3t@",
    ] {
        let thief = RestStore::open(url(login), &options()).unwrap();
        for error in [
            thief.get(&name, LEN_MAX).unwrap_err(),
            thief.stat(&name).unwrap_err(),
            thief.list(Area::Packs, &mut |_| {}).unwrap_err(),
            thief.delete(&name).unwrap_err(),
            thief
                .put(&ObjectName::index(ObjectId([1; 32])), b"x")
                .unwrap_err(),
        ] {
            assert_eq!(
                error.kind(),
                ErrorKind::PermissionDenied,
                "{login}: {error}"
            );
            assert!(!error.to_string().contains("s3cr3"), "{error}");
        }
        assert!(RestStore::create(url(login), &options()).is_err());
    }
    assert_eq!(
        status_of(&raw(
            &running,
            "GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        )),
        401
    );
    assert!(store.get(&name, LEN_MAX).unwrap() == bytes);
}

#[test]
fn with_a_place_for_each_user_nobody_reaches_anothers() {
    let lines = ["me", "you"]
        .map(|user| users_line(user, "x").unwrap())
        .join("\n");
    let running = Running::with(|options| {
        options.access = ServeAccess::Users(Users::parse(&lines).unwrap());
        options.is_private = true;
    });
    let url = |user: &str, path: &str| {
        HttpUrl::parse(&format!("http://{user}:x@{}/{path}", running.address())).unwrap()
    };
    let store = RestStore::create(url("me", "me/web1"), &options()).unwrap();
    let (name, bytes) = hashed(Area::Index, 10);
    store.put(&name, &bytes).unwrap();
    for path in ["me/web1", "me", "", "mee", "youu", "me/you"] {
        let other = RestStore::open(url("you", path), &options()).unwrap();
        assert_eq!(
            other.stat(&name).unwrap_err().kind(),
            ErrorKind::PermissionDenied,
            "{path}"
        );
        assert!(
            RestStore::create(url("you", path), &options()).is_err(),
            "{path}"
        );
    }
    RestStore::create(url("you", "you"), &options()).unwrap();
}

#[test]
fn a_quota_is_kept_and_deleting_gives_it_back() {
    let running = Running::with(|options| options.bytes_max = Some(1_000_000));
    let store = running.create("a");
    let (first, bytes) = hashed(Area::Packs, 600_000);
    store.put(&first, &bytes).unwrap();
    store
        .put(&first, &bytes)
        .expect("what is there takes no room");
    let (second, more) = hashed(Area::Packs, 500_000);
    let error = store.put(&second, &more).unwrap_err();
    assert!(
        error.is_storage_full() && error.to_string().contains("quota"),
        "{error}"
    );
    assert_eq!(store.stat(&second).unwrap(), None);
    store.delete(&first).unwrap();
    store.put(&second, &more).unwrap();
    assert!(running.metrics().contains("bale_serve_used_bytes 500000\n"));
}

#[test]
fn two_hundred_clients_at_once_are_served_within_the_bound_of_connections() {
    const CLIENTS: usize = 200;
    const { assert!(CLIENTS < CONNECTIONS_MAX) };
    let running = Running::new();
    running.create("a");
    let start = std::sync::Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (running, start) = (&running, &start);
            scope.spawn(move || {
                // Each with connections of its own.
                let store = running.open("a");
                let bytes = vec![client as u8; 300_000 + client];
                let name = ObjectName::pack(ObjectId(*blake3::hash(&bytes).as_bytes()));
                start.wait();
                store.put(&name, &bytes).unwrap();
                assert!(store.get(&name, LEN_MAX).unwrap() == bytes);
                let mut part = [0; 1_000];
                store.read_at(&name, 299_000, &mut part).unwrap();
                assert_eq!(part, [client as u8; 1_000]);
            });
        }
    });
    let mut listed = 0;
    running
        .open("a")
        .list(Area::Packs, &mut |_| listed += 1)
        .unwrap();
    assert_eq!(listed, CLIENTS);
}

#[test]
fn more_connections_than_places_wait_for_theirs() {
    let running = Running::new();
    running.create("a");
    let mut idle: Vec<_> = (0..CONNECTIONS_MAX).map(|_| running.connect()).collect();
    for connection in &mut idle {
        connection
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
    }
    for connection in &mut idle {
        let answer = answer_to(connection);
        assert_eq!(status_of(&answer), 200);
    }
    let mut late = running.connect();
    late.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .unwrap();
    drop(idle.pop());
    let answer = answer_to(&mut late);
    let counted = format!("bale_serve_connections {CONNECTIONS_MAX}\n");
    assert!(answer.contains(&counted), "{answer}");
}

#[test]
fn what_nobody_guards_is_not_open_to_other_machines() {
    let dir = tempfile::tempdir().unwrap();
    let options = |listen: &str, access| ServeOptions {
        dir: dir.path().to_owned(),
        listen: ServeListen::Address(listen.parse().unwrap()),
        access,
        is_append_only: false,
        is_private: false,
        tls: None,
        bytes_max: None,
        checks_hashes: true,
    };
    let bind = |options| Server::bind(options, std::sync::Arc::new(|_: &str| {})).map(|_| ());
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = bind(options(open, ServeAccess::Anybody)).unwrap_err();
        assert!(
            matches!(refused, ServeError::OpenToAll(_)),
            "{open}: {refused}"
        );
    }
    let mut private = options("127.0.0.1:0", ServeAccess::Anybody);
    private.is_private = true;
    assert!(matches!(
        bind(private).unwrap_err(),
        ServeError::PrivateWithoutUsers
    ));
    let mut nowhere = options("127.0.0.1:0", ServeAccess::Anybody);
    nowhere.dir = dir.path().join("nowhere");
    assert!(matches!(
        bind(nowhere).unwrap_err(),
        ServeError::Directory { .. }
    ));
    bind(options("127.0.0.1:0", ServeAccess::Anybody)).unwrap();
}

#[test]
fn a_server_that_is_to_end_completes_what_is_under_way() {
    let running = Running::new();
    let store = running.create("a");
    let (name, bytes) = hashed(Area::Packs, 2 << 20);
    let mut connection = running.connect();
    let head = format!(
        "POST /a/{name} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        bytes.len()
    );
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(&bytes[..1 << 20]).unwrap();
    running.wait_for_temporary_file("a");
    running.tell_to_end();
    // It takes no more connections.
    while std::net::TcpStream::connect(running.address()).is_ok() {
        std::thread::yield_now();
    }
    connection.write_all(&bytes[1 << 20..]).unwrap();
    assert_eq!(status_of(&answer_to(&mut connection)), 200);
    let dir = running.dir().join("a");
    drop(store);
    let _directory = running.end();
    assert!(LocalStore::open(&dir).unwrap().get(&name, LEN_MAX).unwrap() == bytes);
}

#[test]
fn an_encrypted_server_is_believed_by_its_certificate_alone() {
    let Some(files) = client::certificate() else {
        bale_testkit::skipped("no openssl to make a certificate with");
        return;
    };
    let running = Running::with(|options| options.tls = Some(files.tls()));
    let url = || {
        HttpUrl::parse(&format!(
            "https://localhost:{}/a/",
            running.address().port()
        ))
        .unwrap()
    };
    let trusting = HttpOptions {
        ca_file: Some(files.certificate.clone()),
        ..options()
    };
    let store = RestStore::create(url(), &trusting).unwrap();
    let (name, bytes) = hashed(Area::Packs, 3 << 20);
    store.put(&name, &bytes).unwrap();
    assert!(store.get(&name, LEN_MAX).unwrap() == bytes);
    // Of the right name, signed by somebody else; of another name, signed right.
    let other = client::certificate().unwrap();
    let distrusting = HttpOptions {
        ca_file: Some(other.certificate.clone()),
        ..options()
    };
    let refused = RestStore::open(url(), &distrusting).unwrap();
    let error = refused.get(&name, LEN_MAX).unwrap_err();
    assert!(
        error.to_string().contains("certificate is refused"),
        "{error}"
    );
    let other_name = HttpUrl::parse(&format!("https://{}/a/", running.address())).unwrap();
    let refused = RestStore::open(other_name, &trusting).unwrap();
    let error = refused.get(&name, LEN_MAX).unwrap_err();
    assert!(
        error.to_string().contains("certificate is refused"),
        "{error}"
    );
}

/// What `openssl req -x509` makes is an authority, and no client takes that for a server's.
#[test]
fn a_certificate_of_an_authority_is_named_by_the_server_and_refused_with_how_to_make_another() {
    let Some(files) = client::certificate_with("basicConstraints=critical,CA:TRUE") else {
        bale_testkit::skipped("no openssl to make a certificate with");
        return;
    };
    let running = Running::with(|options| options.tls = Some(files.tls()));
    let said = running.log().join("\n");
    assert!(said.contains("that of an authority (CA:TRUE)"), "{said}");
    let url = format!("https://localhost:{}/a/", running.address().port());
    let trusting = HttpOptions {
        ca_file: Some(files.certificate.clone()),
        ..options()
    };
    let store = RestStore::open(HttpUrl::parse(&url).unwrap(), &trusting).unwrap();
    let (name, _) = hashed(Area::Packs, 1);
    let error = store.get(&name, LEN_MAX).unwrap_err().to_string();
    for part in ["CA:TRUE", "CA:FALSE", "openssl req", "BALE_CA_FILE"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    // Without encryption it is said where that may be.
    let plain = format!("http://{}/a/", running.address());
    let store = RestStore::open(HttpUrl::parse(&plain).unwrap(), &options()).unwrap();
    let error = store.get(&name, LEN_MAX).unwrap_err().to_string();
    assert!(error.contains("write https:// for http://"), "{error}");
}
