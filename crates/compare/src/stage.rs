//! One round: every kind of work, by every tool in turn, with cold caches.

mod place;
mod verdict;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::adapters::{Adapter, ToolKind};
use super::block_stat::BlockStat;
use super::child::{Ended, Work};
use super::circumstances;
use super::error::{CompareError, Result, at_path};
use super::lineup::Lineup;
use super::monitor::CompareMonitor;
use super::options::{Case, CompareOptions};
use super::order::{Budget, rotated};
use super::programs::Programs;
use super::report::{Circumstance, Measured, Run, Trouble};
use super::source::{Counted, Source, count_files};
use super::volume::Volume;
use super::workspace::Workspace;

/// Everything that rounds need. The order of the volumes and the workspace is the order of cleaning
/// up.
pub(super) struct Stage<'a> {
    pub options: CompareOptions,
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
        Ok(())
    }

    /// Forgets all runs, for a smaller tree.
    pub fn begin_again(&mut self, files: u64) {
        self.options.files = files;
        self.runs.clear();
        self.circumstances.clear();
        self.begun = 0;
        self.budget.begin_again();
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
        self.target = None;
        for place in ["repositories", "caches"] {
            self.workspace.remove(&self.workspace.path(place))?;
        }
        let source = Source::make(
            &self.options,
            &self.workspace,
            self.has_device,
            self.monitor,
        )?;
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
        let until = self.budget.deadline();
        let ended = self.run_script(round, adapter, (&script, until), &destination)?;
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
        let began = Instant::now();
        let place = self.prepare(case, adapter, script)?;
        let title = format!("round {}: {}, {}", round.number, case.title(), adapter.name);
        self.monitor.begins(&title, self.begun, self.runs_planned());
        if case.is_backup() {
            *round.backups.entry(owner).or_insert(0) += 1;
        }
        let before = place.counted.as_deref().and_then(BlockStat::of_device);
        let work = (place.script.as_str(), self.limit(case, adapter));
        let ended = self.run_script(round, adapter, work, &place.destination)?;
        self.stop_if_asked()?;
        if let Some(files) = self.fewer_files(case, adapter, &ended) {
            return Err(CompareError::TooMany { files });
        }
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
        let around_seconds = began.elapsed().as_secs_f64() - ended.wall_seconds;
        self.budget
            .note(case, adapter.name, ended.wall_seconds, around_seconds);
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

    /// When a run is ended.
    fn limit(&self, case: Case, adapter: &Adapter) -> Option<Instant> {
        let deadline = self.budget.deadline();
        if !self.is_trial(case, adapter) {
            return deadline;
        }
        let too_slow = self.budget.too_slow(self.options.files, Instant::now());
        [deadline, too_slow].into_iter().flatten().min()
    }

    /// Does this run show whether the tree is too large for the time?
    fn is_trial(&self, case: Case, adapter: &Adapter) -> bool {
        self.options.may_shrink && case == Case::First && adapter.kind != ToolKind::Reference
    }

    fn fewer_files(&self, case: Case, adapter: &Adapter, ended: &Ended) -> Option<u64> {
        let runs = self.runs_planned().saturating_sub(self.begun);
        let (files, seconds) = (self.options.files, ended.wall_seconds);
        let fewer = self
            .budget
            .fitting_files(files, seconds, runs, Instant::now());
        fewer.filter(|_| self.is_trial(case, adapter))
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

    fn run_script(
        &self,
        round: &Round,
        adapter: &'static Adapter,
        (script, until): (&str, Option<Instant>),
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
            until,
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
