//! A home with a repository, a source and a profile file.

use crate::bench::{Bench, Ran};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

pub struct Scene {
    pub bench: Bench,
}

impl Scene {
    /// A repository `repo` with a password file, and a source with one file.
    pub fn new() -> Scene {
        let bench = Bench::new();
        bench.write("pw", "secret\n");
        bench.write("source/file", "content");
        bench.ok(&["init", "-r", "repo", "-p", "pw"]);
        Scene { bench }
    }

    /// The same with a profile `home` and more words of it, or tables behind.
    pub fn with(text: &str) -> Scene {
        let scene = Scene::new();
        scene.profiles(&format!("{}{text}", scene.head()));
        scene
    }

    /// The first lines of a profile `home`.
    pub fn head(&self) -> String {
        let path = |name: &str| self.bench.path(name).display().to_string();
        format!(
            "[profile.home]\nsources = {:?}\nrepository = {:?}\npassword-file = {:?}\n",
            path("source"),
            path("repo"),
            path("pw")
        )
    }

    pub fn profiles(&self, text: &str) -> PathBuf {
        self.bench.write("bale.toml", text)
    }

    /// `bale run` and its likes, with the file and a state directory of the scene.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.bench.command();
        command
            .env("BALE_PROFILES", self.bench.path("bale.toml"))
            .env("BALE_STATE_DIR", self.bench.path("state"))
            .env_remove("BALE_INIT")
            .args(words);
        command
    }

    pub fn run(&self, words: &[&str]) -> Ran {
        Ran::from(self.command(words).output().unwrap())
    }

    pub fn ok(&self, words: &[&str]) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    }

    /// Snapshots of the repository.
    pub fn snapshots(&self) -> Vec<Value> {
        let words = ["snapshots", "-r", "repo", "-p", "pw", "--json"];
        self.bench.ok(&words).of_type("snapshot")
    }

    pub fn record(&self) -> Value {
        let path = self.bench.path("state/runs/home.json");
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    /// Rewrites the record: as if everything in it had happened so many hours before.
    pub fn age(&self, hours: i64) {
        let path = self.bench.path("state/runs/home.json");
        let mut record = self.record();
        for step in record["steps"].as_object_mut().unwrap().values_mut() {
            for attempt in ["last", "last_success"] {
                if step[attempt].is_null() {
                    continue;
                }
                for moment in ["started", "finished"] {
                    let text = step[attempt][moment].as_str().unwrap();
                    let shifted = self.shifted(text, hours);
                    step[attempt][moment] = shifted.into();
                }
            }
        }
        let first = self.shifted(record["first_run"].as_str().unwrap(), hours);
        record["first_run"] = first.into();
        std::fs::write(path, record.to_string()).unwrap();
    }

    fn shifted(&self, moment: &str, hours: i64) -> String {
        let words = [
            "-u",
            "-d",
            &format!("{moment} {:+} hours", -hours),
            "+%Y-%m-%dT%H:%M:%SZ",
        ];
        let output = Command::new("date").args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// What steps came to: `backup 0`, in the order of the run.
    pub fn steps(ran: &Ran) -> Vec<String> {
        let text = |step: &Value| {
            let what = match step["skipped"].is_null() {
                true => step["exit_code"].to_string(),
                false => "skipped".to_owned(),
            };
            format!("{} {what}", step["step"].as_str().unwrap())
        };
        ran.of_type("step").iter().map(text).collect()
    }
}
