//! A directory, and the ways to start `bale-compare` in it, for one test.

pub use bale_testkit::{Ran, have, is_root, skipped};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Bench {
    directory: tempfile::TempDir,
    pub home: PathBuf,
}

impl Bench {
    pub fn new() -> Bench {
        let directory = tempfile::Builder::new().prefix("bale-compare-").tempdir();
        let directory = directory.unwrap();
        let home = directory.path().join("home");
        std::fs::create_dir(&home).unwrap();
        Bench { directory, home }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn command(&self) -> Command {
        self.prepared(Command::new(program()))
    }

    /// Another program in the same environment.
    pub fn prepared(&self, mut command: Command) -> Command {
        command
            .env("HOME", &self.home)
            .stdin(Stdio::null())
            .current_dir(self.directory.path());
        command
    }

    pub fn run(&self, words: &[&str]) -> Ran {
        Ran::from(self.command().args(words).output().unwrap())
    }

    /// The same, and it must end well.
    pub fn ok(&self, words: &[&str]) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    }
}

pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_bale-compare"))
}

/// The `bale` of the same build: a test of the workspace makes both.
pub fn bale() -> PathBuf {
    let bale = program().with_file_name("bale");
    assert!(bale.is_file(), "first: cargo build -p bale-cli");
    bale
}
