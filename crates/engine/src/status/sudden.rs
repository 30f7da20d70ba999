//! Did a run replace many files of a source by data that does not compress, as nothing did before?
//!
//! That is what encryption by an attacker looks like in the records of snapshots: churn and
//! incompressibility jump together. Either alone is everyday life: an upgrade, a new camera. Judged
//! from records alone, against the source's own history; where there is too little of it, nothing
//! is said. No file is looked into.

use super::{SourceHistory, histories};
use bale_format::snapshot::{SOURCE_IS_RAW, SOURCE_IS_STREAM};
use bale_format::{ObjectId, Snapshot, Time};
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use bale_repository::snapshots::{SourceKey, confirmed};

/// Snapshots before the one that is judged, at most: a month of days.
const HISTORY_MAX: usize = 30;
/// Runs whose churn must be known: of fewer nobody can say what is usual.
const HISTORY_MIN: usize = 3;
/// Files replaced at least: below, an afternoon's work is a large share of a source.
const FILES_MIN: u64 = 200;
/// Share of the files that must have been replaced: a person replaces hundredths.
const SHARE_MIN: f64 = 0.15;
/// So many times the median of the shares before, and of the largest.
const SHARE_OF_MEDIAN_MIN: f64 = 5.0;
const SHARE_OF_LARGEST_MIN: f64 = 2.0;
/// Bytes read by the run, and known of runs before: below, what is stored is rows and not content.
const BYTES_READ_MIN: u64 = 4 << 20;
/// Of a run before, to say anything of how content compresses.
const RUN_BYTES_READ_MIN: u64 = 256 << 10;
/// A run that stored less of what it read compared files that had not changed: no compressor gets
/// that far, so it says nothing of new content.
const STORED_SHARE_MIN: f64 = 0.02;
/// What compression must have saved before. Of films, pictures and archives it saves less, so
/// encrypting them cannot be seen.
const SAVED_BEFORE_MIN: f64 = 0.20;
/// And what part of that it may save now, at most.
const SAVED_PART_MAX: f64 = 1.0 / 3.0;
/// A change that nobody minded while backups went on for so long is what the source is now.
const GUARDED_SECONDS: i64 = 60 * 86_400;

/// A snapshot whose run changed what it backs up as nothing before did, and the figures.
#[derive(Clone, Debug, PartialEq)]
pub struct SuddenChange {
    pub snapshot: ObjectId,
    /// The newest one before it.
    pub before: ObjectId,
    /// When it was made, of what.
    pub time: Time,
    pub source: SourceKey,
    /// Files that have other content, or another name, of so many there were.
    pub files_replaced: u64,
    pub files_before: u64,
    /// Median of the shares of files replaced by the runs before.
    pub usual_share: f64,
    /// Shares of what was read that compression and deduplication saved: by this run, and usually.
    pub saved: f64,
    pub saved_before: f64,
}

impl SuddenChange {
    /// Share of the files that were replaced.
    pub fn share(&self) -> f64 {
        share(self.files_replaced, self.files_before)
    }

    /// With the figures, for people.
    pub fn text(&self) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        format!(
            "snapshot {} replaced {} of {} files ({}, usually {}) by data of which compression \
             saved {}, and {} before: files that somebody encrypted look like this (bale diff {} \
             {} says which they are)",
            self.snapshot.short(),
            self.files_replaced,
            self.files_before,
            percent(self.share()),
            percent(self.usual_share),
            percent(self.saved),
            percent(self.saved_before),
            self.before.short(),
            self.snapshot.short(),
        )
    }

    /// What ends it, for whoever runs this command.
    pub fn advice(&self, command: &str) -> String {
        let id = self.snapshot.short();
        format!(
            "If the change is meant, bale {command} --despite-sudden-change {id} goes on, now and \
             later; if not, bale forget {id} lets go of it, with the later ones of its source, \
             which hold the same"
        )
    }

    /// Why nothing is deleted now.
    pub fn refusal(&self) -> Error {
        let advice = self.advice("prune");
        Error::Other(format!("prune refuses: {}. {advice}", self.text()))
    }
}

