//! Sequences: some luck, and some stories (`stories.rs`).

use super::draw::Draw;
use super::steps::*;
use super::stories::story;
use std::time::Duration;

pub const HOUR: u64 = 3600;
pub const DAY: u64 = 24 * HOUR;

/// Paths that edits choose from.
pub const PATHS: usize = 24;

/// The sequence of a seed.
pub fn sequence(seed: u64) -> Vec<Step> {
    let draw = Draw::new(seed);
    let mut steps = vec![Step::Change(tree(&draw)), Step::Backup(first(&draw))];
    let stories = draw.weighted(&[(2, 0), (5, 1), (3, 2)]);
    for _ in 0..stories {
        some(&draw, &mut steps, 3);
        story(&draw, &mut steps);
    }
    let most = if stories == 0 { 18 } else { 5 };
    some(&draw, &mut steps, most);
    if is_in_home(seed) {
        back_up_all_of_home(&draw, &mut steps);
    }
    steps
}

/// Does the repository lie in what is backed up?
pub fn is_in_home(seed: u64) -> bool {
    seed % 16 == 3
}

fn back_up_all_of_home(draw: &Draw, steps: &mut [Step]) {
    for step in steps {
        if let Step::Backup(backup) = step
            && backup.look != Look::Image
            && draw.once_in(2)
        {
            backup.sources = Sources::Home;
        }
    }
}

fn some(draw: &Draw, steps: &mut Vec<Step>, most: usize) {
    for _ in 0..draw.below(most + 1) {
        let step = any(draw);
        steps.push(step);
    }
}

fn tree(draw: &Draw) -> Vec<Edit> {
    let mut edits: Vec<Edit> = (0..4 + draw.below(6)).map(|_| edit(draw)).collect();
    if draw.once_in(2) {
        edits.push(write(draw, Bytes::Large(0)));
    }
    for _ in 0..3 {
        edits.push(write(draw, Bytes::Small(0)));
    }
    edits
}

pub fn write(draw: &Draw, like: Bytes) -> Edit {
    let number = draw.number() % 1000;
    let kind = match like {
        Bytes::Small(_) => Bytes::Small(number),
        _ => Bytes::Large(number),
    };
    let path = draw.below(PATHS);
    Edit::Write { path, kind }
}

fn content(draw: &Draw) -> Bytes {
    let number = draw.number() % 1000;
    draw.weighted(&[
        (10, Bytes::Small(number)),
        (3, Bytes::Common(number % 3)),
        (3, Bytes::Large(number)),
        (2, Bytes::LargeVariant(number)),
        (1, Bytes::Sparse(number)),
        (1, Bytes::Empty),
    ])
}

pub fn edit(draw: &Draw) -> Edit {
    let (path, other) = (draw.below(PATHS), draw.below(PATHS));
    let kind = content(draw);
    let mode = draw.of(&[0o600, 0o644, 0o755, 0o4755, 0o1777, 0o400]);
    let len = draw.of(&[3, 200, 3_000]);
    let seconds = draw.of(&[0, 1_600_000_000, -5, 4_000_000_000]);
    draw.weighted(&[
        (14, Edit::Write { path, kind }),
        (4, Edit::Append { path }),
        (4, Edit::Remove { path }),
        (
            3,
            Edit::Rename {
                from: path,
                to: other,
            },
        ),
        (
            3,
            Edit::Link {
                from: path,
                to: other,
            },
        ),
        (
            2,
            Edit::Symlink {
                path,
                target: other,
            },
        ),
        (2, Edit::MakeDir { path }),
        (1, Edit::Fifo { path }),
        (2, Edit::Mode { path, mode }),
        (2, Edit::Attribute { path, len }),
        (1, Edit::Mtime { path, seconds }),
        (1, Edit::Mark { path }),
    ])
}

pub fn edits(draw: &Draw) -> Vec<Edit> {
    (0..1 + draw.below(3)).map(|_| edit(draw)).collect()
}

pub fn stop(draw: &Draw, calls_max: usize) -> Stop {
    let calls = draw.below(calls_max) as u64;
    let is_done = draw.once_in(2);
    draw.weighted(&[
        (8, Stop::Never),
        (2, Stop::Killed { calls, is_done }),
        (1, Stop::Asked { calls: calls / 4 }),
    ])
}

