//! Progress on a terminal, quiet in a pipe, and the place where problems are printed while a
//! command runs.

mod line;

use crate::args::Global;
use crate::{interrupt, output, sizes, variables};
use bale_pipeline::monitor::{Act, Kept, Monitor, Phase, Problem, Progress};
use bale_repository::error::IN_COLD_STORE;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use line::{Shown, phase_name};
use serde_json::json;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Drawings a second, and JSON status lines a second when a terminal watches.
const DRAWINGS_PER_SECOND: u8 = 5;
/// Between two JSON status lines.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// Prints the engine's events.
pub struct Console {
    json: bool,
    quiet: bool,
    verbose: bool,
    /// What is put before paths.
    root: &'static [u8],
    bar: Option<ProgressBar>,
    problems: AtomicU64,
    /// Of those, how many for want of the cold store, and not named one by one.
    in_cold_store: AtomicU64,
    state: Mutex<State>,
    kept: Mutex<Kept>,
}

struct State {
    phase: Option<Phase>,
    phase_began: Instant,
    last_status: Option<Instant>,
    /// Directory that is worked on.
    place: Vec<u8>,
    /// It was told since the last progress: it is of the phase that is told next.
    is_place_new: bool,
}

impl Console {
    /// A console as the global options ask for.
    pub fn new(global: &Global) -> Console {
        let no_progress = global.no_progress || variables::is_on("BALE_NO_PROGRESS");
        let draw = !global.json && !global.quiet && !no_progress && std::io::stderr().is_terminal();
        Console {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose > 0,
            root: b"",
            bar: draw.then(new_bar),
            problems: AtomicU64::new(0),
            in_cold_store: AtomicU64::new(0),
            state: Mutex::new(State {
                phase: None,
                phase_began: Instant::now(),
                last_status: None,
                place: Vec::new(),
                is_place_new: false,
            }),
            kept: Mutex::default(),
        }
    }

    /// A console that leaves standard output alone.
    pub fn for_data_on_stdout(global: &Global) -> Console {
        let mut global = global.clone();
        global.json = false;
        global.no_progress |= std::io::stdout().is_terminal();
        Console::new(&global)
    }

    /// Of paths in a snapshot or an image, which come without their slash: not of those below a
    /// target.
    pub fn naming_whole_paths(mut self) -> Console {
        self.root = b"/";
        self
    }

    /// Removes the progress line before the last words are printed, and says what was only counted.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        match self.in_cold_store.swap(0, Ordering::Relaxed) {
            0 => {}
            count => report!(
                "bale: NOT READ, {} times: contents in the cold store, which is not named (--cold \
                 names it beside the hot one)",
                sizes::count(count)
            ),
        }
    }

    /// Of a backup that made no snapshot.
    pub fn what_is_kept(&self) -> Kept {
        *self.kept.lock().expect("holders do not panic")
    }

    /// Were there contents that only the cold store has?
    pub fn lacks_cold_store(&self) -> bool {
        self.in_cold_store.load(Ordering::Relaxed) > 0
    }

    /// A line of talk, unless the user wants quiet.
    fn say(&self, text: &str) {
        if self.quiet || self.json {
            return;
        }
        self.above(|| report!("{}", output::escape(text.as_bytes())));
    }

    /// For people a sign as of `diff`, for scripts a word.
    fn difference(&self, sign: &str, act: &str, path: &[u8], differs_in: &[&str]) {
        if !self.verbose {
            return;
        }
        let path_text = output::escape(path);
        self.above(|| match (self.json, differs_in) {
            (true, _) => path_object(act, path, differs_in),
            (false, []) => report!("{sign}  {path_text}"),
            (false, _) => report!("{sign}  {path_text}  ({})", differs_in.join(", ")),
        });
    }

    fn above(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn draw(&self, shown: Shown<'_>) {
        if let Some(bar) = &self.bar {
            bar.set_message(shown.line(columns().saturating_sub(SPINNER_COLUMNS)));
        }
    }

    fn status(&self, shown: Shown<'_>) {
        let seconds = shown.elapsed.as_millis() as f64 / 1000.0;
        let progress = shown.progress;
        let rates = shown.per_second();
        let mut value = json!({
            "type": "status", "phase": phase_name(shown.phase), "done": progress.done,
            "total": progress.total,
            "bytes_done": progress.bytes_done, "bytes_total": progress.bytes_total,
            "total_known": shown.is_total_known(), "seconds": seconds,
            "seconds_left": shown.seconds_left(),
            "done_per_second": rates.map(|(done, _)| done),
            "bytes_per_second": rates.map(|(_, bytes)| bytes),
        });
        if !shown.place.is_empty() {
            output::put_path(&mut value, "place", shown.place);
        }
        output::object(&value);
    }
}