/// Of these snapshots, those that changed their source suddenly and that nobody confirmed on this
/// machine.
pub fn unconfirmed(repository: &Repository, all: &[Named]) -> Vec<SuddenChange> {
    let histories = histories(all, repository.clock().time());
    let mut found: Vec<_> = histories.iter().flat_map(sudden_changes).collect();
    if !found.is_empty() {
        let meant = confirmed::ids(repository);
        // With other tags, or pinned, it is another snapshot of the same backup.
        let is_meant = |(id, snapshot): &Named| {
            meant.contains(id) || snapshot.replaces.iter().any(|old| meant.contains(old))
        };
        found.retain(|change| {
            let named = all.iter().find(|(id, _)| *id == change.snapshot);
            !named.is_some_and(is_meant)
        });
    }
    found
}

/// Later snapshots of the source of a sudden change, which hold what it left: the oldest first.
pub fn later_ones<'a>(change: &SuddenChange, all: &'a [Named]) -> Vec<&'a Named> {
    let is_later = |(id, snapshot): &&Named| {
        *id != change.snapshot
            && snapshot.time >= change.time
            && change.source.may_be(&SourceKey::of(snapshot))
    };
    all.iter().filter(is_later).collect()
}

/// Did the run that made this snapshot change its source suddenly? Snapshots are read only if it
/// may have.
pub fn sudden_change_of(
    repository: &Repository,
    id: ObjectId,
    snapshot: &Snapshot,
) -> Result<Option<SuddenChange>> {
    if !may_be_sudden(snapshot) {
        return Ok(None);
    }
    let (all, _) = repository.snapshots_readable()?;
    let found = unconfirmed(repository, &all);
    Ok(found.into_iter().find(|change| change.snapshot == id))
}

/// Those of a source's snapshots that are as new as any attack that nobody noticed may be.
pub fn sudden_changes(history: &SourceHistory<'_>) -> Vec<SuddenChange> {
    let all = &history.snapshots;
    let Some((_, newest)) = history.last() else {
        return Vec::new();
    };
    let first_second = newest.time.seconds.saturating_sub(GUARDED_SECONDS);
    let judged = all.iter().enumerate();
    let recent = judged.take_while(|(_, (_, snapshot))| snapshot.time.seconds >= first_second);
    let found = recent.filter_map(|(at, named)| sudden_change(named, &all[at + 1..]));
    found.collect()
}

/// Judges one snapshot by those before it, of the same source and newest first.
pub fn sudden_change(named: &Named, before: &[&Named]) -> Option<SuddenChange> {
    let (id, snapshot) = named;
    let before = &before[..before.len().min(HISTORY_MAX)];
    let (previous_id, previous) = before.first()?;
    if !may_be_sudden(snapshot) {
        return None;
    }
    let replaced = replaced(snapshot, previous);
    let share_now = share(replaced, previous.totals.files);
    let (median, largest) = usual_shares(before)?;
    let is_much = replaced >= FILES_MIN
        && share_now >= SHARE_MIN
        && share_now >= median * SHARE_OF_MEDIAN_MIN
        && share_now >= largest * SHARE_OF_LARGEST_MIN;
    let (saved, saved_before) = (saved(snapshot), usually_saved(before)?);
    let is_incompressible =
        saved_before >= SAVED_BEFORE_MIN && saved <= saved_before * SAVED_PART_MAX;
    (is_much && is_incompressible).then(|| SuddenChange {
        snapshot: *id,
        before: *previous_id,
        time: snapshot.time,
        source: SourceKey::of(snapshot),
        files_replaced: replaced,
        files_before: previous.totals.files,
        usual_share: median,
        saved,
        saved_before,
    })
}

/// Can it be, whatever was before? A first backup, or one that was forced, compares with nothing;
/// images and streams have no files.
pub fn may_be_sudden(snapshot: &Snapshot) -> bool {
    let counts = &snapshot.counts;
    compares(snapshot)
        && counts.files_changed.saturating_add(counts.files_new) >= FILES_MIN
        && counts.bytes_read >= BYTES_READ_MIN
        && saved(snapshot) <= SAVED_PART_MAX
}

