//! `bale copy` and `bale mirror` between stores of different kinds: directories, our own server,
//! SFTP, a hot store beside a cold one; with sizes of packs and keys of their own, and servers that
//! die.

use crate::bench::{Bench, Ran};
use crate::serving::{Server, start};
use crate::tree::assert_same;
use bale_testkit::scene::noise;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Nothing that is waited for takes longer, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where distributions put OpenSSH's server.
const SFTP_SERVERS: [&str; 3] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
];

struct Far {
    bench: Bench,
    server: Server,
    /// `rest:http://…/`
    rest: String,
    /// `sftp:…:/…/`
    sftp: String,
}

impl Far {
    /// Everything in `source` is backed up twice into `here`.
    fn new() -> Far {
        let bench = Bench::new();
        for name in ["here", "rest", "sftp", "cold"] {
            bench.write(&format!("{name}.pw"), format!("of {name}"));
        }
        bench.sh("mkdir served source/dir; ln -s dir source/link; truncate -s 2M source/sparse");
        for number in 0..12 {
            bench.write(&format!("source/large-{number}"), noise(number, 900 << 10));
            bench.write(&format!("source/dir/small-{number}"), noise(number, 900));
        }
        bench.ok(&["init", "-r", "here", "-p", "here.pw"]);
        bench.ok(&["backup", "source", "-r", "here", "-p", "here.pw"]);
        bench.write("source/dir/more", noise(99, 70_000));
        bench.ok(&["backup", "source", "-r", "here", "-p", "here.pw"]);
        let (server, rest) = served(&bench);
        let sftp = format!("sftp:me@nowhere:{}/", bench.path("served").display());
        Far {
            bench,
            server,
            rest,
            sftp,
        }
    }

    fn ran(&self, words: &[&str]) -> Ran {
        let found = SFTP_SERVERS.iter().find(|path| Path::new(path).is_file());
        let found = found.expect("sftp-server: Debian's package openssh-sftp-server");
        let mut command = self.bench.command();
        command.args(words).env("BALE_SFTP_COMMAND", found);
        Ran::from(command.output().unwrap())
    }

