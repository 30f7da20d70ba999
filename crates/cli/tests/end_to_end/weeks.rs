//! Weeks of use, all of it together and in any order: sources change, backups run and are killed,
//! snapshots are tagged, pinned, rewritten, forgotten, copied and mirrored, keys change, prunes are
//! cut off. After every day each snapshot that nobody forgot comes back as what it was made of.
//!
//! `BALE_WEEKS=n` is how many weeks the long test has, `BALE_WEEK_SEED=n` where it begins; a week
//! that fails names its seed and tells what was done in it.

use crate::bench::{Bench, Ran};
use bale_pipeline::random::SeededRandom;
use bale_testkit::choices::Choices;
use bale_testkit::scene::noise;
use bale_testkit::tree::Tree;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

const DAYS: usize = 7;
const ACTS_A_DAY: usize = 9;
const WEEKS_OF_LONG_TEST: u64 = 100;
/// A kill comes within so many milliseconds, mostly before the end.
const KILLED_WITHIN: usize = 60;

/// What a snapshot was made of.
#[derive(Clone)]
enum Made {
    Of(Tree),
    OfStream(Vec<u8>),
}

#[derive(Clone)]
struct Kept {
    made: Made,
    pinned: bool,
    /// By the repository, until it is rewritten or changed.
    id: String,
}

struct Week {
    bench: Bench,
    random: SeededRandom,
    /// By their time, which stays when they are tagged, pinned or rewritten.
    shelf: BTreeMap<String, Kept>,
    /// Of the password file.
    passwords: usize,
    number: u64,
    story: Vec<String>,
}

impl Week {
    fn begin(seed: u64) -> Week {
        let bench = Bench::new();
        bench.write("pw", "password 0");
        let mut week = Week {
            bench,
            random: SeededRandom::new(seed),
            shelf: BTreeMap::new(),
            passwords: 0,
            number: 0,
            story: vec![format!("seed {seed}")],
        };
        week.ok(&["init"]);
        (0..12).for_each(|_| week.change());
        week
    }

