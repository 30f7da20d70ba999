//! The shape of a tree: its directories in catalog order, each made from its own seed.
//!
//! A directory's numbers follow from the seed it has from its parent, so the walk keeps only the
//! directories that wait on the way down, and the names of files can be made elsewhere, in
//! parallel.

use super::dice::Dice;
use super::names::{STRATA, push_name, stratum_prefix};
use super::options::GenerateOptions;
use std::ops::Range;

/// A directory of more files than this is made in parts, where its names can be drawn in order.
const LARGE_FILES: u64 = 256 << 10;
/// Files of a part, about: 8 MB while it is in work.
const PART_FILES: u64 = 32 << 10;

const FOR_TREE: u64 = 1;
const FOR_DIRECTORY: u64 = 2;
const FOR_FILE: u64 = 3;
const FOR_DIRECTORIES: u64 = 4;
const FOR_FILES: u64 = 5;
const FOR_DEPTH: u64 = 6;

/// One directory of the tree, or a part of a large one: its names from one to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryPlan {
    /// Path below the root, components joined by `/`; empty for the root.
    pub path: Vec<u8>,
    pub dice: Dice,
    /// Which snapshot of a link farm; 0 without a farm.
    pub snapshot: u32,
    /// Not a further part of the directory before it.
    pub is_first_part: bool,
    /// Number of files, the limit on all files applied.
    pub files: u64,
    /// Files of the directory in parts before this, and all of them.
    drawn_before: u64,
    drawn_in_all: u64,
    /// Files before these in the catalog of the snapshot.
    pub first_file: u64,
    /// Ascending and unique, each with the seed of the directory.
    pub subdirectories: Vec<(Vec<u8>, Dice)>,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub name: Vec<u8>,
    pub dice: Dice,
    /// Position among the files of its snapshot; `None` for a directory.
    pub file: Option<u64>,
}

impl DirectoryPlan {
    /// All names, ascending and unique. Takes about 80 bytes for each while the directory is in
    /// work.
    pub fn children(&self, options: &GenerateOptions) -> Vec<Child> {
        let drawn = Drawn {
            dice: self.dice,
            purpose: FOR_FILE,
            numbers: self.drawn_before..self.drawn_before + self.files,
            in_all: self.drawn_in_all,
        };
        let mut files = unique_names(&drawn, options, &self.subdirectories);
        let directories = self.subdirectories.iter().cloned();
        let mut children: Vec<Child> = Vec::with_capacity(files.len() + self.subdirectories.len());
        children.extend(directories.map(|(name, dice)| Child {
            name,
            dice,
            file: None,
        }));
        children.extend(files.drain(..).map(|(name, dice)| Child {
            name,
            dice,
            file: Some(0),
        }));
        children.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        let files = children.iter_mut().filter_map(|child| child.file.as_mut());
        files
            .zip(self.first_file..)
            .for_each(|(file, position)| *file = position);
        children
    }
}

struct Drawn {
    dice: Dice,
    purpose: u64,
    numbers: Range<u64>,
    /// Numbers of the whole directory.
    in_all: u64,
}

/// Can the directory be made in parts? Only names of letters can be drawn in order.
fn is_in_parts(files: u64, options: &GenerateOptions) -> bool {
    files > LARGE_FILES
        && options.name_bytes.0 >= 2
        && !options.realistic_names
        && options.odd_name_share == 0
}

/// First file of a stratum: names that begin with the same two letters.
fn stratum_start(stratum: u64, files: u64) -> u64 {
    let (each, more) = (files / STRATA, files % STRATA);
    stratum * each + stratum.min(more)
}

fn stratum_of(number: u64, files: u64) -> u64 {
    let (each, more) = (files / STRATA, files % STRATA);
    match number < more * (each + 1) {
        true => number / (each + 1),
        false => more + (number - more * (each + 1)) / each,
    }
}

