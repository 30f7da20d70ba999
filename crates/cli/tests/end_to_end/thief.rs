//! Somebody who has everything that the client has: the password of the repository, that of the
//! server, and our own program. A server with `--append-only` takes what he adds, and nothing that
//! was committed before can be spoiled.

use crate::bench::{Bench, Ran};
use crate::serving::{Server, start};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

/// The client, its repository at an append-only server, and what the thief copied of it.
struct Scene {
    bench: Bench,
    address: String,
    repository: String,
    _server: Server,
}

impl Scene {
    /// With a first backup, committed.
    fn new() -> Scene {
        let bench = Bench::new();
        bench.write("pw", "secret");
        std::fs::create_dir(bench.path("served")).unwrap();
        let served = bench.path("served").display().to_string();
        let (server, address) = start(&bench, &["--no-auth", "--append-only", &served]);
        let repository = format!("rest:http://{address}/name");
        let scene = Scene {
            bench,
            address,
            repository,
            _server: server,
        };
        scene.bench.write("source/one", "1".repeat(100_000));
        scene.bench.write("source/deep/two", "2".repeat(70_000));
        assert_eq!(scene.bale(&["init"]).code, 0);
        assert_eq!(scene.bale(&["backup", "source"]).code, 0);
        scene
    }

    /// With all secrets, through the server.
    fn bale(&self, words: &[&str]) -> Ran {
        let at = ["-p", "pw", "-r", &self.repository];
        self.bench.run(&[words, &at].concat())
    }

    /// Whoever runs the server, on the directory itself.
    fn owner(&self, words: &[&str]) -> Ran {
        let at = ["-p", "pw", "-r", "served/name"];
        self.bench.run(&[words, &at].concat())
    }

    fn request(&self, method: &str, path: &str, body: &[u8]) -> u16 {
        let mut connection = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} /name/{path} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        connection.write_all(head.as_bytes()).unwrap();
        connection.write_all(body).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        let status = answer
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3));
        status.unwrap().parse().unwrap()
    }

    /// Paths of all objects, relative to the repository.
    fn objects(&self) -> Vec<PathBuf> {
        let root = self.bench.path("served/name");
        let areas = ["keys", "packs", "index", "snapshots"].map(|area| root.join(area));
        let mut objects = vec!["config".into(), "config.copy".into()];
        for area in areas {
            files_below(&area, &mut objects, &root);
        }
        objects
    }

    /// What was committed is whole, and a prune by the owner leaves it so.
    fn expect_unspoiled(&self) {
        let restored = |into: &str| {
            let address = self.bench.address_in(&self.first(), "");
            let ran = self.owner(&["restore", &address, "--target", into]);
            assert!([0, 3].contains(&ran.code), "{ran}");
            self.bench.sh(&format!("diff -r source {into}"));
        };
        restored("back");
        let pruned = self.owner(&["prune", "--grace", "0"]);
        let again = self.owner(&["prune", "--grace", "0"]);
        println!("{pruned}\n{again}");
        restored("back-again");
    }

    /// The id of the client's snapshot: the oldest.
    fn first(&self) -> String {
        let listed = self.owner(&["snapshots", "--json"]).objects();
        let id = listed.iter().filter_map(|object| object["id"].as_str());
        id.min_by_key(|id| {
            let path = self.bench.path("served/name/snapshots").join(id);
            path.metadata().unwrap().modified().unwrap()
        })
        .unwrap()
        .to_owned()
    }
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>, root: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_below(&path, found, root),
            false => found.push(path.strip_prefix(root).unwrap().to_owned()),
        }
    }
}

#[test]
fn nothing_is_deleted_or_replaced() {
    let scene = Scene::new();
    let before = scene.objects();
    assert!(before.len() > 6, "{before:?}");
    for object in &before {
        let path = object.to_str().unwrap();
        assert_eq!(scene.request("DELETE", path, b""), 403, "{path}");
        let was = std::fs::read(scene.bench.path("served/name").join(object)).unwrap();
        for other in [&b""[..], b"another's"] {
            scene.request("POST", path, other);
            let is = std::fs::read(scene.bench.path("served/name").join(object)).unwrap();
            assert!(is == was, "{path} was replaced");
        }
    }
    scene.expect_unspoiled();
    assert_eq!(scene.owner(&["check", "--read-data"]).code, 0);
}

