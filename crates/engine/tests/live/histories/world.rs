//! A small tree to which a history happens, all its states, and whether what a snapshot has of it
//! can be.

use bale_testkit::Tree;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What is done to a world. Paths are from its root; what a path lacks is not done.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    Link(&'static str, &'static str),
    Remove(&'static str),
    Empty(&'static str),
    Append(&'static str),
    Create(&'static str),
    /// Another file takes the name.
    Replace(&'static str),
    /// The file gets another name, and a new one has this.
    Rotate(&'static str, &'static str),
    /// A directory is made, and the file goes there.
    Nest(&'static str, &'static str),
}

/// All that histories are made of.
pub const STEPS: [Step; 18] = [
    Step::Rename("p/a", "p/moved"),
    Step::Rename("p/a", "q/a"),
    Step::Rename("q/a", "p/a"),
    Step::Rename("p/d", "q/d"),
    Step::Rename("q/d", "p/d"),
    Step::Rename("q/c", "p/a"),
    Step::Rename("p", "r"),
    Step::Exchange("p/a", "q/c"),
    Step::Link("p/a", "q/link"),
    Step::Remove("p/a"),
    Step::Empty("p/b"),
    Step::Append("p/b"),
    Step::Create("p/x"),
    Step::Replace("p/b"),
    Step::Rotate("p/b", "p/b.1"),
    Step::Rename("p/symlink", "q/symlink"),
    Step::Rename("p/linked", "q/linked"),
    Step::Nest("p/a", "q/new"),
];

impl Step {
    /// Nothing leaves its directory. A first walk knows nothing of what goes from where it has not
    /// been yet to where it has been.
    pub fn is_within_directory(self) -> bool {
        match self {
            Step::Exchange(..) | Step::Nest(..) => false,
            Step::Rename(from, to) | Step::Link(from, to) => {
                let directory = |path: &'static str| path.rsplit_once('/').map(|(it, _)| it);
                directory(from) == directory(to)
            }
            _ => true,
        }
    }
}

/// Moments of a run at which something is done.
pub const MOMENTS: usize = 4;
const STEPS_MAX: usize = 3;

/// Steps, and the moment of each.
pub type History = Vec<(usize, Step)>;

/// All histories of up to three steps.
pub fn histories() -> Vec<History> {
    let mut all = Vec::new();
    let mut last: Vec<History> = vec![Vec::new()];
    for _ in 0..STEPS_MAX {
        let mut longer = Vec::new();
        for history in &last {
            let from = history.last().map_or(0, |(moment, _)| *moment);
            for (moment, step) in (from..MOMENTS).flat_map(|at| STEPS.map(|step| (at, step))) {
                longer.push([&history[..], &[(moment, step)]].concat());
            }
        }
        all.extend_from_slice(&longer);
        last = longer;
    }
    all
}

/// A file, whatever its names are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    id: u32,
    content: Vec<u8>,
}

#[derive(Clone, Debug)]
struct State {
    files: BTreeMap<String, Known>,
    directories: BTreeSet<String>,
}

pub struct World {
    root: PathBuf,
    history: History,
    /// From before the first barrier on.
    states: Vec<State>,
    ids: u32,
}

impl World {
    /// Makes the tree, in a new directory.
    pub fn create(root: &Path, history: History) -> World {
        let mut world = World {
            root: root.to_owned(),
            history,
            states: Vec::new(),
            ids: 0,
        };
        let mut state = State {
            files: BTreeMap::new(),
            directories: ["p", "p/d", "q"].map(str::to_owned).into(),
        };
        fs::create_dir(root).unwrap();
        for directory in &state.directories {
            fs::create_dir(root.join(directory)).unwrap();
        }
        for path in ["p/a", "p/b", "p/d/e", "q/c"] {
            world.write_new(&mut state, path);
        }
        world.write_new(&mut state, "p/linked");
        fs::hard_link(root.join("p/linked"), root.join("p/other")).unwrap();
        let linked = state.files["p/linked"].clone();
        state.files.insert("p/other".to_owned(), linked);
        world.ids += 1;
        let target = format!("target {}", root.display());
        std::os::unix::fs::symlink(&target, root.join("p/symlink")).unwrap();
        let symlink = Known {
            id: world.ids,
            content: target.into_bytes(),
        };
        state.files.insert("p/symlink".to_owned(), symlink);
        world.states = vec![state];
        world
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    /// What happens at a moment.
    pub fn act(&mut self, moment: usize) {
        for at in 0..self.history.len() {
            if self.history[at].0 == moment {
                self.step(self.history[at].1);
            }
        }
    }

    /// Two states: at first it is empty.
    fn write_new(&mut self, state: &mut State, path: &str) {
        self.ids += 1;
        let known = Known {
            id: self.ids,
            content: Vec::new(),
        };
        let mut file = File::create_new(self.root.join(path)).unwrap();
        state.files.insert(path.to_owned(), known);
        self.states.push(state.clone());
        let content = format!("file {} of {}\n", self.ids, self.root.display()).into_bytes();
        file.write_all(&content).unwrap();
        state.set(path, |known| *known = content);
    }

    fn step(&mut self, step: Step) {
        let mut state = self.states.last().unwrap().clone();
        match step {
            Step::Rename(from, to) => self.rename(&mut state, from, to),
            Step::Exchange(one, other) => {
                let [Some(first), Some(second)] = [one, other].map(|it| state.file(it)) else {
                    return;
                };
                let places = [one, other].map(|path| self.root.join(path));
                renameat_with(CWD, &places[0], CWD, &places[1], RenameFlags::EXCHANGE).unwrap();
                state.files.insert(one.to_owned(), second);
                state.files.insert(other.to_owned(), first);
            }
            Step::Link(from, to) => {
                let Some(known) = state.file(from).filter(|_| state.file(to).is_none()) else {
                    return;
                };
                fs::hard_link(self.root.join(from), self.root.join(to)).unwrap();
                state.files.insert(to.to_owned(), known);
            }
            Step::Remove(path) if state.file(path).is_some() => {
                fs::remove_file(self.root.join(path)).unwrap();
                state.files.remove(path);
            }
            Step::Empty(path) if state.file(path).is_some() => {
                File::create(self.root.join(path)).unwrap();
                state.set(path, |content| content.clear());
            }
            Step::Append(path) if state.file(path).is_some() => {
                let mut options = File::options();
                let mut file = options.append(true).open(self.root.join(path)).unwrap();
                file.write_all(b"+").unwrap();
                state.set(path, |content| content.push(b'+'));
            }
            Step::Create(path) if state.may_be_made(path) => {
                self.write_new(&mut state, path);
            }
            Step::Replace(path) if state.file(path).is_some() => {
                let new = format!("{path}.new");
                self.write_new(&mut state, &new);
                self.states.push(state.clone());
                self.rename(&mut state, &new, path);
            }
            Step::Nest(path, directory)
                if state.file(path).is_some() && is_possible_directory(&state, directory) =>
            {
                fs::create_dir(self.root.join(directory)).unwrap();
                state.directories.insert(directory.to_owned());
                self.states.push(state.clone());
                self.rename(&mut state, path, &format!("{directory}/it"));
            }
            Step::Rotate(path, to) if state.file(path).is_some() => {
                self.rename(&mut state, path, to);
                self.states.push(state.clone());
                self.write_new(&mut state, path);
            }
            _ => return,
        }
        self.states.push(state);
    }

    fn rename(&self, state: &mut State, from: &str, to: &str) {
        let places = [from, to].map(|path| self.root.join(path));
        let is_possible =
            state.has_directory_of(to) && state.files.get(to) != state.files.get(from);
        if let Some(known) = state.file(from).filter(|_| is_possible) {
            fs::rename(&places[0], &places[1]).unwrap();
            state.files.remove(from);
            state.files.insert(to.to_owned(), known);
        } else if state.directories.contains(from) && is_possible_directory(state, to) {
            fs::rename(&places[0], &places[1]).unwrap();
            state.move_directory(from, to);
        }
    }
}

fn is_possible_directory(state: &State, to: &str) -> bool {
    state.has_directory_of(to) && !state.directories.contains(to)
}

impl State {
    fn file(&self, path: &str) -> Option<Known> {
        self.files.get(path).cloned()
    }

    fn has_directory_of(&self, path: &str) -> bool {
        path.rsplit_once('/')
            .is_none_or(|(parent, _)| self.directories.contains(parent))
    }

    /// Changes what a file holds under all its names.
    fn set(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut known = self.files[path].clone();
        change(&mut known.content);
        let names = self.files.values_mut().filter(|one| one.id == known.id);
        names.for_each(|one| *one = known.clone());
    }

    fn may_be_made(&self, path: &str) -> bool {
        self.has_directory_of(path) && !self.files.contains_key(path)
    }

    fn move_directory(&mut self, from: &str, to: &str) {
        let moved = |path: &String| {
            let rest = path.strip_prefix(from)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
        };
        let new = |path: String| moved(&path).unwrap_or(path);
        self.directories = std::mem::take(&mut self.directories)
            .into_iter()
            .map(new)
            .collect();
        self.files = std::mem::take(&mut self.files)
            .into_iter()
            .map(|(path, known)| (new(path), known))
            .collect();
    }
}

/// What a snapshot has of a world, by paths from its root.
pub struct Stored {
    files: BTreeMap<String, Vec<u8>>,
    directories: BTreeSet<String>,
    /// Paths that are named as problems.
    named: BTreeSet<String>,
}

impl Stored {
    /// `problems`: paths from the world's root, which is the empty one.
    pub fn new(tree: &Tree, problems: BTreeSet<String>) -> Stored {
        let mut stored = Stored {
            files: BTreeMap::new(),
            directories: BTreeSet::new(),
            named: problems,
        };
        for (path, node) in &tree.0 {
            let path = String::from_utf8(path.clone()).unwrap();
            match node.metadata.0 & 0o170_000 == 0o040_000 {
                true => _ = stored.directories.insert(path),
                false => _ = stored.files.insert(path, node.content.clone()),
            }
        }
        stored.directories.remove("");
        stored
    }

    /// Whether a problem is told of it, or of a directory that it is in.
    fn is_named(&self, path: &str) -> bool {
        let mut path = path;
        loop {
            if self.named.contains(path) {
                return true;
            }
            if path.is_empty() {
                return false;
            }
            path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        }
    }
}

impl World {
    /// What is wrong with what a snapshot has; `still_from`: from this moment on nothing is missed,
    /// and what happened before it alone must be as it is at the end.
    pub fn faults(&self, stored: &Stored, still_from: usize) -> Vec<String> {
        let mut faults = Vec::new();
        if self.history.iter().all(|(moment, _)| *moment < still_from) {
            self.must_be_as_at_the_end(stored, &mut faults);
        }
        for (path, content) in &stored.files {
            let mut states = self.states.iter().filter_map(|state| state.files.get(path));
            if !states.any(|known| known.content == *content) && !stored.is_named(path) {
                faults.push(format!("{path} was never {:?}", text(content)));
            }
        }
        self.must_have_inodes(stored, &mut faults);
        let first = &self.states[0];
        for path in first.files.keys().chain(&first.directories) {
            let has =
                |state: &State| state.files.contains_key(path) || state.directories.contains(path);
            let is_stored = stored.files.contains_key(path) || stored.directories.contains(path);
            if self.states.iter().all(has) && !is_stored && !stored.is_named(path) {
                faults.push(format!("{path} was there all the time and is not stored"));
            }
        }
        faults
    }

    fn must_be_as_at_the_end(&self, stored: &Stored, faults: &mut Vec<String>) {
        let end = self.states.last().unwrap();
        let is_same =
            (end.files.iter().map(|(path, known)| (path, &known.content))).eq(stored.files.iter());
        if !is_same || end.directories != stored.directories {
            let (files, directories) = (stored.files.keys(), &stored.directories);
            faults.push(format!("{:?} {directories:?} is not {end:?}", files));
        }
        if !stored.named.is_empty() {
            faults.push(format!(
                "nothing happened, and these are named: {:?}",
                stored.named
            ));
        }
    }

    /// What had a name all the time is under one of them, with what it held.
    fn must_have_inodes(&self, stored: &Stored, faults: &mut Vec<String>) {
        for known in self.states[0].files.values() {
            let mut is_there_always = true;
            let mut is_stored = false;
            for state in &self.states {
                let mut names = state
                    .files
                    .iter()
                    .filter(|(_, one)| one.id == known.id)
                    .peekable();
                is_there_always &= names.peek().is_some();
                is_stored |= names.any(|(path, one)| {
                    stored.files.get(path) == Some(&one.content) || stored.is_named(path)
                });
            }
            if is_there_always && !is_stored {
                let content = text(&known.content);
                faults.push(format!(
                    "{content:?} was there all the time and is not stored"
                ));
            }
        }
    }
}

fn text(content: &[u8]) -> String {
    String::from_utf8_lossy(content).into_owned()
}
