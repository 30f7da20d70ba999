//! What a comparison found: runs as they were, cells made of them, and the circumstances.

use super::adapters::ToolKind;
use super::block_stat::BlockStat;
use super::options::Case;
use super::statistics::Spread;

/// All that there is to say.
#[derive(Clone, Debug)]
pub struct Report {
    /// When it began.
    pub started: String,
    /// The words that started it.
    pub command_line: String,
    /// Regular files of the tree as it was made.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Runs of each cell that were asked for.
    pub runs_wanted: u32,
    /// Seconds that everything took, preparations included.
    pub seconds: f64,
    /// Kinds of work that were measured.
    pub cases: Vec<Case>,
    /// Tools that were run.
    pub tools: Vec<Tool>,
    /// Tools that were not.
    pub absent: Vec<Absent>,
    /// Every run.
    pub runs: Vec<Run>,
    /// Machine, kernel, file systems: headings, names and values.
    pub circumstances: Vec<Circumstance>,
    /// What could not be measured or makes the numbers doubtful.
    pub caveats: Vec<String>,
    /// Ended early by the user.
    pub is_interrupted: bool,
    /// What ended it early besides: something that the comparison itself needs went wrong.
    pub broken_by: Option<String>,
}

/// A tool that was run.
#[derive(Clone, Debug)]
pub struct Tool {
    pub name: &'static str,
    /// Ours, a peer, or a reference.
    pub kind: ToolKind,
    /// What it says about itself.
    pub version: String,
    /// Something to know about its row.
    pub note: &'static str,
    /// What was run: a word and the script.
    pub commands: Vec<(&'static str, String)>,
}

/// A tool that was not run.
#[derive(Clone, Debug)]
pub struct Absent {
    pub name: &'static str,
    pub why: String,
    /// Where it comes from, if it is not installed.
    pub get: &'static str,
}

/// One fact about machine, kernel or file systems.
#[derive(Clone, Debug)]
pub struct Circumstance {
    /// What it is about.
    pub topic: &'static str,
    pub name: String,
    pub value: String,
}

/// One run of one tool.
#[derive(Clone, Debug)]
pub struct Run {
    /// From 1.
    pub round: u32,
    /// The work.
    pub case: Case,
    pub tool: &'static str,
    /// Empty if all went well: else why there is nothing to count.
    pub trouble: Option<Trouble>,
    /// What was measured, also of runs that failed.
    pub measured: Option<Measured>,
}

/// Why a run does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It went wrong; the first line of its errors, or what was wrong with its result.
    Failed(String),
    /// It was not begun, or ended by us.
    NotRun(String),
}

impl Trouble {
    /// The words of a cell.
    pub fn words(&self) -> (&'static str, &str) {
        match self {
            Trouble::Failed(why) => ("failed", why),
            Trouble::NotRun(why) => ("not run", why),
        }
    }
}

/// What a run took.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Seconds by the clock.
    pub wall_seconds: f64,
    /// CPU seconds of the tool itself.
    pub user_seconds: f64,
    /// CPU seconds in the kernel for the tool.
    pub system_seconds: f64,
    /// Largest resident size of its largest process, bytes; not known of what ended within
    /// milliseconds.
    pub peak_memory_bytes: Option<u64>,
    /// What the device of the tree (restores: of the target) did; not known without root.
    pub device: Option<BlockStat>,
    /// Space of the repository afterwards; after backups.
    pub repository_bytes: Option<u64>,
    /// CPU seconds of everything else meanwhile, kernel threads included.
    pub other_cpu_seconds: Option<f64>,
}

/// What the report says about one tool at one kind of work.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Of the runs that went well.
    pub seconds: Option<Spread>,
    /// Over the fastest peer's median.
    pub ratio: Option<f64>,
    pub cpu_seconds: Option<Spread>,
    pub peak_memory_bytes: Option<Spread>,
    /// Read operations of the device.
    pub reads: Option<Spread>,
    /// Bytes read from the device.
    pub read_bytes: Option<Spread>,
    /// Write operations of the device.
    pub writes: Option<Spread>,
    /// Bytes written to the device.
    pub written_bytes: Option<Spread>,
    /// Why there is nothing, if there is nothing.
    pub trouble: Option<Trouble>,
    /// Runs that went well.
    pub runs: usize,
}