#[test]
fn our_own_program_in_his_hands_takes_nothing_away() {
    let scene = Scene::new();
    for words in [
        &["forget", "latest"][..],
        &["forget", "--keep-last", "1", "--prune", "--group-by", ""],
        &["forget", "latest", "--prune"],
        &["prune", "--grace", "0"],
        &["repair", "index"],
        &["init", "--force"],
    ] {
        let ran = scene.bale(words);
        println!("{words:?}: {ran}");
    }
    scene.bench.write("pw2", "another");
    let slots = || {
        std::fs::read_dir(scene.bench.path("served/name/keys"))
            .unwrap()
            .count()
    };
    let before = slots();
    for _ in 0..2 {
        let passwd = scene.bale(&["key", "passwd", "--new-password-file", "pw2"]);
        assert_eq!(passwd.code, 1, "the old slot is still there: {passwd}");
        assert!(passwd.err.contains("nothing was changed"), "{passwd}");
    }
    assert_eq!(slots(), before, "nothing is added that replaces nothing");
    scene.expect_unspoiled();
    assert_eq!(scene.owner(&["check", "--read-data"]).code, 0);
}

#[test]
fn a_backup_needs_neither_delete_nor_replace() {
    let scene = Scene::new();
    scene.bench.write("source/three", "3".repeat(50_000));
    for _ in 0..2 {
        let ran = scene.bale(&["backup", "source"]);
        assert_eq!(
            (ran.code, ran.err.contains("append-only")),
            (0, false),
            "{ran}"
        );
    }
    assert_eq!(scene.bale(&["check", "--read-data"]).code, 0);
    let runs = scene.bench.path("served/name/runs");
    let left = std::fs::read_dir(runs).map_or(0, Iterator::count);
    assert_eq!(left, 0, "records of runs are removed by their run");
}

/// Lies under the right key: all packs condemned and marked as damaged.
#[test]
fn marks_that_he_seals_make_nobody_delete_what_is_in_use() {
    let scene = Scene::new();
    // On a copy he can do what he likes; what he makes there has the right key.
    scene
        .bench
        .sh("cp -r served/name copy && find copy -type f -exec touch -d '9 days ago' {} +");
    scene
        .bench
        .ok(&["forget", "latest", "-p", "pw", "-r", "copy"]);
    let prune = ["prune", "--grace", "1d", "-p", "pw", "-r", "copy"];
    scene.bench.ok(&prune);
    let mut marks = Vec::new();
    let root = scene.bench.path("copy");
    files_below(&root.join("condemned"), &mut marks, &root);
    assert!(!marks.is_empty(), "the copy has condemned packs");
    for mark in &marks {
        let bytes = std::fs::read(root.join(mark)).unwrap();
        let status = scene.request("POST", mark.to_str().unwrap(), &bytes);
        println!("{}: {status}", mark.display());
    }
    // Made long ago, as far as anybody can tell.
    scene
        .bench
        .sh("find served/name/condemned -type f -exec touch -d '10 days ago' {} +");
    scene.expect_unspoiled();
    let checked = scene.owner(&["check", "--read-data"]);
    assert_eq!(checked.code, 0, "{checked}");
}

/// Rubbish with right names: nobody can open it, and the next check names it.
#[test]
fn what_he_adds_is_named_by_the_next_check() {
    for area in ["index", "snapshots", "packs/XX", "keys"] {
        let scene = Scene::new();
        let rubbish = format!("rubbish for {area}").into_bytes();
        let name = blake3::hash(&rubbish).to_hex().to_string();
        let area = area.replace("XX", &name[..2]);
        assert_eq!(
            scene.request("POST", &format!("{area}/{name}"), &rubbish),
            200
        );
        let checked = scene.owner(&["check", "--read-data"]);
        let said = format!("{}{}", checked.text(), checked.err);
        // A pack that nothing needs is counted.
        let is_told = said.contains(&name[..8]) || said.contains("1 pack that no index names");
        assert!(is_told, "{area}: {checked}");
        scene.expect_unspoiled();
    }
}
