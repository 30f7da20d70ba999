//! Whether reading all inode tables pays: for a whole file system or a good part of one.

use super::promise::promised_names;
use bale_pipeline::filter::Filter;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

/// Inodes in use below which walking is as quick.
const INODES_WORTH_IT: u64 = 10_000;
/// Where only a part of a file system is asked for, one inode of so many at least must be in it, as
/// an earlier snapshot tells. Reading the tables takes about a microsecond for each inode there is,
/// walking takes several for each that is asked for.
const PART_WORTH_IT: u64 = 4;
/// The same where a look at the top levels promises how many there are: it may promise too much.
const PROMISE_WORTH_IT: u64 = 3;

/// How much of a file system is asked for.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    All,
    /// These directories, without what is excluded; entries of an earlier snapshot of them, 0:
    /// there is none.
    Of(&'a [PathBuf], &'a Filter, u64),
}

/// Reading all inode tables pays for a whole file system or a good part of one. How large the part
/// is, is known from the parent snapshot; a first backup of a part walks.
pub(super) fn is_worth_it(
    directory: BorrowedFd<'_>,
    part: Part<'_>,
) -> std::result::Result<(), String> {
    let stat = rustix::fs::fstatvfs(directory).map_err(|errno| errno.to_string())?;
    let inodes = stat.f_files.saturating_sub(stat.f_ffree);
    judge(inodes, part, promised_names)
}

fn judge(
    inodes: u64,
    part: Part<'_>,
    promised_names: impl FnOnce(&[PathBuf], &Filter, u64) -> io::Result<u64>,
) -> std::result::Result<(), String> {
    let by_inode = "--scan inode reads it by inodes all the same";
    if inodes < INODES_WORTH_IT {
        return Err(format!("there are only {inodes} inodes"));
    }
    let (paths, filter, entries_before) = match part {
        Part::All => return Ok(()),
        Part::Of(paths, filter, entries_before) => (paths, filter, entries_before),
    };
    let (about, worth_it) = match entries_before {
        0 => {
            let enough = inodes.div_ceil(PROMISE_WORTH_IT);
            let promised = promised_names(paths, filter, enough).map_err(|error| {
                format!("cannot determine how many inodes the sources have: {error} ({by_inode})")
            })?;
            (promised, promised >= enough)
        }
        before => (before, before.saturating_mul(PART_WORTH_IT) >= inodes),
    };
    match worth_it {
        true => Ok(()),
        false => Err(format!(
            "only about {about} of {inodes} inodes belong to the sources ({by_inode})"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_worth_reading_all_tables_when_it_is_known_or_promised_to_be_large() {
        let filter = Filter::default();
        let of = |entries| Part::Of(&[], &filter, entries);
        let never = |_: &[PathBuf], _: &Filter, _: u64| -> io::Result<u64> { panic!("not asked") };
        assert!(judge(INODES_WORTH_IT, Part::All, never).is_ok());
        assert!(judge(INODES_WORTH_IT - 1, Part::All, never).is_err());
        assert!(judge(1_000_000, of(250_000), never).is_ok());
        let why = judge(1_000_000, of(249_999), never).unwrap_err();
        assert!(why.contains("about 249999 of 1000000"), "{why}");
        for (promised, is_enough) in [(400_000, true), (333_334, true), (333_333, false)] {
            let judged = judge(1_000_000, of(0), |_, _, enough| {
                assert_eq!(enough, 333_334);
                Ok(promised)
            });
            assert_eq!(judged.is_ok(), is_enough, "{judged:?}");
        }
        let why = judge(1_000_000, of(0), |_, _, _| {
            Err(io::ErrorKind::TimedOut.into())
        });
        let why = why.unwrap_err();
        assert!(why.contains("cannot determine how many"), "{why}");
    }
}