    fn ok(&self, words: &[&str]) -> Ran {
        let ran = self.ran(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    }

    /// Copies all; the summary.
    fn copied(&self, from: (&str, &str), to: &[&str]) -> serde_json::Value {
        let words = ["copy", "--json", "--from-repo", from.0];
        let words = [&words[..], &["--from-password-file", from.1], to].concat();
        self.ok(&words).summary()
    }

    fn assert_restores(&self, place: &[&str]) {
        self.bench.sh("rm -rf out");
        let address = self.bench.address("");
        self.ok(&[&["restore", &address, "-t", "out"], place].concat());
        assert_same(&self.bench.source, &self.bench.path("out"));
        self.ok(&[&["check", "--read-data"], place].concat());
    }
}

fn served(bench: &Bench) -> (Server, String) {
    let directory = bench.path("served").display().to_string();
    let (server, address) = start(bench, &["--no-auth", &directory]);
    (server, format!("rest:http://{address}/"))
}

#[test]
fn snapshots_travel_from_a_directory_over_a_server_and_sftp_and_back() {
    let far = Far::new();
    let rest = format!("{}name", far.rest);
    let sftp = format!("{}other", far.sftp);
    let on_rest = ["-r", &rest, "-p", "rest.pw"];
    let on_sftp = ["-r", &sftp, "-p", "sftp.pw"];
    far.ok(&[&["init"], &on_rest[..]].concat());
    far.ok(&[&["init"], &on_sftp[..]].concat());

    let words = [&on_rest[..], &["--pack-size", "4M"]].concat();
    let copied = far.copied(("here", "here.pw"), &words);
    assert_eq!(copied["snapshots_copied"], 2);
    far.assert_restores(&on_rest);

    let words = [&on_sftp[..], &["--pack-size", "24M"]].concat();
    let copied = far.copied((&rest, "rest.pw"), &words);
    assert_eq!(copied["snapshots_copied"], 2);
    far.assert_restores(&on_sftp);
    let packs = |name: &str| packs(&far.bench.path("served").join(name)).len();
    assert!(packs("name") > packs("other"), "other sizes of packs");

    // There already, and known on the way back; and what is new goes alone.
    let back = far.copied((&sftp, "sftp.pw"), &["-r", "here", "-p", "here.pw"]);
    assert_eq!(
        (&back["snapshots_there"], &back["bytes_read"]),
        (&2.into(), &0.into())
    );
    far.bench.write("source/dir/new", noise(100, 5_000));
    far.ok(&["backup", "source", "-r", "here", "-p", "here.pw"]);
    for (from, to) in [
        (("here", "here.pw"), on_rest),
        ((&rest, "rest.pw"), on_sftp),
    ] {
        let copied = far.copied(from, &to);
        assert_eq!(copied["snapshots_copied"], 1, "{copied}");
        assert!(copied["bytes_read"].as_u64() < Some(200_000), "{copied}");
        far.assert_restores(&to);
    }
}

#[test]
fn snapshots_go_into_a_hot_store_with_a_cold_one_and_come_out_of_the_cold_one() {
    let far = Far::new();
    let (hot, cold) = (format!("{}hot", far.rest), format!("{}cold", far.sftp));
    let both = ["-r", &hot, "--cold", &cold, "-p", "cold.pw"];
    far.ok(&[&["init"], &both[..]].concat());
    let copied = far.copied(("here", "here.pw"), &both);
    assert_eq!(copied["snapshots_copied"], 2);
    far.assert_restores(&both);
    // What the hot store alone lacks is read from the cold one, which has all.
    let on_rest = ["-r", &format!("{}name", far.rest), "-p", "rest.pw"];
    far.ok(&[&["init"], &on_rest[..]].concat());
    let copied = far.copied((&cold, "cold.pw"), &on_rest);
    assert_eq!(copied["snapshots_copied"], 2);
    far.assert_restores(&on_rest);
}

fn packs(repository: &Path) -> Vec<PathBuf> {
    let directories = std::fs::read_dir(repository.join("packs"));
    let directories = directories.into_iter().flatten().flatten();
    let packs = directories.filter_map(|directory| std::fs::read_dir(directory.path()).ok());
    packs.flatten().flatten().map(|pack| pack.path()).collect()
}

/// Starts it, and kills the server once it has some packs of this repository.
fn server_dies_during(far: &mut Far, name: &str, words: &[&str]) -> Ran {
    let mut command = far.bench.command();
    command.args(words).stdout(Stdio::piped());
    let running = command.stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    while packs(&far.bench.path("served").join(name)).len() < 2 {
        assert!(Instant::now() < end, "no pack comes to the server");
        std::thread::yield_now();
    }
    far.server.kill();
    Ran::from(running.wait_with_output().unwrap())
}

#[test]
fn a_copy_whose_server_dies_goes_on_when_it_is_there_again() {
    let mut far = Far::new();
    let place = format!("{}name", far.rest);
    far.ok(&["init", "-r", &place, "-p", "rest.pw"]);
    let from = [
        "copy",
        "--from-repo",
        "here",
        "--from-password-file",
        "here.pw",
    ];
    let to = ["-r", &place, "-p", "rest.pw", "--pack-size", "4M"];
    let slow = ["--limit-upload", "3M", "--retry-for", "1s"];
    let ran = server_dies_during(&mut far, "name", &[&from[..], &to, &slow].concat());
    assert!(ran.code != 0, "{ran}");
    let listed = ["-r", "served/name", "-p", "rest.pw", "snapshots", "--json"];
    assert!(far.ok(&listed).of_type("snapshot").is_empty());

    let (_server, rest) = served(&far.bench);
    let place = format!("{rest}name");
    let on_rest = ["-r", &place, "-p", "rest.pw"];
    let copied = far.copied(("here", "here.pw"), &on_rest);
    assert_eq!(copied["snapshots_copied"], 2);
    far.assert_restores(&on_rest);
}

#[test]
fn a_mirror_on_a_server_that_dies_is_whole_and_is_a_source_of_the_next_one() {
    let mut far = Far::new();
    let here = ["-r", "here", "-p", "here.pw"];
    let place = format!("{}mirror", far.rest);
    let slow = ["--limit-upload", "3M", "--retry-for", "1s"];
    // One pack at a time comes late: the small ones first are enough.
    far.ok(&[
        "backup",
        "source",
        "--force",
        "-r",
        "here",
        "-p",
        "here.pw",
        "--pack-size",
        "4M",
    ]);
    let words = [&here[..], &["mirror", "--to", &place], &slow].concat();
    let ran = server_dies_during(&mut far, "mirror", &words);
    assert!(ran.code != 0, "{ran}");
    far.ok(&[
        "-r",
        "served/mirror",
        "-p",
        "here.pw",
        "check",
        "--read-data",
    ]);

    let (_server, rest) = served(&far.bench);
    let (place, second) = (format!("{rest}mirror"), format!("{}second", far.sftp));
    let dry = far.ok(&[&here[..], &["mirror", "--json", "-n", "--to", &place]].concat());
    let sent = far.ok(&[&here[..], &["mirror", "--json", "--to", &place]].concat());
    assert_eq!(
        dry.summary()["objects_sent"],
        sent.summary()["objects_sent"]
    );
    assert!(sent.summary()["objects_there"].as_u64() > Some(2), "{sent}");
    let on_rest = ["-r", &place, "-p", "here.pw"];
    far.assert_restores(&on_rest);

    // A mirror is the repository, and may be where the next one comes from.
    far.ok(&[&on_rest[..], &["mirror", "--to", &second]].concat());
    far.assert_restores(&["-r", &second, "-p", "here.pw"]);

    // After a prune of the source; damage in the mirror is found when it is read.
    far.ok(&[
        &here[..],
        &["forget", "--keep-last", "1", "--prune", "--grace", "0"],
    ]
    .concat());
    let mirror = |more: &[&str]| {
        let words = [&here[..], &["mirror", "--json", "--to", &place], more].concat();
        far.ok(&words).summary()
    };
    assert!(mirror(&["--delete"])["objects_deleted"].as_u64() > Some(0));
    far.assert_restores(&on_rest);
    let pack = packs(&far.bench.path("served/mirror")).remove(0);
    far.bench.sh(&format!(
        "chmod u+w {0}; printf XXXX | dd of={0} bs=1 seek=600 conv=notrunc status=none",
        pack.display()
    ));
    assert_eq!(mirror(&[])["objects_sent"], 0, "its length is right");
    assert_eq!(mirror(&["--verify"])["objects_replaced"], 1);
    far.assert_restores(&on_rest);
}
