//! Did a run do what it was asked for? To have ended well is not enough.

use std::fs;
use std::path::Path;

use super::super::adapters::Adapter;
use super::super::child::Ended;
use super::super::error::{Result, at_path};
use super::super::figures;
use super::super::options::Case;
use super::super::report::Trouble;
use super::super::source::count_files;
use super::place::Place;
use super::{Round, Stage};

impl Stage<'_> {
    /// What was wrong, if anything: with the run, or with what it brought back.
    pub(super) fn trouble_of(
        &self,
        round: &Round,
        case: Case,
        adapter: &Adapter,
        ended: &Ended,
        place: &Place,
    ) -> Result<Option<Trouble>> {
        if ended.is_stopped {
            self.stop_if_asked()?;
            let after = figures::seconds(ended.wall_seconds);
            return Ok(Some(Trouble::NotRun(format!(
                "ended after {after}: no time left"
            ))));
        }
        if let Some(why) = &ended.failure {
            return Ok(Some(Trouble::Failed(why.clone())));
        }
        let wrong = match case {
            Case::Restore => self.wrong_restore(round, adapter, place)?,
            Case::OneFile => wrong_file(&place.destination, &round.one.1)?,
            _ => None,
        };
        Ok(wrong.map(Trouble::Failed))
    }

    fn wrong_restore(
        &self,
        round: &Round,
        adapter: &Adapter,
        place: &Place,
    ) -> Result<Option<String>> {
        if adapter.writes_device()
            && let Some(volume) = &self.target
            && let Err(error) = volume.mount()
        {
            return Ok(Some(format!("what it wrote cannot be mounted: {error}")));
        }
        let expected = if adapter.is_incremental {
            round.tree
        } else {
            round.tree_first
        };
        let found = count_files(&place.destination)?;
        Ok((found != expected).then(|| {
            format!(
                "it ended well but restored {} files of {} bytes instead of {} of {}",
                found.files, found.bytes, expected.files, expected.bytes
            )
        }))
    }
}

/// The only file below a directory must have this content.
fn wrong_file(directory: &Path, content: &[u8]) -> Result<Option<String>> {
    let mut waiting = vec![directory.to_owned()];
    let mut found = Vec::new();
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(&at).map_err(at_path("read", &at))? {
            let path = entry.map_err(at_path("read", &at))?.path();
            if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
                waiting.push(path);
            } else {
                found.push(path);
            }
        }
    }
    let [path] = found.as_slice() else {
        return Ok(Some(format!(
            "it ended well but restored {} files instead of one",
            found.len()
        )));
    };
    let is_same = fs::read(path).map_err(at_path("read", path))? == content;
    Ok((!is_same).then(|| "it ended well but the file differs".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_restored_file_must_be_alone_and_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let wrong = |content: &[u8]| wrong_file(directory.path(), content).unwrap();
        assert!(wrong(b"x").is_some(), "nothing");
        fs::create_dir(directory.path().join("a")).unwrap();
        fs::write(directory.path().join("a/f"), b"x").unwrap();
        assert_eq!(wrong(b"x"), None);
        assert!(wrong(b"y").is_some(), "other content");
        fs::write(directory.path().join("g"), b"x").unwrap();
        assert!(wrong(b"x").is_some(), "two files");
    }
}