/// Draws names until none is there twice or taken; the result ascends.
fn unique_names(
    drawn: &Drawn,
    options: &GenerateOptions,
    taken: &[(Vec<u8>, Dice)],
) -> Vec<(Vec<u8>, Dice)> {
    let purpose = drawn.purpose;
    let is_directory = purpose == FOR_DIRECTORY;
    let in_order = !is_directory && is_in_parts(drawn.in_all, options);
    let numbers = drawn.numbers.clone();
    let mut names: Vec<(Vec<u8>, Dice)> = numbers
        .map(|number| {
            let dice = drawn.dice.part(purpose, number);
            let mut name = Vec::with_capacity(24);
            push_name(&mut name, dice, is_directory, options);
            if in_order {
                let prefix = stratum_prefix(stratum_of(number, drawn.in_all));
                name[..prefix.len()].copy_from_slice(&prefix);
            }
            (name, dice)
        })
        .collect();
    let order = |left: &(Vec<u8>, Dice), right: &(Vec<u8>, Dice)| {
        (&left.0, left.1.0).cmp(&(&right.0, right.1.0))
    };
    let mut round = 0u32;
    loop {
        names.sort_unstable_by(order);
        let mut is_unique = true;
        let mut previous: Option<Vec<u8>> = None;
        for (name, dice) in &mut names {
            let is_taken = taken
                .binary_search_by(|(have, _)| have.as_slice().cmp(name))
                .is_ok();
            if is_taken || previous.as_deref() == Some(name) {
                is_unique = false;
                let suffix = format!("+{:x}", dice.part(purpose, u64::from(round)).0 >> 40);
                let kept = name.len().min(255 - suffix.len());
                name.truncate(kept);
                name.extend_from_slice(suffix.as_bytes());
            } else {
                previous = Some(name.clone());
            }
        }
        if is_unique {
            return names;
        }
        round += 1;
    }
}

/// The whole tree, or all trees of a link farm.
pub(crate) struct Shape<'a> {
    options: &'a GenerateOptions,
    root_directories: u64,
}

impl<'a> Shape<'a> {
    pub fn new(options: &'a GenerateOptions) -> Shape<'a> {
        let dice = Dice(options.seed).part(FOR_TREE, 0);
        let root_directories = match options.count {
            None => dice.within(
                FOR_DIRECTORIES,
                options.directories.0,
                options.directories.1,
            ),
            Some(count) => directories_for(options, dice, count),
        };
        Shape {
            options,
            root_directories,
        }
    }

    /// Most files of one snapshot.
    fn files_max(&self) -> u64 {
        match (self.options.count, self.options.files_max) {
            (Some(count), _) => count,
            (None, 0) => u64::MAX,
            (None, most) => most,
        }
    }

    /// Every directory in catalog order.
    pub fn plans(&self) -> Box<dyn Iterator<Item = DirectoryPlan> + Send + '_> {
        match self.options.snapshots {
            0 => Box::new(self.snapshot_plans(0)),
            snapshots => Box::new(
                std::iter::once(self.farm_root())
                    .chain((0..snapshots).flat_map(|snapshot| self.snapshot_plans(snapshot))),
            ),
        }
    }

    /// The directory that holds the snapshots of a farm.
    pub fn farm_root(&self) -> DirectoryPlan {
        let dice = Dice(self.options.seed).part(FOR_TREE, 1);
        let tree = Dice(self.options.seed).part(FOR_TREE, 0);
        let names = (0..self.options.snapshots).map(|snapshot| (snapshot_name(snapshot), tree));
        DirectoryPlan {
            path: Vec::new(),
            dice,
            snapshot: 0,
            is_first_part: true,
            files: 0,
            drawn_before: 0,
            drawn_in_all: 0,
            first_file: 0,
            subdirectories: names.collect(),
        }
    }

    /// The directories of one snapshot (all, where there is no farm).
    pub fn snapshot_plans(&self, snapshot: u32) -> Walk<'_> {
        let path = if self.options.snapshots == 0 {
            Vec::new()
        } else {
            snapshot_name(snapshot)
        };
        let dice = Dice(self.options.seed).part(FOR_TREE, 0);
        Walk {
            options: self.options,
            snapshot,
            files_left: self.files_max(),
            next_file: 0,
            parts: None,
            waiting: vec![Waiting {
                path,
                dice,
                place: Place::Root(self.root_directories),
            }],
        }
    }
}

/// Names sort like numbers, so the first snapshot holds the first names.
pub(crate) fn snapshot_name(snapshot: u32) -> Vec<u8> {
    format!("daily.{snapshot:05}").into_bytes()
}

#[derive(Clone, Copy)]
enum Place {
    /// With this many directories.
    Root(u64),
    /// With this much recursion left.
    Below(u64),
}

struct Waiting {
    path: Vec<u8>,
    dice: Dice,
    place: Place,
}