/// Whatever ends a command, its last words stand alone.
impl Drop for Console {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Monitor for Console {
    fn progress(&self, phase: Phase, progress: Progress) {
        let mut state = self.state.lock().expect("holders do not panic");
        if state.phase != Some(phase) {
            state.phase = Some(phase);
            state.phase_began = Instant::now();
            state.last_status = None;
            // Who says where he is does so before he says how far.
            if !state.is_place_new {
                state.place.clear();
            }
        }
        state.is_place_new = false;
        let is_due = state
            .last_status
            .is_none_or(|at| at.elapsed() >= STATUS_EVERY);
        let has_status = self.json && !self.quiet && is_due;
        if has_status {
            state.last_status = Some(Instant::now());
        }
        let shown = Shown {
            phase,
            progress,
            elapsed: state.phase_began.elapsed(),
            place: &state.place,
        };
        if has_status {
            self.status(shown);
        }
        self.draw(shown);
    }

    fn place(&self, directory: &[u8]) {
        let mut state = self.state.lock().expect("holders do not panic");
        state.place.clear();
        state.place.extend_from_slice(directory);
        state.is_place_new = true;
    }

    fn current(&self, path: &[u8], differs_in: Option<&[&'static str]>) {
        match differs_in {
            None => self.difference("+", "new", path, &[]),
            Some(words) => self.difference("M", "changed", path, words),
        }
    }

    fn wants_differences(&self) -> bool {
        self.verbose
    }

    fn removed(&self, path: &[u8]) {
        self.difference("-", "removed", path, &[]);
    }

    fn problem(&self, problem: &Problem) {
        self.problems.fetch_add(1, Ordering::Relaxed);
        // Of a hot store alone that is nearly every file.
        if !self.json && !self.verbose && problem.text.contains(IN_COLD_STORE) {
            self.in_cold_store.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut problem = problem.clone();
        // Empty: the whole.
        if !problem.path.is_empty() {
            problem.path.splice(..0, self.root.iter().copied());
        }
        self.above(|| output::problem(&problem, self.json));
    }

    fn kept(&self, kept: Kept) {
        let mut most = self.kept.lock().expect("holders do not panic");
        *most = kept.max(*most);
    }

    fn note(&self, text: &str) {
        if self.json {
            return output::object(&json!({"type": "note", "message": text}));
        }
        crate::log::line(crate::log::Level::Info, text);
        self.say(text);
    }

    fn would(&self, path: &[u8], act: Act) {
        if !self.verbose {
            return;
        }
        let path = [self.root, path].concat();
        self.above(|| match self.json {
            true => path_object(act_name(act), &path, &[]),
            false => report!("{} {}", act_name(act), output::escape(&path)),
        });
    }

    fn wants_restored(&self) -> bool {
        self.verbose
    }

    fn interrupted(&self) -> bool {
        interrupt::is_requested()
    }
}

fn path_object(act: &str, path: &[u8], differs_in: &[&str]) {
    let mut value = json!({"type": "path", "act": act});
    if !differs_in.is_empty() {
        value["differs_in"] = json!(differs_in);
    }
    output::put_path(&mut value, "path", path);
    output::object(&value);
}

/// What happens to a path, in one word.
fn act_name(act: Act) -> &'static str {
    match act {
        Act::Create => "create",
        Act::Replace => "replace",
        Act::Keep => "keep",
        Act::Skip => "skip",
        Act::Delete => "delete",
        Act::Leave => "leave",
        Act::Restored => "restored",
    }
}

/// A spinner, a space, and the last column, in which some terminals begin a new line.
const SPINNER_COLUMNS: usize = 3;
/// Of a terminal that does not say.
const COLUMNS: usize = 80;

/// How wide the terminal is now: people change that.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { COLUMNS } else { columns }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(
        Some(0),
        ProgressDrawTarget::stderr_with_hz(DRAWINGS_PER_SECOND),
    );
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("a fixed template");
    bar.set_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
