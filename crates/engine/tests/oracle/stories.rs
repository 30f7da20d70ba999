//! Stories in which damage, healing and deleting meet: what went wrong once begins like one of
//! these.

use super::draw::Draw;
use super::generate::{DAY, HOUR, PATHS, edit, edits, plain, prune, restore, rule, stop, write};
use super::steps::*;
use std::time::Duration;

/// Adds one.
pub fn story(draw: &Draw, steps: &mut Vec<Step>) {
    match draw.below(9) {
        0..=3 => heal_and_prune(draw, steps),
        4 => from_the_future(draw, steps),
        5 => into_a_full_place(draw, steps),
        6 => barely_changed(draw, steps),
        7 => newest_is_damaged(draw, steps),
        _ => over_what_is_intact(draw, steps),
    }
}

/// A pack is damaged, the next backup stores again what it can, and prunes see two copies of much.
fn heal_and_prune(draw: &Draw, steps: &mut Vec<Step>) {
    steps.push(Step::Damage(Damage {
        what: draw.of(&[What::Pack, What::LargestPack]),
        nth: draw.below(3),
        how: draw.of(&[
            How::Cut {
                bytes: 1 + draw.number() % 5_000,
            },
            How::Flip {
                at: draw.number() % 1000,
            },
            // Where the catalog is, that the next backup reads.
            How::Flip {
                at: 600 + draw.number() % 400,
            },
            How::Flip { at: 850 },
            How::Remove,
        ]),
    }));
    if draw.once_in(3) {
        let read = draw.of(&[Read::Data, Read::Structure]);
        let mark = !draw.once_in(8);
        steps.push(Step::Check {
            host: 0,
            read,
            mark,
        });
        if draw.once_in(3) {
            let stop = stop(draw, 30);
            steps.push(Step::RepairPacks {
                nth: None,
                dry_run: false,
                stop,
            });
        }
    }
    if draw.once_in(3) {
        steps.push(Step::Change(edits(draw)));
    }
    let force = draw.once_in(3);
    steps.push(Step::Backup(Backup { force, ..plain() }));
    if draw.once_in(2) {
        steps.push(Step::ForgetOne {
            nth: 1,
            stop: Stop::Never,
        });
    }
    let (grace, seconds) = draw.of(&[(0, 1), (1, 2), (DAY, 25 * HOUR)]);
    for _ in 0..2 + draw.below(3) {
        steps.push(Step::Prune(Prune {
            grace: Duration::from_secs(grace),
            repack_below: 70,
            dry_run: false,
            stop: Stop::Never,
        }));
        steps.push(Step::Clock(Clock::Forward(Duration::from_secs(seconds))));
    }
}

/// One snapshot is made while the clock is wrong.
fn from_the_future(draw: &Draw, steps: &mut Vec<Step>) {
    let years = Duration::from_secs(draw.of(&[DAY, 60 * DAY, 75 * 365 * DAY]));
    steps.push(Step::Clock(Clock::Forward(years)));
    steps.push(Step::Backup(plain()));
    steps.push(Step::Clock(Clock::Right));
    for _ in 0..1 + draw.below(2) {
        steps.push(Step::Change(edits(draw)));
        steps.push(Step::Backup(plain()));
    }
    if draw.once_in(2) {
        steps.push(Step::Latest);
    }
    steps.push(Step::ForgetByRule {
        rule: rule(draw),
        dry_run: false,
    });
}

/// The target holds what nobody backed up.
fn into_a_full_place(draw: &Draw, steps: &mut Vec<Step>) {
    let backup = Backup {
        sources: draw.of(&[
            Sources::SrcAndMail,
            Sources::Src,
            Sources::DeepInSrc,
            Sources::OneFile,
        ]),
        ..plain()
    };
    steps.push(Step::Backup(backup));
    let target = draw.of(&[Target::Other(0), Target::Other(1), Target::Home]);
    if target != Target::Home {
        steps.push(Step::Litter {
            target,
            edits: edits(draw),
        });
    }
    let below = match target {
        Target::Home => Below::Home,
        _ => draw.of(&[Below::Everything, Below::Root, Below::Home, Below::Source]),
    };
    steps.push(Step::Restore(Restore {
        nth: 0,
        target,
        below,
        delete: true,
        dry_run: false,
        ..restore(draw)
    }));
}

/// A little is different, and nothing is to be stored if nothing is.
fn barely_changed(draw: &Draw, steps: &mut Vec<Step>) {
    steps.push(Step::Backup(plain()));
    if !draw.once_in(4) {
        steps.push(Step::Change(vec![edit(draw)]));
    }
    let skip_if_unchanged = true;
    steps.push(Step::Backup(Backup {
        skip_if_unchanged,
        ..plain()
    }));
}

fn newest_is_damaged(draw: &Draw, steps: &mut Vec<Step>) {
    steps.push(Step::Change(edits(draw)));
    steps.push(Step::Backup(plain()));
    let how = draw.of(&[
        How::Flip {
            at: draw.number() % 1000,
        },
        How::Cut {
            bytes: 1 + draw.number() % 200,
        },
        How::Zero { at: 0, bytes: 16 },
    ]);
    steps.push(Step::Damage(Damage {
        what: What::Snapshot,
        nth: 0,
        how,
    }));
    steps.push(Step::Latest);
    if draw.once_in(2) {
        steps.push(Step::ForgetByRule {
            rule: rule(draw),
            dry_run: false,
        });
    }
    if draw.once_in(2) {
        for nth in 0..4 {
            steps.push(Step::ForgetDamaged {
                nth,
                stop: Stop::Never,
            });
        }
        steps.push(Step::Prune(prune(draw)));
    }
}

/// A file stands whole in the target; the repository has lost a part of it.
fn over_what_is_intact(draw: &Draw, steps: &mut Vec<Step>) {
    steps.push(Step::Change(vec![write(draw, Bytes::Large(0)), edit(draw)]));
    steps.push(Step::Backup(plain()));
    let first = Restore {
        nth: 0,
        target: Target::Other(0),
        below: Below::Source,
        include: 0,
        exclude: 0,
        overwrite: 1,
        delete: false,
        dry_run: false,
        stop: Stop::Never,
        ..restore(draw)
    };
    steps.push(Step::Restore(first.clone()));
    let path = draw.below(PATHS);
    let seconds = 1_500_000_000;
    let mut litter: Vec<Edit> = (0..PATHS)
        .map(|path| Edit::Mtime { path, seconds })
        .collect();
    if draw.once_in(3) {
        litter = vec![Edit::Mtime { path, seconds }];
    }
    steps.push(Step::Litter {
        target: Target::Other(0),
        edits: litter,
    });
    steps.push(Step::Damage(Damage {
        what: What::LargestPack,
        nth: 0,
        how: draw.of(&[
            How::Flip {
                at: draw.number() % 1000,
            },
            How::Zero {
                at: draw.number() % 1000,
                bytes: 4096,
            },
        ]),
    }));
    let overwrite = draw.of(&[0, 1]);
    steps.push(Step::Restore(Restore { overwrite, ..first }));
}