/// Has it files, and a parent that says which of them are new?
fn compares(snapshot: &Snapshot) -> bool {
    let has_kind = |kind: &str| snapshot.source_filesystems.iter().any(|name| name == kind);
    let has_files =
        snapshot.images.is_empty() && !has_kind(SOURCE_IS_RAW) && !has_kind(SOURCE_IS_STREAM);
    has_files && snapshot.parent.is_some() && !snapshot.partial
}

/// Files of `previous` that are not there as they were. What a source gained replaced nothing: it
/// is not half encrypted because as much came to it. A name that changed is a file that went and a
/// new one.
fn replaced(snapshot: &Snapshot, previous: &Snapshot) -> u64 {
    let counts = &snapshot.counts;
    let gained = (snapshot.totals.files).saturating_sub(previous.totals.files);
    let renewed = counts.files_new.saturating_sub(gained);
    counts.files_changed.saturating_add(renewed)
}

fn share(part: u64, whole: u64) -> f64 {
    (part as f64 / whole.max(1) as f64).min(1.0)
}

/// Median and greatest of the shares that earlier runs replaced, if enough of them are known.
fn usual_shares(before: &[&Named]) -> Option<(f64, f64)> {
    let pairs = before.windows(2);
    let compared = pairs.filter(|pair| compares(&pair[0].1));
    let shares = compared.map(|pair| {
        let (snapshot, previous) = (&pair[0].1, &pair[1].1);
        share(replaced(snapshot, previous), previous.totals.files)
    });
    let mut shares: Vec<f64> = shares.collect();
    shares.sort_by(f64::total_cmp);
    let largest = *shares.last()?;
    (shares.len() >= HISTORY_MIN).then(|| (shares[shares.len() / 2], largest))
}

/// Share of what was read that compression saved, or that was there twice. What the repository
/// has of it already says the same: an attack may be backed up again once its snapshot is gone.
fn saved(snapshot: &Snapshot) -> f64 {
    1.0 - stored_share(snapshot)
}

fn stored_share(snapshot: &Snapshot) -> f64 {
    let counts = &snapshot.counts;
    let stored = counts
        .bytes_stored
        .saturating_add(counts.bytes_stored_before);
    share(stored, counts.bytes_read)
}

/// What was saved of the byte in the middle of all that earlier runs read: a first backup, which
/// read everything, says more than a day.
fn usually_saved(before: &[&Named]) -> Option<f64> {
    let telling = before
        .iter()
        .map(|(_, snapshot)| snapshot)
        .filter(|snapshot| {
            let is_enough = snapshot.counts.bytes_read >= RUN_BYTES_READ_MIN;
            is_enough && stored_share(snapshot) >= STORED_SHARE_MIN
        });
    let mut runs: Vec<(f64, u64)> = telling
        .map(|snapshot| (saved(snapshot), snapshot.counts.bytes_read))
        .collect();
    runs.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let all: u128 = runs.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    if all < u128::from(BYTES_READ_MIN) {
        return None;
    }
    let mut passed = 0;
    let middle = runs.iter().find(|(_, bytes)| {
        passed += u128::from(*bytes);
        passed * 2 >= all
    });
    middle.map(|(saved, _)| *saved)
}

#[cfg(test)]
mod tests {
    use super::super::histories;
    use super::*;
    use bale_format::snapshot::PathText;

    const MIB: u64 = 1 << 20;
    const DAY: i64 = 86_400;
    const NOW: Time = Time {
        seconds: 1_000 * DAY,
        nanos: 0,
    };

    /// A run: files of the source, new, changed; MiB read and stored.
    #[derive(Clone, Copy)]
    struct Run {
        files: u64,
        new: u64,
        changed: u64,
        read: u64,
        stored: u64,
        before: u64,
    }

