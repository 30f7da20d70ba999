//! What stands in the directories of a repository and is no object: nothing of it is read, followed
//! or removed, and somebody must learn of it.

use std::fmt;

/// Something among the objects that is none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignEntry {
    /// Relative path; what is no UTF-8 in it is replaced.
    pub path: String,
    pub kind: ForeignKind,
}

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForeignKind {
    /// Its name is that of no object.
    Name,
    /// A directory under the name of an object.
    Directory,
    /// A link, or something special, under the name of an object or of a directory of objects.
    Link,
    /// A file under the name of a directory of objects.
    File,
}

impl ForeignKind {
    /// Is an object missing, perhaps, in whose place it stands?
    pub fn is_in_the_way(self) -> bool {
        self != ForeignKind::Name
    }

    /// In words.
    pub fn meaning(self) -> &'static str {
        match self {
            ForeignKind::Name => "no object has such a name",
            ForeignKind::Directory => "a directory in the place of an object",
            ForeignKind::Link => "a link or a special file, which is not followed",
            ForeignKind::File => "a file in the place of a directory",
        }
    }

    /// For scripts.
    pub fn text(self) -> &'static str {
        match self {
            ForeignKind::Name => "name",
            ForeignKind::Directory => "directory",
            ForeignKind::Link => "link",
            ForeignKind::File => "file",
        }
    }
}

impl fmt::Display for ForeignEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path, self.kind.meaning())
    }
}
