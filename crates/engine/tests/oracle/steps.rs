//! The steps of a sequence: what users, disks and clocks do. Each carries all that it needs, so
//! that leaving one out changes no other: things are named by their number, counted from the
//! newest, and the number wraps around.

use std::time::Duration;

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Change(Vec<Edit>),
    Backup(Backup),
    ForgetOne {
        nth: usize,
        stop: Stop,
    },
    /// Something that cannot be read, by its id.
    ForgetDamaged {
        nth: usize,
        stop: Stop,
    },
    ForgetByRule {
        rule: Rule,
        dry_run: bool,
    },
    Prune(Prune),
    Check {
        host: usize,
        read: Read,
        mark: bool,
    },
    RepairIndex {
        dry_run: bool,
        stop: Stop,
    },
    /// Those that are known to be damaged, or one.
    RepairPacks {
        nth: Option<usize>,
        dry_run: bool,
        stop: Stop,
    },
    /// `config` or its copy.
    RepairConfig {
        dry_run: bool,
        stop: Stop,
    },
    Restore(Restore),
    Dump {
        nth: usize,
        path: usize,
    },
    Latest,
    Damage(Damage),
    Clock(Clock),
    SpoilCache {
        host: usize,
        nth: usize,
        how: Spoil,
    },
    Litter {
        target: Target,
        edits: Vec<Edit>,
    },
}

/// How an operation ends before its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stop {
    Never,
    /// Killed at a call to the store, before or after that call's effect.
    Killed {
        calls: u64,
        is_done: bool,
    },
    /// Asked to end, at a call of the monitor.
    Asked {
        calls: u64,
    },
}

/// A change of files, by the number of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Edit {
    Write { path: usize, kind: Bytes },
    Append { path: usize },
    Remove { path: usize },
    Rename { from: usize, to: usize },
    Link { from: usize, to: usize },
    Symlink { path: usize, target: usize },
    MakeDir { path: usize },
    Fifo { path: usize },
    Mode { path: usize, mode: u32 },
    Attribute { path: usize, len: usize },
    Mtime { path: usize, seconds: i64 },
    Mark { path: usize },
}

/// Content of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bytes {
    Small(u64),
    /// The same as other files of this number.
    Common(u64),
    /// Stored in pieces, not compressible.
    Large(u64),
    /// Stored in pieces of which the first ones are those of others.
    LargeVariant(u64),
    Sparse(u64),
    Empty,
}

/// Every option of a backup, as far as it is chosen: see `options.rs`, which takes the engine's
/// structs apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Backup {
    /// Which of two machines: caches of their own, perhaps the same name.
    pub host: usize,
    pub sources: Sources,
    pub look: Look,
    pub leave_out: LeaveOut,
    pub one_file_system: bool,
    pub threads: Option<usize>,
    pub tags: usize,
    pub parent: Option<usize>,
    pub force: bool,
    pub skip_if_unchanged: bool,
    pub dry_run: bool,
    pub checkpoints: bool,
    pub memory_is_racy: bool,
    /// Other repositories, too.
    pub repositories: bool,
    pub stop: Stop,
}

/// What is backed up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sources {
    Src,
    SrcAndMail,
    Home,
    DeepInSrc,
    OneFile,
    SrcAndMissing,
}

/// How it is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Look {
    Walk,
    Auto,
    /// An image of the tree, written by our own writer of ext4.
    Image,
    /// A copy of the tree, as a storage snapshot gives it.
    Copy,
}

/// What is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeaveOut {
    pub by_name: bool,
    pub ignoring_case: bool,
    pub by_path: bool,
    pub marked: bool,
    pub caches: bool,
    pub larger_than: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    Last(u32),
    Daily(u32),
    Hourly(u32),
    WithinDays(i64),
    WithinForEver,
    Tag,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prune {
    pub grace: Duration,
    pub repack_below: u8,
    pub dry_run: bool,
    pub stop: Stop,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Read {
    Structure,
    Data,
    Part(u64, u64),
    Percent(u8),
    Bytes(u64),
    Scrub,
}

/// Every option of a restore, as far as it is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Restore {
    pub nth: usize,
    pub target: Target,
    pub below: Below,
    pub include: usize,
    pub exclude: usize,
    pub overwrite: usize,
    pub delete: bool,
    pub dry_run: bool,
    pub force_space: bool,
    pub specials: bool,
    pub inode_flags: bool,
    pub sync: bool,
    pub threads: usize,
    pub verify: bool,
    pub stop: Stop,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Directories of their own, with things in them that nobody backed up.
    Other(usize),
    /// Where it came from.
    Home,
    Src,
    /// A file that becomes a file system.
    Image {
        force: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Below {
    Everything,
    Root,
    Home,
    Source,
    Directory(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Damage {
    pub what: What,
    pub nth: usize,
    pub how: How,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    Pack,
    LargestPack,
    Index,
    Snapshot,
    Run,
    Condemned,
    Mark,
    /// `config` or its copy, never both at once: for that there are copies of repositories.
    Config,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// A bit, at so many thousandths of the length.
    Flip {
        at: u64,
    },
    /// A bit of the first or the last 48 bytes: the two heads of a pack.
    FlipEnd {
        at: u64,
    },
    Cut {
        bytes: u64,
    },
    Append {
        bytes: usize,
    },
    Remove,
    /// The bytes of another object of the kind.
    Replace {
        by: usize,
    },
    Swap {
        with: usize,
    },
    /// One that was deleted is there again.
    Return {
        nth: usize,
    },
    Zero {
        at: u64,
        bytes: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clock {
    Forward(Duration),
    Back(Duration),
    /// As if it had never been wrong.
    Right,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spoil {
    RemoveAll,
    Remove,
    Flip,
    Cut,
    /// Another machine's.
    Foreign,
}
