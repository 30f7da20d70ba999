//! One round: every kind of work, by every tool in turn, with cold caches.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::adapters::Adapter;
use super::block_stat::BlockStat;
use super::child::{Ended, Work};
use super::circumstances;
use super::error::{CompareError, Result, at_path};
use super::figures;
use super::lineup::Lineup;
use super::monitor::CompareMonitor;
use super::options::{Case, CompareOptions};
use super::order::{Budget, rotated};
use super::programs::Programs;
use super::report::{Circumstance, Measured, Run, Trouble};
use super::source::{Counted, Source, count_files, make_ext4};
use super::volume::{Volume, drop_caches, make_sparse, sync};
use super::workspace::Workspace;

/// Restores go into a file system that is this much larger than the tree's.
const TARGET_PERCENT: u64 = 150;
const TARGET_EXTRA_BYTES: u64 = 256 << 20;

/// Everything that rounds need. The order of the volumes and the workspace is the order of cleaning up.
pub(super) struct Stage<'a> {
    pub options: &'a CompareOptions,
    pub monitor: &'a dyn CompareMonitor,
    pub lineup: &'a Lineup,
    pub has_device: bool,
    pub source: Option<Source>,
    pub target: Option<Volume>,
    pub workspace: Workspace,
    pub budget: Budget,
    pub runs: Vec<Run>,
    pub circumstances: Vec<Circumstance>,
    pub counted_first: Counted,
    pub begun: u64,
}

/// What a round knows.
struct Round {
    number: u32,
    /// Backups in a tool's repository.
    backups: HashMap<&'static str, u32>,
    /// Why there is no backup to build on.
    broken: HashMap<&'static str, String>,
    /// As it was first, and as it is now.
    tree_first: Counted,
    tree: Counted,
    /// The file that is restored alone, and its content.
    one: (PathBuf, Vec<u8>),
}

/// Where a run works.
struct Place {
    destination: PathBuf,
    /// Device whose operations are counted.
    counted: Option<PathBuf>,
    script: String,
}