    const FIRST: Run = Run {
        files: 5_000,
        new: 5_000,
        changed: 0,
        read: 1_000,
        stored: 400,
        before: 0,
    };
    const EVERYDAY: Run = Run {
        files: 5_000,
        new: 10,
        changed: 40,
        read: 10,
        stored: 4,
        before: 0,
    };
    const ENCRYPTED: Run = Run {
        files: 5_000,
        new: 0,
        changed: 4_000,
        read: 800,
        stored: 810,
        before: 0,
    };

    /// A day between two; the first has no parent.
    fn series(runs: &[Run]) -> Vec<Named> {
        let all = runs.iter().enumerate().map(|(number, run)| {
            let days_ago = (runs.len() - number) as i64;
            let time = Time {
                seconds: NOW.seconds - days_ago * DAY,
                nanos: 0,
            };
            let mut snapshot = Snapshot::begun([0; 16], time);
            snapshot.host = "web1".to_owned();
            snapshot.paths = vec![PathText(b"/srv".to_vec())];
            snapshot.parent = (number > 0).then_some(ObjectId([number as u8; 32]));
            snapshot.totals.files = run.files;
            snapshot.counts.files_new = run.new;
            snapshot.counts.files_changed = run.changed;
            snapshot.counts.bytes_read = run.read * MIB;
            snapshot.counts.bytes_stored = run.stored * MIB;
            snapshot.counts.bytes_stored_before = run.before * MIB;
            (ObjectId([number as u8 + 1; 32]), snapshot)
        });
        all.collect()
    }

    fn usual(more: &[Run]) -> Vec<Named> {
        series(&[&[FIRST, EVERYDAY, EVERYDAY, EVERYDAY, EVERYDAY], more].concat())
    }

    fn found(all: &[Named]) -> Vec<u8> {
        let histories = histories(all, NOW);
        let found = histories.iter().flat_map(sudden_changes);
        found.map(|change| change.snapshot.0[0]).collect()
    }

    #[test]
    fn files_that_turn_into_noise_are_noticed_whether_they_keep_their_names_or_not() {
        assert_eq!(found(&usual(&[ENCRYPTED])), [6]);
        let renamed = Run {
            files: 5_200,
            new: 4_200,
            changed: 0,
            ..ENCRYPTED
        };
        let all = usual(&[renamed]);
        assert_eq!(found(&all), [6], "and a note in each directory");
        let histories = histories(&all, NOW);
        let change = &sudden_changes(&histories[0])[0];
        assert_eq!((change.files_replaced, change.files_before), (4_000, 5_000));
        assert_eq!(change.before, ObjectId([5; 32]));
        let text = change.text();
        assert!(
            text.contains("4000 of 5000 files (80 %, usually 1 %)"),
            "{text}"
        );
        assert!(text.contains("saved 0 %, and 60 % before"), "{text}");
    }

    #[test]
    fn what_came_later_does_not_end_it_and_two_months_do() {
        let later = [ENCRYPTED, EVERYDAY, EVERYDAY];
        assert_eq!(found(&usual(&later)), [6]);
        let mut all = usual(&later);
        let earlier = all.iter_mut().take(7);
        earlier.for_each(|(_, snapshot)| snapshot.time.seconds -= GUARDED_SECONDS);
        assert_eq!(found(&all), [0u8; 0]);
        // Who forgets it ends it.
        let mut all = usual(&later);
        all.remove(5);
        assert_eq!(found(&all), [0u8; 0]);
    }

    /// By another source, or by a snapshot that was forgotten.
    #[test]
    fn noise_that_the_repository_has_already_is_noticed() {
        let again = Run {
            stored: 1,
            before: 805,
            ..ENCRYPTED
        };
        assert_eq!(found(&usual(&[again])), [6]);
    }

    #[test]
    fn churn_alone_and_noise_alone_are_everyday_life() {
        let upgrade = Run {
            stored: 320,
            ..ENCRYPTED
        };
        let camera = Run {
            changed: 50,
            ..ENCRYPTED
        };
        let photos = Run {
            files: 9_000,
            new: 4_000,
            changed: 10,
            ..ENCRYPTED
        };
        let touched = Run {
            read: 1_000,
            stored: 1,
            before: 400,
            ..ENCRYPTED
        };
        for (words, run) in [
            ("an upgrade", upgrade),
            ("few new films", camera),
            ("as many pictures as there were texts", photos),
            ("touched and not changed", touched),
        ] {
            assert_eq!(found(&usual(&[run])), [0u8; 0], "{words}");
        }
    }

