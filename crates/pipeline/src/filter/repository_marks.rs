//! By what a directory is known as a repository, to a backup that leaves it out and to a restore
//! that must not delete it.

use super::Mark;

/// Name of the file that marks a repository in a directory (docs/FORMAT.md, section 1).
pub const TAG_NAME: &str = "BALE-REPOSITORY.TAG";
/// How it begins.
pub const TAG_SIGNATURE: &str = "Signature: bale repository 5c1f0a3e9b7d4286";
/// Names of `config` and its copy.
pub const CONFIG_NAMES: [&str; 2] = ["config", "config.copy"];
/// How both begin.
const CONFIG_START: &str = "{\"format\":";

/// The tag, and a `config` or a copy of it.
#[derive(Clone, Debug)]
pub struct RepositoryMarks {
    tag: Vec<Mark>,
    configs: Vec<Mark>,
}

impl Default for RepositoryMarks {
    fn default() -> RepositoryMarks {
        let mark = |name: &str, start: &str| Mark::parse(format!("{name}:{start}").as_bytes());
        let config = |name: &str| mark(name, CONFIG_START);
        RepositoryMarks {
            tag: mark(TAG_NAME, TAG_SIGNATURE).into_iter().collect(),
            configs: CONFIG_NAMES.into_iter().filter_map(config).collect(),
        }
    }
}

impl RepositoryMarks {
    /// Does a directory bear them, of which `bears` says whether it bears one?
    pub fn are_borne(&self, mut bears: impl FnMut(&Mark) -> bool) -> bool {
        self.tag.iter().all(&mut bears) && self.configs.iter().any(bears)
    }
}
