//! A home directory, a source directory and the binary, for one test.

pub use bale_testkit::{Ran, have, is_root, skipped};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the directories of one test are called, and the way to start `bale` in it.
pub struct Bench {
    directory: tempfile::TempDir,
    pub home: PathBuf,
    pub source: PathBuf,
}

impl Bench {
    pub fn new() -> Bench {
        let directory = tempfile::Builder::new().prefix("bale-cli-").tempdir();
        let directory = directory.unwrap();
        let (home, source) = (
            directory.path().join("home"),
            directory.path().join("source"),
        );
        std::fs::create_dir(&home).unwrap();
        std::fs::create_dir(&source).unwrap();
        Bench {
            directory,
            home,
            source,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The binary, with nothing of the environment that could point to another repository.
    pub fn command(&self) -> Command {
        self.prepared(Command::new(binary()))
    }

    /// Another program in the same environment.
    pub fn prepared(&self, mut command: Command) -> Command {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("BALE_") {
                command.env_remove(name);
            }
        }
        command
            .env_remove("XDG_DATA_HOME")
            .env_remove("XDG_CACHE_HOME")
            .env("HOME", &self.home)
            // Nobody sees a terminal here, and most tests begin with a first backup.
            .env("BALE_INIT", "1")
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .current_dir(self.directory.path());
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Ran {
        Ran::from(self.command().args(words).output().unwrap())
    }

    /// The same, and it must end well.
    pub fn ok<S: AsRef<OsStr> + std::fmt::Debug>(&self, words: &[S]) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    }

    /// Backs up the source into the repository of this home; the summary.
    pub fn backup(&self) -> Value {
        self.ok(&["backup", "source", "--json"]).summary()
    }

    /// `latest:/…/source`, and below it.
    pub fn address(&self, below: &str) -> String {
        self.address_in("latest", below)
    }

    pub fn address_in(&self, snapshot: &str, below: &str) -> String {
        format!("{snapshot}:{}{below}", self.source.display())
    }

    pub fn repository(&self) -> PathBuf {
        self.home.join(".local/share/bale/repository")
    }

    fn has_packs(&self) -> bool {
        let has_entry = |directory: PathBuf| {
            std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
        };
        let directories = std::fs::read_dir(self.repository().join("packs"));
        let mut directories = directories.into_iter().flatten().flatten();
        directories.any(|directory| has_entry(directory.path()))
    }

    pub fn sh(&self, script: &str) {
        let ran = self.prepared(Command::new("bash"));
        let mut command = ran;
        let output = command
            .args(["-euc", script])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {err}");
    }

    /// As `sh`; whatever it left mounted in this place is unmounted at the end. In the open and not
    /// in a mount namespace of its own: that would begin with a copy of what other tests have
    /// mounted, and hold it when they unmount.
    pub fn mounting_sh(&self, script: &str) {
        let unmount =
            "findmnt -rno TARGET | grep -F \"$place/\" | sort -r | xargs -r -d \"\\n\" umount -l";
        self.sh(&format!("place=$PWD; trap '{unmount}' EXIT\n{script}"));
    }
}

/// Backups that end before their interrupt comes are made again, so often.
const TRIES_MAX: u32 = 10;

/// A first backup of what `fill` makes of the source, interrupted in order once it has stored
/// something; and the record that it left. There must be so much to store that a backup lasts
/// longer than a look at the repository.
pub fn interrupted_backup(fill: impl Fn(&Bench)) -> (Bench, Value) {
    for _ in 0..TRIES_MAX {
        let bench = Bench::new();
        fill(&bench);
        bench.ok(&["init"]);
        let mut command = bench.command();
        let command = command.args(["backup", "source", "--json"]);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        while !bench.has_packs() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        bench.sh(&format!("kill -INT {} || true", child.id()));
        let ran = Ran::from(child.wait_with_output().unwrap());
        if ran.code == 0 {
            continue;
        }
        assert_eq!(ran.code, 130, "{ran}");
        let mut listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
        assert_eq!(listed.len(), 1, "what was finished is stored: {listed:?}");
        let record = listed.remove(0);
        assert_eq!(record["partial"], true);
        assert!(record["files"].as_u64() > Some(0), "{record}");
        return (bench, record);
    }
    panic!("every backup was over before it could be interrupted");
}

pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_bale"))
}
