//! What is tried: what writers do, what must hold, and what is not proven.

use super::{Mode, Rule, Step, Unit, Without};

const WRITE: [Step; 5] = [
    Step::Lock,
    Step::Stamp,
    Step::Page(0, 2),
    Step::Page(1, 2),
    Step::Unlock,
];
const WRITE_TWICE: [Step; 10] = [
    Step::Lock,
    Step::Stamp,
    Step::Page(0, 2),
    Step::Page(1, 2),
    Step::Unlock,
    Step::Lock,
    Step::Stamp,
    Step::Page(0, 3),
    Step::Page(1, 3),
    Step::Unlock,
];
const STORE: [Step; 3] = [Step::Store(0, 2), Step::Store(0, 3), Step::Store(1, 3)];
const WRITE_AND_STORE: [Step; 7] = [
    Step::Lock,
    Step::Stamp,
    Step::Page(0, 2),
    Step::Page(1, 2),
    Step::Unlock,
    Step::Store(0, 3),
    Step::Store(1, 3),
];
const CUT_AND_WRITE: [Step; 10] = [
    Step::Lock,
    Step::Cut(0),
    Step::Stamp,
    Step::Unlock,
    Step::Lock,
    Step::Stamp,
    Step::Page(0, 2),
    Step::Page(1, 2),
    Step::Cut(2),
    Step::Unlock,
];
const MOVE: [Step; 2] = [Step::Move, Step::Reuse];
const MOVE_AND_WRITE: [Step; 7] = [
    Step::Move,
    Step::Reuse,
    Step::Lock,
    Step::Stamp,
    Step::Page(0, 2),
    Step::Page(1, 2),
    Step::Unlock,
];
const RENAME_AND_CUT: [Step; 5] = [
    Step::Rename,
    Step::Lock,
    Step::Cut(0),
    Step::Stamp,
    Step::Unlock,
];
const RENAME_AND_MOVE: [Step; 3] = [Step::Rename, Step::Move, Step::Reuse];
const DIRECT: [Step; 5] = [
    Step::BeginDirect,
    Step::Stamp,
    Step::Block(0, 2),
    Step::Block(1, 2),
    Step::EndDirect,
];
/// Of kernels before 5.18: the hole is there before the time.
const PUNCH: [Step; 4] = [Step::Lock, Step::Page(0, 0), Step::Stamp, Step::Unlock];

const PROGRAMS: [&[Step]; 11] = [
    &WRITE,
    &WRITE_TWICE,
    &STORE,
    &WRITE_AND_STORE,
    &CUT_AND_WRITE,
    &MOVE,
    &MOVE_AND_WRITE,
    &RENAME_AND_CUT,
    &RENAME_AND_MOVE,
    &DIRECT,
    &PUNCH,
];

const UNITS: [Unit; 2] = [Unit::Nanosecond, Unit::Second];

fn rule(mode: Mode, unit: Unit) -> Rule {
    Rule {
        mode,
        unit,
        without: Without::Nothing,
        may_crash: false,
        writes_later: false,
    }
}

fn assert_right(rule: Rule, programs: &[&[Step]]) {
    for program in programs {
        let (mode, unit) = (rule.mode, rule.unit);
        let fault = rule.find_fault(program);
        assert!(fault.is_none(), "{mode:?} {unit:?} {program:?}: {fault:#?}");
    }
}

/// Is anything wrong with a rule that is not whole?
fn goes_wrong(without: Without, mode: Mode, unit: Unit, may_crash: bool) -> bool {
    let rule = Rule {
        mode,
        unit,
        without,
        may_crash,
        writes_later: false,
    };
    let mut programs = PROGRAMS.iter();
    programs.any(|program| rule.find_fault(program).is_some())
}

#[test]
fn once_nobody_writes_the_next_backup_has_every_byte() {
    for mode in [Mode::Walk, Mode::Frozen, Mode::Unfrozen] {
        for unit in UNITS {
            assert_right(rule(mode, unit), &PROGRAMS);
        }
    }
}

#[test]
fn what_a_crash_takes_back_is_read_again() {
    // Not a hole that is not stamped yet.
    let programs: [&[Step]; 5] = [&WRITE, &STORE, &CUT_AND_WRITE, &MOVE, &RENAME_AND_CUT];
    for mode in [Mode::Walk, Mode::Frozen, Mode::Unfrozen] {
        let rule = Rule {
            may_crash: true,
            ..rule(mode, Unit::Nanosecond)
        };
        assert_right(rule, &programs);
    }
}

#[test]
fn every_part_of_the_rule_is_needed() {
    for (without, mode, unit, may_crash) in [
        (Without::Barrier, Mode::Walk, Unit::Nanosecond, false),
        (Without::Barrier, Mode::Frozen, Unit::Nanosecond, false),
        (Without::Barrier, Mode::Unfrozen, Unit::Nanosecond, false),
        (Without::SecondLook, Mode::Frozen, Unit::Nanosecond, false),
        (Without::Moved, Mode::Frozen, Unit::Nanosecond, false),
        (Without::UnitsOfTimes, Mode::Walk, Unit::Second, false),
        (Without::UnitsOfTimes, Mode::Frozen, Unit::Second, false),
        (Without::UnitsOfTimes, Mode::Unfrozen, Unit::Second, false),
        (
            Without::KernelInSecondPass,
            Mode::Frozen,
            Unit::Nanosecond,
            false,
        ),
        (
            Without::WaitingForWriters,
            Mode::Walk,
            Unit::Nanosecond,
            false,
        ),
        (
            Without::AskingForWriters,
            Mode::Walk,
            Unit::Nanosecond,
            false,
        ),
        (
            Without::AskingForWriters,
            Mode::Unfrozen,
            Unit::Nanosecond,
            false,
        ),
        (Without::WritingBack, Mode::Walk, Unit::Nanosecond, false),
        (
            Without::WritingBack,
            Mode::Unfrozen,
            Unit::Nanosecond,
            false,
        ),
        (Without::WritingBack, Mode::Walk, Unit::Nanosecond, true),
        (
            Without::ForgettingAsked,
            Mode::Frozen,
            Unit::Nanosecond,
            true,
        ),
    ] {
        let story = format!("{mode:?} {unit:?} without {without:?}");
        assert!(goes_wrong(without, mode, unit, may_crash), "{story}");
    }
}

/// Gaps that are known, so that nobody takes the model for more than it is: it sees them.
#[test]
fn what_is_not_proven() {
    for mode in [Mode::Walk, Mode::Frozen, Mode::Unfrozen] {
        let rule = Rule {
            may_crash: true,
            ..rule(mode, Unit::Nanosecond)
        };
        // A hole under the old time that a crash takes back.
        let is_asked = mode != Mode::Frozen;
        assert_eq!(rule.find_fault(&PUNCH).is_some(), is_asked, "{mode:?}");
        // Bytes that were written after the backup and came to the disk before their time did.
        let rule = Rule {
            writes_later: true,
            ..rule
        };
        assert!(rule.find_fault(&WRITE).is_some(), "{mode:?}");
    }
}