/// Directories of one tree, depth first, children ascending.
pub(crate) struct Walk<'a> {
    options: &'a GenerateOptions,
    snapshot: u32,
    files_left: u64,
    next_file: u64,
    /// What is left of a large directory, and the stratum where that begins.
    parts: Option<(DirectoryPlan, u64)>,
    /// Last first. At most one directory's children for each level.
    waiting: Vec<Waiting>,
}

impl Walk<'_> {
    /// Takes the first part off what is left of a large directory.
    fn next_part(&mut self, mut left: DirectoryPlan, stratum: u64) -> DirectoryPlan {
        let all = left.drawn_in_all;
        let mut end = stratum + 1;
        while end < STRATA && stratum_start(end, all) - left.drawn_before < PART_FILES {
            end += 1;
        }
        if end == STRATA {
            return left;
        }
        let mut rest = left.clone();
        let below = stratum_prefix(end);
        let names = &left.subdirectories;
        let middle = names.partition_point(|(name, _)| name[..] < below[..]);
        rest.subdirectories = left.subdirectories.split_off(middle);
        left.files = stratum_start(end, all) - left.drawn_before;
        rest.is_first_part = false;
        rest.drawn_before += left.files;
        rest.first_file += left.files;
        rest.files -= left.files;
        self.parts = Some((rest, end));
        left
    }
}

impl Iterator for Walk<'_> {
    type Item = DirectoryPlan;

    fn next(&mut self) -> Option<DirectoryPlan> {
        if let Some((left, stratum)) = self.parts.take() {
            return Some(self.next_part(left, stratum));
        }
        let Waiting { path, dice, place } = self.waiting.pop()?;
        let drawn = dice.within(FOR_FILES, self.options.files.0, self.options.files.1);
        let files = drawn.min(self.files_left);
        // Once there are enough files, what is left of the tree stays empty.
        let directories = if self.files_left == 0 {
            0
        } else {
            directories_of(self.options, dice, place)
        };
        self.files_left -= files;
        let drawn = Drawn {
            dice,
            purpose: FOR_DIRECTORY,
            numbers: 0..directories,
            in_all: directories,
        };
        let subdirectories = unique_names(&drawn, self.options, &[]);
        for (name, child) in subdirectories.iter().rev() {
            let path = if path.is_empty() {
                name.clone()
            } else {
                [&path[..], b"/", name].concat()
            };
            self.waiting.push(Waiting {
                path,
                dice: *child,
                place: place_below(self.options, *child, place),
            });
        }
        let first_file = self.next_file;
        self.next_file += files;
        let plan = DirectoryPlan {
            path,
            dice,
            snapshot: self.snapshot,
            is_first_part: true,
            files,
            drawn_before: 0,
            drawn_in_all: files,
            first_file,
            subdirectories,
        };
        Some(match is_in_parts(files, self.options) {
            true => self.next_part(plan, 0),
            false => plan,
        })
    }
}

fn directories_of(options: &GenerateOptions, dice: Dice, place: Place) -> u64 {
    match place {
        Place::Root(count) => count,
        Place::Below(0) => 0,
        Place::Below(_) => dice.within(
            FOR_DIRECTORIES,
            options.directories.0,
            options.directories.1,
        ),
    }
}

fn place_below(options: &GenerateOptions, child: Dice, place: Place) -> Place {
    Place::Below(match place {
        Place::Root(_) => child.within(FOR_DEPTH, options.depth.0, options.depth.1),
        Place::Below(depth) => child.within(FOR_DEPTH, 0, depth.saturating_sub(1)),
    })
}

/// Directories that the root needs to hold `count` files: counted without names, a few ns for each
/// directory.
fn directories_for(options: &GenerateOptions, root: Dice, count: u64) -> u64 {
    let mut files = root.within(FOR_FILES, options.files.0, options.files.1);
    let mut directories = 0;
    while files < count {
        let base = root.part(FOR_DIRECTORY, directories);
        let mut waiting = vec![(base, place_below(options, base, Place::Root(0)))];
        while let Some((dice, place)) = waiting.pop() {
            files += dice.within(FOR_FILES, options.files.0, options.files.1);
            if files >= count {
                break;
            }
            for number in 0..directories_of(options, dice, place) {
                let child = dice.part(FOR_DIRECTORY, number);
                waiting.push((child, place_below(options, child, place)));
            }
        }
        directories += 1;
    }
    directories
}

#[cfg(test)]
mod tests;