fn first(draw: &Draw) -> Backup {
    let usual = usual_backup(draw);
    Backup {
        dry_run: false,
        skip_if_unchanged: false,
        stop: Stop::Never,
        ..usual
    }
}

/// What most backups are.
pub fn plain() -> Backup {
    Backup {
        host: 0,
        sources: Sources::Src,
        look: Look::Walk,
        leave_out: LeaveOut::default(),
        one_file_system: false,
        threads: Some(1),
        tags: 0,
        parent: None,
        force: false,
        skip_if_unchanged: false,
        dry_run: false,
        checkpoints: false,
        memory_is_racy: false,
        repositories: false,
        stop: Stop::Never,
    }
}

fn usual_backup(draw: &Draw) -> Backup {
    if draw.once_in(2) {
        return plain();
    }
    let leave_out = LeaveOut {
        by_name: draw.once_in(3),
        ignoring_case: draw.once_in(4),
        by_path: draw.once_in(4),
        marked: draw.once_in(3),
        caches: draw.once_in(3),
        larger_than: draw.of(&[None, None, Some(0), Some(600), Some(600 << 10)]),
    };
    Backup {
        host: draw.weighted(&[(4, 0), (1, 1), (1, 2)]),
        sources: draw.weighted(&[
            (12, Sources::Src),
            (3, Sources::SrcAndMail),
            (3, Sources::Home),
            (1, Sources::DeepInSrc),
            (1, Sources::OneFile),
            (1, Sources::SrcAndMissing),
        ]),
        look: draw.weighted(&[
            (10, Look::Walk),
            (3, Look::Auto),
            (2, Look::Image),
            (1, Look::Copy),
        ]),
        leave_out: if draw.once_in(4) {
            leave_out
        } else {
            LeaveOut::default()
        },
        one_file_system: draw.once_in(8),
        threads: draw.of(&[Some(1), Some(3), None]),
        tags: draw.below(4),
        parent: draw.of(&[None, None, None, None, Some(0), Some(1), Some(2)]),
        force: draw.once_in(6),
        skip_if_unchanged: draw.once_in(5),
        dry_run: draw.once_in(16),
        checkpoints: draw.once_in(4),
        memory_is_racy: draw.once_in(8),
        repositories: draw.once_in(6),
        stop: stop(draw, 60),
    }
}

pub fn prune(draw: &Draw) -> Prune {
    Prune {
        grace: Duration::from_secs(draw.of(&[0, 0, 1, HOUR, DAY])),
        repack_below: draw.of(&[0, 30, 70, 70, 100]),
        dry_run: draw.once_in(12),
        stop: stop(draw, 40),
    }
}

pub fn rule(draw: &Draw) -> Rule {
    let number = 1 + draw.below(3);
    draw.of(&[
        Rule::Last(number as u32),
        Rule::Daily(number as u32),
        Rule::Hourly(number as u32),
        Rule::WithinDays(number as i64 * 10),
        Rule::WithinDays(30),
        Rule::WithinForEver,
        Rule::Tag,
    ])
}

pub fn restore(draw: &Draw) -> Restore {
    let dir = draw.below(PATHS);
    let force = draw.once_in(3);
    Restore {
        nth: draw.of(&[0, 0, 0, 1, 2, 3]),
        target: draw.weighted(&[
            (4, Target::Other(0)),
            (4, Target::Other(1)),
            (2, Target::Home),
            (2, Target::Src),
            (1, Target::Image { force }),
        ]),
        below: draw.weighted(&[
            (2, Below::Everything),
            (1, Below::Root),
            (3, Below::Home),
            (6, Below::Source),
            (2, Below::Directory(dir)),
        ]),
        include: draw.of(&[0, 0, 0, 1, 2]),
        exclude: draw.of(&[0, 0, 0, 1, 2]),
        overwrite: draw.below(3),
        delete: draw.once_in(2),
        dry_run: draw.once_in(10),
        force_space: draw.once_in(6),
        specials: !draw.once_in(6),
        inode_flags: draw.once_in(8),
        sync: draw.once_in(6),
        threads: draw.of(&[1, 2, 0]),
        verify: draw.once_in(3),
        stop: draw.weighted(&[
            (12, Stop::Never),
            (1, Stop::Asked { calls: 1 }),
            (1, Stop::Asked { calls: 3 }),
        ]),
    }
}