impl Report {
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Runs of one tool at one kind of work that went well.
    pub fn good(&self, case: Case, tool: &str) -> impl Iterator<Item = &Measured> {
        self.runs
            .iter()
            .filter(move |run| run.case == case && run.tool == tool && run.trouble.is_none())
            .filter_map(|run| run.measured.as_ref())
    }

    /// Medians of one tool at one kind of work; `None` if it does no such work.
    pub fn cell(&self, case: Case, tool: &str) -> Option<Cell> {
        let mut of_tool = self
            .runs
            .iter()
            .filter(|run| run.case == case && run.tool == tool)
            .peekable();
        of_tool.peek()?;
        let spread = |value: &dyn Fn(&Measured) -> Option<f64>| {
            Spread::of(self.good(case, tool).filter_map(value))
        };
        let device = |value: fn(&BlockStat) -> u64| {
            spread(&|run| run.device.as_ref().map(|stat| value(stat) as f64))
        };
        let seconds = self.seconds(case, tool);
        let fastest = self.fastest_peer(case);
        Some(Cell {
            seconds,
            ratio: seconds
                .zip(fastest)
                .map(|(own, (_, fastest))| own.median / fastest),
            cpu_seconds: spread(&|run| Some(run.user_seconds + run.system_seconds)),
            peak_memory_bytes: spread(&|run| run.peak_memory_bytes.map(|bytes| bytes as f64)),
            reads: device(|stat| stat.reads),
            read_bytes: device(|stat| stat.read_bytes),
            writes: device(|stat| stat.writes),
            written_bytes: device(|stat| stat.written_bytes),
            trouble: seconds
                .is_none()
                .then(|| of_tool.find_map(|run| run.trouble.clone()))
                .flatten(),
            runs: self.good(case, tool).count(),
        })
    }

    fn seconds(&self, case: Case, tool: &str) -> Option<Spread> {
        Spread::of(self.good(case, tool).map(|run| run.wall_seconds))
    }

    /// The peer with the least median, and that.
    pub fn fastest_peer(&self, case: Case) -> Option<(&'static str, f64)> {
        self.tools
            .iter()
            .filter(|tool| tool.kind == ToolKind::Peer)
            .filter_map(|tool| Some((tool.name, self.seconds(case, tool.name)?.median)))
            .filter(|(_, seconds)| *seconds > 0.0)
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Space of a tool's repository after one kind of backup.
    pub fn repository_bytes(&self, after: Case, tool: &str) -> Option<Spread> {
        Spread::of(
            self.good(after, tool)
                .filter_map(|run| run.repository_bytes)
                .map(|bytes| bytes as f64),
        )
    }

    /// What the change added to a tool's repository, round by round.
    pub fn growth_bytes(&self, tool: &str) -> Option<Spread> {
        let size = |round: u32, case: Case| {
            let mut runs = self
                .runs
                .iter()
                .filter(|run| run.round == round && run.case == case && run.tool == tool);
            let run = runs.find(|run| run.trouble.is_none())?;
            Some(run.measured.as_ref()?.repository_bytes? as f64)
        };
        let rounds = self.runs.iter().map(|run| run.round).max().unwrap_or(0);
        Spread::of((1..=rounds).filter_map(|round| {
            let before = size(round, Case::Unchanged).or_else(|| size(round, Case::First))?;
            Some(size(round, Case::Changed)? - before)
        }))
    }

    /// Most memory that a tool took at any work.
    pub fn peak_memory_bytes(&self, tool: &str) -> Option<f64> {
        let peaks = self
            .cases
            .iter()
            .filter_map(|case| self.cell(*case, tool)?.peak_memory_bytes);
        peaks.map(|spread| spread.median).max_by(f64::total_cmp)
    }

    /// Runs that failed, not those that were never begun.
    pub fn failures(&self) -> usize {
        let failed = |run: &&Run| matches!(run.trouble, Some(Trouble::Failed(_)));
        self.runs.iter().filter(failed).count()
    }
}