impl Stage<'_> {
    /// Runs everything once.
    pub fn run_round(&mut self, number: u32) -> Result<()> {
        let mut round = self.begin_round(number)?;
        for case in Case::ALL {
            if !self.options.does(case) {
                continue;
            }
            if case == Case::Changed {
                self.change(&mut round)?;
            }
            for at in rotated(self.lineup.adapters.len(), number, case) {
                let adapter = self.lineup.adapters[at];
                if let Some(script) = adapter.script(case) {
                    self.run_one(&mut round, case, adapter, script)?;
                }
            }
        }
        self.target = None;
        self.workspace
            .remove(&self.workspace.path("repositories"))?;
        self.workspace.remove(&self.workspace.path("caches"))
    }

    /// Runs that a whole comparison makes.
    pub fn runs_planned(&self) -> u64 {
        let cases = Case::ALL
            .into_iter()
            .filter(|case| self.options.does(*case));
        let each = |case: Case| {
            self.lineup
                .adapters
                .iter()
                .filter(|adapter| adapter.script(case).is_some())
                .count()
        };
        cases.map(|case| each(case) as u64).sum::<u64>() * u64::from(self.options.runs)
    }

    fn begin_round(&mut self, number: u32) -> Result<Round> {
        self.monitor.say(&format!(
            "round {number} of {}: making the tree",
            self.options.runs
        ));
        self.source = None;
        let source = Source::make(self.options, &self.workspace, self.has_device, self.monitor)?;
        let one = source.middle_file()?;
        let tree = count_files(&source.root)?;
        if number == 1 {
            self.counted_first = tree;
            let facts = circumstances::of_source(self.workspace.programs(), &source);
            self.circumstances.extend(facts);
        }
        self.source = Some(source);
        let mut round = Round {
            number,
            backups: HashMap::new(),
            broken: HashMap::new(),
            tree_first: tree,
            tree,
            one,
        };
        if self.options.does(Case::First) {
            for adapter in &self.lineup.adapters {
                self.initialise(&mut round, adapter)?;
            }
        }
        Ok(round)
    }

    fn initialise(&mut self, round: &mut Round, adapter: &'static Adapter) -> Result<()> {
        self.stop_if_asked()?;
        for place in ["repositories", "caches"] {
            let path = self.workspace.path(place).join(adapter.owner());
            fs::create_dir_all(&path).map_err(at_path("create", &path))?;
        }
        if adapter.init.is_empty() {
            return Ok(());
        }
        let script = script_of(adapter, adapter.init);
        let destination = self.workspace.path("unused");
        let ended = self.run_script(round, adapter, &script, &destination)?;
        if let Some(why) = ended.failure {
            round.broken.insert(
                adapter.name,
                format!("its repository could not be made: {why}"),
            );
        }
        Ok(())
    }

    fn change(&mut self, round: &mut Round) -> Result<()> {
        self.stop_if_asked()?;
        if let Some(source) = &self.source {
            source.change(self.options.seed)?;
            round.tree = count_files(&source.root)?;
            let path = source.root.join(&round.one.0);
            round.one.1 = fs::read(&path).map_err(at_path("read", &path))?;
        }
        Ok(())
    }

    fn run_one(
        &mut self,
        round: &mut Round,
        case: Case,
        adapter: &'static Adapter,
        script: &str,
    ) -> Result<()> {
        self.stop_if_asked()?;
        self.begun += 1;
        let owner = adapter.owner();
        if let Some(trouble) = self.refusal(round, case, adapter) {
            self.record(round, case, adapter, Some(trouble), None);
            return Ok(());
        }
        let place = self.prepare(case, adapter, script)?;
        let title = format!("round {}: {}, {}", round.number, case.title(), adapter.name);
        self.monitor.begins(&title, self.begun, self.runs_planned());
        if case.is_backup() {
            *round.backups.entry(owner).or_insert(0) += 1;
        }
        let before = place.counted.as_deref().and_then(BlockStat::of_device);
        let ended = self.run_script(round, adapter, &place.script, &place.destination)?;
        let after = place.counted.as_deref().and_then(BlockStat::of_device);
        let device = before.zip(after).map(|(before, after)| after.since(before));
        let trouble = self.trouble_of(round, case, adapter, &ended, &place)?;
        if trouble.is_some() && case.is_backup() {
            *round.backups.entry(owner).or_insert(1) -= 1;
            if case == Case::First {
                round
                    .broken
                    .insert(owner, "its first backup failed".to_owned());
            }
        }
        self.budget.note(case, adapter.name, ended.wall_seconds);
        let repository_bytes = if case.is_backup() {
            self.repository_bytes(owner)
        } else {
            None
        };
        let measured = Measured {
            wall_seconds: ended.wall_seconds,
            user_seconds: ended.user_seconds,
            system_seconds: ended.system_seconds,
            peak_memory_bytes: ended.peak_memory_bytes,
            device,
            repository_bytes,
            other_cpu_seconds: ended.other_cpu_seconds,
        };
        self.record(round, case, adapter, trouble, Some(measured));
        Ok(())
    }

    /// Why a run is not begun.
    fn refusal(&self, round: &mut Round, case: Case, adapter: &Adapter) -> Option<Trouble> {
        let owner = adapter.owner();
        if let Some(why) = round.broken.get(owner).filter(|_| case != Case::Scan) {
            let is_news = case == Case::First;
            return Some(if is_news {
                Trouble::Failed(why.clone())
            } else {
                Trouble::NotRun(why.clone())
            });
        }
        if self.budget.allows(case, adapter.name, Instant::now()) {
            return None;
        }
        if case == Case::First {
            round
                .broken
                .insert(owner, "its first backup was not run".to_owned());
        }
        Some(Trouble::NotRun("no time left for it".to_owned()))
    }

    /// Cold caches, and the file systems as this work needs them.
    fn prepare(&mut self, case: Case, adapter: &Adapter, script: &str) -> Result<Place> {
        let mut script = script_of(adapter, script);
        if case == Case::Restore {
            return self.prepare_restore(adapter, script);
        }
        let destination = self.workspace.fresh_directory("one")?;
        let Some(volume) = self
            .source
            .as_ref()
            .and_then(|source| source.volume.as_ref())
        else {
            sync();
            return Ok(Place {
                destination,
                counted: None,
                script,
            });
        };
        volume.unmount()?;
        drop_caches()?;
        if case == Case::OneFile {
            script.push_str("\nsync -f \"$DST\"");
            return Ok(Place {
                destination,
                counted: None,
                script,
            });
        }
        if !adapter.reads_device(case) {
            volume.mount()?;
            drop_caches()?;
        }
        Ok(Place {
            destination,
            counted: Some(volume.device.clone()),
            script,
        })
    }

    /// A fresh file system; the time to write everything out is part of the run.
    fn prepare_restore(&mut self, adapter: &Adapter, mut script: String) -> Result<Place> {
        let source = self
            .source
            .as_ref()
            .and_then(|source| source.volume.as_ref());
        let Some(source) = source else {
            script.push_str("\nsync -f \"$DST\"");
            let destination = self.workspace.fresh_directory("target")?;
            sync();
            return Ok(Place {
                destination,
                counted: None,
                script,
            });
        };
        source.unmount()?;
        let source_bytes = fs::metadata(&source.image)
            .map_err(at_path("stat", &source.image))?
            .len();
        self.target = None;
        let image = self.workspace.path("target.img");
        let _ = fs::remove_file(&image);
        make_sparse(
            &image,
            source_bytes / 100 * TARGET_PERCENT + TARGET_EXTRA_BYTES,
        )?;
        if !adapter.writes_device() {
            make_ext4(&self.workspace, &image, self.options.files)?;
        }
        let point = self.workspace.path("target");
        let volume = Volume::attach(
            self.workspace.programs(),
            image,
            point,
            "noatime,noinit_itable",
        )?;
        let (device, mut destination) = (volume.device.clone(), volume.point.clone());
        if adapter.writes_device() {
            script.push_str("\nsync \"$DST_DEV\"");
        } else {
            script.push_str("\nsync -f \"$DST\"");
            volume.mount()?;
            circumstances::add_target(&mut self.circumstances, &volume);
            destination.push("out");
            fs::create_dir(&destination).map_err(at_path("create", &destination))?;
        }
        self.target = Some(volume);
        drop_caches()?;
        Ok(Place {
            destination,
            counted: Some(device),
            script,
        })
    }

    fn run_script(
        &self,
        round: &Round,
        adapter: &'static Adapter,
        script: &str,
        destination: &Path,
    ) -> Result<Ended> {
        let environment = self.environment(round, adapter, destination);
        let logs = self.workspace.path("logs");
        fs::create_dir_all(&logs).map_err(at_path("create", &logs))?;
        let work = Work {
            script,
            environment: &environment,
            directory: &logs,
            log: logs.join(adapter.name),
            until: self.budget.deadline(),
        };
        let mut started = |process| {
            // Without the note the next comparison would only not find the child.
            let _ = self.workspace.note_child(process);
        };
        work.run(&mut started, &|| self.monitor.interrupted())
    }

    /// All that a tool sees; its home and caches are below the work directory.
    fn environment(
        &self,
        round: &Round,
        adapter: &'static Adapter,
        destination: &Path,
    ) -> Vec<(&'static str, OsString)> {
        let owner = adapter.owner();
        let cache = self.workspace.path("caches").join(owner);
        let source = self.source.as_ref();
        let device = source
            .and_then(|source| source.volume.as_ref())
            .map(|volume| volume.device.clone());
        let target = self.target.as_ref().map(|volume| volume.device.clone());
        let number = round.backups.get(owner).copied().unwrap_or(0);
        let mut environment: Vec<(&'static str, OsString)> = vec![
            ("PATH", Programs::search_path(self.workspace.programs())),
            ("LC_ALL", "C.UTF-8".into()),
            ("TZ", "UTC".into()),
            ("BALE", self.options.executable.clone().into()),
            (
                "SRC",
                source
                    .map(|source| source.root.clone())
                    .unwrap_or_default()
                    .into(),
            ),
            ("DEV", device.unwrap_or_default().into()),
            (
                "REPO",
                self.workspace.path("repositories").join(owner).into(),
            ),
            ("DST", destination.into()),
            ("DST_DEV", target.unwrap_or_default().into()),
            ("ONE", round.one.0.clone().into()),
            ("NUMBER", number.to_string().into()),
        ];
        for (name, below) in [
            ("CACHE", "own"),
            ("HOME", "home"),
            ("TMPDIR", "tmp"),
            ("XDG_CACHE_HOME", "home/.cache"),
            ("XDG_CONFIG_HOME", "home/.config"),
            ("XDG_DATA_HOME", "home/.local/share"),
            ("XDG_STATE_HOME", "home/.local/state"),
        ] {
            let path = cache.join(below);
            let _ = fs::create_dir_all(&path);
            environment.push((name, path.into()));
        }
        environment
    }

    /// What was wrong, if anything: with the run, or with what it brought back.
    fn trouble_of(
        &self,
        round: &Round,
        case: Case,
        adapter: &Adapter,
        ended: &Ended,
        place: &Place,
    ) -> Result<Option<Trouble>> {
        if ended.is_stopped {
            self.stop_if_asked()?;
            let after = figures::seconds(ended.wall_seconds);
            return Ok(Some(Trouble::NotRun(format!(
                "ended after {after}: no time left"
            ))));
        }
        if let Some(why) = &ended.failure {
            return Ok(Some(Trouble::Failed(why.clone())));
        }
        let wrong = match case {
            Case::Restore => self.wrong_restore(round, adapter, place)?,
            Case::OneFile => wrong_file(&place.destination, &round.one.1)?,
            _ => None,
        };
        Ok(wrong.map(Trouble::Failed))
    }

    fn wrong_restore(
        &self,
        round: &Round,
        adapter: &Adapter,
        place: &Place,
    ) -> Result<Option<String>> {
        if adapter.writes_device()
            && let Some(volume) = &self.target
            && let Err(error) = volume.mount()
        {
            return Ok(Some(format!("what it wrote cannot be mounted: {error}")));
        }
        let expected = if adapter.is_incremental {
            round.tree
        } else {
            round.tree_first
        };
        let found = count_files(&place.destination)?;
        Ok((found != expected).then(|| {
            format!(
                "it ended well but restored {} files of {} bytes instead of {} of {}",
                found.files, found.bytes, expected.files, expected.bytes
            )
        }))
    }

    fn repository_bytes(&self, owner: &str) -> Option<u64> {
        let path = self.workspace.path("repositories").join(owner);
        let words = ["-s".as_ref(), "-B1".as_ref(), path.as_os_str()];
        let shown = self.workspace.programs().run("du", &words).ok()?;
        shown.split_ascii_whitespace().next()?.parse().ok()
    }

    /// Work that is done only because other work builds on it is told of only if it failed.
    fn record(
        &mut self,
        round: &Round,
        case: Case,
        adapter: &'static Adapter,
        trouble: Option<Trouble>,
        measured: Option<Measured>,
    ) {
        let run = Run {
            round: round.number,
            case,
            tool: adapter.name,
            trouble,
            measured,
        };
        self.monitor.ended(&run);
        if self.options.measures(case) {
            self.runs.push(run);
        }
    }

    fn stop_if_asked(&self) -> Result<()> {
        if self.monitor.interrupted() {
            Err(CompareError::Stopped)
        } else {
            Ok(())
        }
    }
}