fn how(draw: &Draw) -> How {
    let at = draw.number() % 1000;
    let (other, bytes) = (1 + draw.below(3), 1 + draw.number() % 5_000);
    draw.weighted(&[
        (5, How::Flip { at }),
        (2, How::FlipEnd { at }),
        (3, How::Cut { bytes }),
        (
            1,
            How::Append {
                bytes: bytes as usize,
            },
        ),
        (3, How::Remove),
        (1, How::Replace { by: other }),
        (1, How::Swap { with: other }),
        (1, How::Return { nth: other }),
        (1, How::Zero { at, bytes }),
    ])
}

fn damage(draw: &Draw) -> Damage {
    Damage {
        what: draw.weighted(&[
            (6, What::Pack),
            (3, What::LargestPack),
            (3, What::Index),
            (2, What::Snapshot),
            (1, What::Run),
            (1, What::Condemned),
            (1, What::Mark),
            (2, What::Config),
        ]),
        nth: draw.below(4),
        how: how(draw),
    }
}

fn clock(draw: &Draw) -> Clock {
    let seconds = Duration::from_secs;
    draw.weighted(&[
        (4, Clock::Forward(seconds(2))),
        (3, Clock::Forward(seconds(HOUR))),
        (3, Clock::Forward(seconds(25 * HOUR))),
        (1, Clock::Forward(seconds(40 * DAY))),
        (1, Clock::Back(seconds(HOUR))),
        (1, Clock::Back(seconds(400 * DAY))),
        (1, Clock::Forward(seconds(75 * 365 * DAY))),
        (2, Clock::Right),
    ])
}

fn read(draw: &Draw) -> Read {
    draw.weighted(&[
        (4, Read::Structure),
        (6, Read::Data),
        (1, Read::Part(1, 2)),
        (1, Read::Percent(50)),
        (1, Read::Bytes(2_000)),
        (1, Read::Scrub),
    ])
}

fn any(draw: &Draw) -> Step {
    let host = draw.below(2);
    match draw.weighted(&[
        (10, 0),
        (14, 1),
        (2, 2),
        (3, 3),
        (9, 4),
        (6, 5),
        (3, 6),
        (7, 7),
        (1, 8),
        (1, 9),
        (6, 10),
        (5, 11),
        (2, 12),
        (2, 13),
        (4, 14),
        (2, 15),
        (3, 16),
    ]) {
        0 => Step::Change(edits(draw)),
        1 => Step::Backup(usual_backup(draw)),
        2 => Step::ForgetOne {
            nth: draw.below(4),
            stop: stop(draw, 6),
        },
        3 => Step::ForgetByRule {
            rule: rule(draw),
            dry_run: draw.once_in(8),
        },
        4 => Step::Prune(prune(draw)),
        5 => Step::Check {
            host,
            read: read(draw),
            mark: !draw.once_in(5),
        },
        6 => Step::RepairIndex {
            dry_run: draw.once_in(6),
            stop: stop(draw, 20),
        },
        7 => Step::Restore(restore(draw)),
        8 => Step::Dump {
            nth: draw.below(3),
            path: draw.below(PATHS + 1),
        },
        9 => Step::Latest,
        10 => Step::Damage(damage(draw)),
        11 => Step::Clock(clock(draw)),
        12 => Step::SpoilCache {
            host,
            nth: draw.below(4),
            how: draw.of(&[
                Spoil::RemoveAll,
                Spoil::Remove,
                Spoil::Flip,
                Spoil::Cut,
                Spoil::Foreign,
            ]),
        },
        13 => Step::RepairPacks {
            nth: draw.of(&[None, None, None, Some(0), Some(1)]),
            dry_run: draw.once_in(8),
            stop: stop(draw, 30),
        },
        14 => Step::ForgetDamaged {
            nth: draw.below(6),
            stop: stop(draw, 12),
        },
        15 => Step::RepairConfig {
            dry_run: draw.once_in(6),
            stop: stop(draw, 8),
        },
        _ => Step::Litter {
            target: Target::Other(draw.below(2)),
            edits: edits(draw),
        },
    }
}