    #[test]
    fn a_source_that_never_compressed_says_nothing() {
        let films = |run: Run| Run {
            stored: run.read,
            ..run
        };
        let runs = [FIRST, EVERYDAY, EVERYDAY, EVERYDAY, EVERYDAY, ENCRYPTED];
        assert_eq!(found(&series(&runs.map(films))), [0u8; 0]);
    }

    /// Comparing what did not change stores nothing, which is not compression.
    #[test]
    fn runs_that_only_read_again_are_no_evidence_of_compression() {
        let again = Run {
            stored: 0,
            ..EVERYDAY
        };
        let first = Run {
            stored: 1_000,
            ..FIRST
        };
        let all = [first, again, again, again, again, again, ENCRYPTED];
        assert_eq!(found(&series(&all)), [0u8; 0]);
        assert_eq!(
            found(&series(&all[1..])),
            [0u8; 0],
            "with the first one forgotten"
        );
    }

    #[test]
    fn a_source_that_is_always_replaced_is_not_alarming() {
        let all = [FIRST, ENCRYPTED, EVERYDAY, EVERYDAY, EVERYDAY, ENCRYPTED];
        assert_eq!(found(&series(&all)), [0u8; 0]);
    }

    #[test]
    fn first_and_forced_backups_images_streams_and_unfinished_runs_judge_nothing() {
        type Spoil = fn(&mut Snapshot);
        let spoil: [(&str, Spoil); 4] = [
            ("forced", |snapshot| snapshot.parent = None),
            ("an image", |snapshot| {
                snapshot.source_filesystems = vec![SOURCE_IS_RAW.to_owned()];
            }),
            ("a stream", |snapshot| {
                snapshot.source_filesystems = vec![SOURCE_IS_STREAM.to_owned()];
            }),
            ("unfinished", |snapshot| snapshot.partial = true),
        ];
        for (words, spoil) in spoil {
            let mut all = usual(&[ENCRYPTED]);
            all.iter_mut()
                .skip(if words == "forced" { 5 } else { 0 })
                .for_each(|one| {
                    spoil(&mut one.1);
                });
            assert_eq!(found(&all), [0u8; 0], "{words}");
        }
        assert_eq!(found(&series(&[ENCRYPTED])), [0u8; 0]);
    }

    #[test]
    fn too_little_history_and_small_sources_judge_nothing() {
        assert_eq!(
            found(&series(&[FIRST, EVERYDAY, EVERYDAY, ENCRYPTED])),
            [0u8; 0]
        );
        let four = [FIRST, EVERYDAY, EVERYDAY, EVERYDAY, ENCRYPTED];
        assert_eq!(found(&series(&four)), [5]);
        let small = |run: Run| Run {
            files: run.files / 40,
            new: run.new / 40,
            changed: run.changed / 40,
            ..run
        };
        assert_eq!(found(&series(&four.map(small))), [0u8; 0]);
        let light = |run: Run| Run {
            read: run.read / 300,
            stored: run.stored / 300,
            ..run
        };
        assert_eq!(found(&series(&four.map(light))), [0u8; 0]);
    }

    /// Records come from whoever could write to the repository.
    #[test]
    fn numbers_beyond_all_measure_end_in_no_panic() {
        let wild = Run {
            files: u64::MAX,
            new: u64::MAX,
            changed: u64::MAX,
            read: u64::MAX / MIB,
            stored: u64::MAX / MIB,
            before: 0,
        };
        let none = Run {
            files: 0,
            new: 0,
            changed: 0,
            read: 0,
            stored: 0,
            before: 0,
        };
        for last in [wild, none, ENCRYPTED] {
            for usual in [wild, none] {
                let runs = [usual, usual, usual, usual, usual, last];
                assert_eq!(found(&series(&runs)), [0u8; 0]);
            }
        }
    }
}