fn script_of(adapter: &Adapter, script: &str) -> String {
    let setup = adapter.setup;
    let separator = if setup.is_empty() { "" } else { "\n" };
    format!("set -e\n{setup}{separator}{script}")
}

/// The only file below a directory must have this content.
fn wrong_file(directory: &Path, content: &[u8]) -> Result<Option<String>> {
    let mut waiting = vec![directory.to_owned()];
    let mut found = Vec::new();
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(&at).map_err(at_path("read", &at))? {
            let path = entry.map_err(at_path("read", &at))?.path();
            if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
                waiting.push(path);
            } else {
                found.push(path);
            }
        }
    }
    let [path] = found.as_slice() else {
        return Ok(Some(format!(
            "it ended well but restored {} files instead of one",
            found.len()
        )));
    };
    let is_same = fs::read(path).map_err(at_path("read", path))? == content;
    Ok((!is_same).then(|| "it ended well but the file differs".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_restored_file_must_be_alone_and_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let wrong = |content: &[u8]| wrong_file(directory.path(), content).unwrap();
        assert!(wrong(b"x").is_some(), "nothing");
        fs::create_dir(directory.path().join("a")).unwrap();
        fs::write(directory.path().join("a/f"), b"x").unwrap();
        assert_eq!(wrong(b"x"), None);
        assert!(wrong(b"y").is_some(), "other content");
        fs::write(directory.path().join("g"), b"x").unwrap();
        assert!(wrong(b"x").is_some(), "two files");
    }
}