    fn words<'a>(&self, words: &[&'a str]) -> Vec<&'a str> {
        [&["-r", "repository", "-p", "pw"], words].concat()
    }

    fn run(&mut self, words: &[&str]) -> Ran {
        self.story.push(words.join(" "));
        self.bench.run(&self.words(words))
    }

    fn ok(&mut self, words: &[&str]) -> Ran {
        let ran = self.run(words);
        self.story
            .push(format!("  {}", ran.err.trim().replace('\n', "\n  ")));
        self.must(ran.code == 0, &ran.to_string());
        ran
    }

    fn must(&self, holds: bool, why: &str) {
        assert!(holds, "{why}\n{}", self.story.join("\n"));
    }

    /// Runs, and is ended somewhere on the way or behind its end.
    fn killed(&mut self, words: &[&str]) {
        let signal = ["KILL", "INT", "TERM"][self.random.pick(3)];
        let after = self.random.pick(KILLED_WITHIN);
        let words = self.words(words);
        self.story
            .push(format!("{signal} after {after} ms: {}", words.join(" ")));
        let mut command = self.bench.command();
        command.args(words);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after as u64));
        self.bench
            .sh(&format!("kill -{signal} {} || true", child.id()));
        let ran = Ran::from(child.wait_with_output().unwrap());
        self.must(!ran.err.contains("panicked"), &ran.err);
        self.must(![1, 2, 4].contains(&ran.code), &ran.to_string());
    }

    fn listed(&self) -> BTreeMap<String, Value> {
        let ran = self.bench.run(&self.words(&["snapshots", "--json"]));
        self.must(ran.code == 0, &ran.to_string());
        let listed = ran.of_type("snapshot").into_iter();
        let whole = listed.filter(|snapshot| snapshot["partial"] == false);
        whole
            .map(|snapshot| (snapshot["time"].as_str().unwrap().to_owned(), snapshot))
            .collect()
    }

    /// What is new in the repository was made of this; ids are as they are there.
    fn shelve(&mut self, made: &Made) -> usize {
        let listed = self.listed();
        let before = self.shelf.len();
        for (time, snapshot) in &listed {
            let id = snapshot["id"].as_str().unwrap().to_owned();
            let kept = self.shelf.entry(time.clone()).or_insert_with(|| Kept {
                made: made.clone(),
                pinned: false,
                id: String::new(),
            });
            kept.id = id;
        }
        self.must(listed.len() == self.shelf.len(), "a snapshot is gone");
        self.shelf.len() - before
    }

    fn any(&mut self) -> Option<(String, Kept)> {
        if self.shelf.is_empty() {
            return None;
        }
        let at = self.random.pick(self.shelf.len());
        let (time, kept) = self.shelf.iter().nth(at).unwrap();
        Some((time.clone(), kept.clone()))
    }

    fn file(&mut self) -> PathBuf {
        let (directory, file) = (self.random.pick(4), self.random.pick(6));
        // One name of three is a secret.
        let kind = if file % 3 == 0 { "secret" } else { "file" };
        let directory = self.bench.source.join(format!("d{directory}"));
        std::fs::create_dir_all(&directory).unwrap();
        directory.join(format!("{kind}-{file}"))
    }

    /// Of files, links, names and modes.
    fn change(&mut self) {
        self.number += 1;
        let (path, number) = (self.file(), self.number);
        let is_there = path.symlink_metadata().is_ok();
        match self.random.pick(10) {
            0..=3 => {
                let sizes = [0, 40, 3_000, 70_000, 1_500_000];
                let bytes = noise(number, sizes[self.random.pick(sizes.len())]);
                let _there_may_be_none = std::fs::remove_file(&path);
                std::fs::write(&path, bytes).unwrap();
            }
            4 if is_there && path.is_file() => {
                let mut bytes = std::fs::read(&path).unwrap();
                bytes.extend_from_slice(&noise(number, 100));
                std::fs::write(&path, bytes).unwrap();
            }
            5 if is_there => std::fs::remove_file(&path).unwrap(),
            6 if is_there => {
                let to = self.bench.source.join("d0").join(format!("moved-{number}"));
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::rename(&path, to).unwrap();
            }
            7 if path.is_file() => {
                let mode = [0o600, 0o644, 0o755][self.random.pick(3)];
                let permissions = std::fs::Permissions::from_mode(mode);
                std::fs::set_permissions(&path, permissions).unwrap();
            }
            8 if path.is_file() && !path.to_string_lossy().contains("secret") => {
                let link = self.bench.source.join(format!("name-{number}"));
                std::fs::hard_link(&path, link).unwrap();
            }
            _ => {
                let link = self.bench.source.join(format!("link-{number}"));
                symlink("somewhere", link).unwrap();
            }
        }
        self.story.push(format!("change {number}"));
    }

    fn back_up(&mut self) {
        let options: [&[&str]; 6] = [
            &[],
            &["--force"],
            &["--compression", "off"],
            &["--pack-size", "4M"],
            &["--tag", "some"],
            &["--skip-if-unchanged"],
        ];
        let options = options[self.random.pick(options.len())];
        let words = [&["backup", "source"], options].concat();
        let made = Made::Of(Tree::read(&self.bench.source));
        if self.random.pick(3) == 0 {
            self.killed(&words);
            self.shelve(&made);
            return;
        }
        self.ok(&words);
        let new = self.shelve(&made);
        let may_skip = options.contains(&"--skip-if-unchanged");
        self.must(new == 1 || (new == 0 && may_skip), "one snapshot");
    }

    fn back_up_a_stream(&mut self) {
        self.number += 1;
        let bytes = [noise(1, 900_000), noise(self.number, 200_000)].concat();
        self.bench.write("dump", &bytes);
        let made = Made::OfStream(bytes);
        let from = ["backup", "--stdin-from-command", "--", "sh", "-c"];
        match self.random.pick(3) {
            0 => {
                let ran = self.run(&[&from[..], &["cat dump; exit 3"]].concat());
                self.must(ran.code == 1, &ran.to_string());
                self.shelve_nothing_new("a command that fails makes none");
            }
            1 => {
                self.killed(&[&from[..], &["cat dump"]].concat());
                self.shelve(&made);
            }
            _ => {
                self.ok(&[&from[..], &["cat dump"]].concat());
                let new = self.shelve(&made);
                self.must(new == 1, &format!("one snapshot, not {new}"));
            }
        }
    }

    fn tag_or_pin(&mut self) {
        let Some((time, kept)) = self.any() else {
            return;
        };
        let (words, pinned): (&[&str], bool) = match self.random.pick(3) {
            0 => (&["tag", "--add", "other"], kept.pinned),
            1 => (&["pin"], true),
            _ => (&["unpin"], false),
        };
        self.ok(&[words, &[&kept.id]].concat());
        self.shelf.get_mut(&time).unwrap().pinned = pinned;
        self.shelve_nothing_new("tags make no snapshot");
    }

    fn shelve_nothing_new(&mut self, why: &str) {
        let new = self.shelve(&Made::OfStream(Vec::new()));
        self.must(new == 0, why);
    }

    /// By a rule, or one of them; the rule is believed no further than this.
    fn forget(&mut self) {
        if self.random.pick(2) == 0 {
            let Some((time, kept)) = self.any() else {
                return;
            };
            let ran = self.run(&["forget", &kept.id]);
            if kept.pinned {
                self.must(ran.code != 0, "what is pinned stays");
            } else {
                self.must(ran.code == 0, &ran.to_string());
                self.shelf.remove(&time);
            }
            return self.shelve_nothing_new("forgetting makes none");
        }
        let keep = 1 + self.random.pick(5);
        let prune: &[&str] = match self.random.pick(2) {
            0 => &["--prune", "--grace", "0"],
            _ => &[],
        };
        let text = keep.to_string();
        self.ok(&[&["forget", "--keep-last", &text], prune].concat());
        for is_stream in [false, true] {
            let of_kind =
                |(_, kept): &(&String, &Kept)| matches!(kept.made, Made::OfStream(_)) == is_stream;
            let newest: Vec<String> = self
                .shelf
                .iter()
                .filter(of_kind)
                .rev()
                .take(keep)
                .map(|(time, _)| time.clone())
                .collect();
            let goes = |time: &String, kept: &Kept| {
                matches!(kept.made, Made::OfStream(_)) == is_stream
                    && !kept.pinned
                    && !newest.contains(time)
            };
            self.shelf.retain(|time, kept| !goes(time, kept));
        }
        self.shelve_nothing_new("a rule makes none");
    }

    fn rewrite(&mut self) {
        let Some((time, kept)) = self.any() else {
            return;
        };
        self.ok(&["rewrite", "--exclude", "secret-*", "--forget", &kept.id]);
        if let Made::Of(tree) = &mut self.shelf.get_mut(&time).unwrap().made {
            let is_secret = |path: &Vec<u8>| String::from_utf8_lossy(path).contains("secret-");
            tree.0.retain(|path, _| !is_secret(path));
        }
        self.shelve_nothing_new("a rewritten snapshot has the time of the old one");
    }

    fn prune(&mut self) {
        let grace = ["0", "1d"][self.random.pick(2)];
        let below = ["70", "100"][self.random.pick(2)];
        let words = ["prune", "--grace", grace, "--repack-below", below];
        match self.random.pick(2) {
            0 => self.killed(&words),
            _ => drop(self.ok(&words)),
        }
        self.shelve_nothing_new("a prune makes none");
    }

    fn change_the_password(&mut self) {
        self.passwords += 1;
        let new = format!("password {}", self.passwords);
        self.bench.write("new-pw", &new);
        self.ok(&["key", "passwd", "--new-password-file", "new-pw"]);
        self.bench.write("pw", &new);
    }

    fn lose_the_cache(&mut self) {
        self.story.push("the cache is lost".to_owned());
        self.bench.sh("rm -rf home/.cache");
    }

    /// To a second repository and a mirror, and what is there.
    fn double(&mut self) {
        let ran = self.run(&["mirror", "--to", "mirror", "--delete"]);
        // Of a source whose newest was forgotten.
        let is_held_back = ran.code == 3 && ran.err.contains("nothing as new as they are");
        self.must(ran.code == 0 || is_held_back, &ran.to_string());
        let kept = self.any();
        let mirrored = ["-r", "mirror", "-p", "pw"];
        if let Some((_, kept)) = kept {
            self.comes_back(&kept, &mirrored);
        }
        let checked = self
            .bench
            .run(&[&["check", "--read-data"], &mirrored[..]].concat());
        self.must(checked.code == 0, &checked.to_string());
    }

    fn act(&mut self) {
        match self.random.pick(20) {
            0..=4 => (0..4).for_each(|_| self.change()),
            5..=8 => self.back_up(),
            9 => self.back_up_a_stream(),
            10..=11 => self.tag_or_pin(),
            12..=13 => self.forget(),
            14 => self.rewrite(),
            15..=16 => self.prune(),
            17 => self.change_the_password(),
            18 => self.lose_the_cache(),
            _ => self.double(),
        }
    }

    fn comes_back(&mut self, kept: &Kept, from: &[&str]) {
        let id = &kept.id;
        match &kept.made {
            Made::OfStream(bytes) => {
                let mut command = self.bench.command();
                command.args(["dump", &format!("{id}:/stdin")]).args(from);
                let dumped = command.output().unwrap();
                self.must(&dumped.stdout == bytes, &format!("the stream of {id}"));
            }
            Made::Of(tree) => {
                self.bench.sh("rm -rf out");
                let address = self.bench.address_in(id, "");
                let words = ["restore", &address, "--target", "out", "--verify"];
                let ran = self.bench.run(&[&words[..], from].concat());
                self.must(ran.code == 0, &ran.to_string());
                let mut back = Tree::read(&self.bench.path("out"));
                let mut tree = tree.clone();
                // Of the target itself.
                back.0.remove(&b""[..]);
                tree.0.remove(&b""[..]);
                let differences = tree.differences(&back);
                let shown = format!("{id}: {differences:?}");
                self.must(differences.is_empty(), &shown);
            }
        }
    }

    fn evening(&mut self) {
        let ran = self.ok(&["check", "--read-data"]);
        self.must(ran.code == 0, &ran.to_string());
        for kept in self.shelf.clone().into_values() {
            self.comes_back(&kept, &["-r", "repository", "-p", "pw"]);
        }
    }
}

fn live(seed: u64) {
    let mut week = Week::begin(seed);
    for _ in 0..DAYS {
        (0..ACTS_A_DAY).for_each(|_| week.act());
        week.evening();
    }
}

#[test]
fn what_was_acknowledged_comes_back_after_a_week_of_everything_together() {
    live(1);
}

#[test]
#[ignore = "half an hour"]
fn what_was_acknowledged_comes_back_after_weeks_of_everything_together() {
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().expect("a number"));
    let first = number("BALE_WEEK_SEED").unwrap_or(100);
    let weeks = number("BALE_WEEKS").unwrap_or(WEEKS_OF_LONG_TEST);
    (first..first + weeks).for_each(live);
}
