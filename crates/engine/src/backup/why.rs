//! Why something is stored that the parent has as well, in the words of `stat`.

use bale_format::{Entry, EntryFlags};

/// What differs from the row of the parent. Its ctime counts only where nothing else does: it
/// changes with everything. `problems`: now, or when the parent was made.
pub(super) fn differences(new: &Entry, old: &Entry) -> Vec<&'static str> {
    let problems = |row: &Entry| row.flags.0 & !EntryFlags::RACY.0;
    let checks = [
        ("kind", new.kind != old.kind),
        ("size", new.size != old.size),
        ("mtime", new.mtime != old.mtime),
        (
            "content",
            new.content_hash != old.content_hash || new.target != old.target,
        ),
        ("mode", new.mode != old.mode),
        ("owner", (new.uid, new.gid) != (old.uid, old.gid)),
        (
            "inode",
            (new.inode, new.generation, new.filesystem)
                != (old.inode, old.generation, old.filesystem),
        ),
        ("links", new.nlink != old.nlink),
        ("device", new.rdev != old.rdev),
        ("attributes", new.xattrs != old.xattrs),
        (
            "flags",
            (new.inode_flags, new.project) != (old.inode_flags, old.project),
        ),
        ("problems", problems(new) != problems(old)),
    ];
    let differing = checks.into_iter().filter(|(_, differs)| *differs);
    let mut words: Vec<&'static str> = differing.map(|(word, _)| word).collect();
    if words.is_empty() && new.ctime != old.ctime {
        words.push("ctime");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::{ChunkId, Content, Kind, Time};
    use bytes::Bytes;

    #[test]
    fn each_change_has_its_word_and_the_ctime_one_where_it_is_alone() {
        let old = Entry::new(Bytes::new(), Bytes::from_static(b"a"), Kind::File);
        let later = Time {
            seconds: 7,
            nanos: 0,
        };
        let ctime = Entry {
            ctime: later,
            ..old.clone()
        };
        assert_eq!(differences(&ctime, &old), ["ctime"]);
        let written = Entry {
            size: 9,
            mtime: later,
            content_hash: Some([1; 16]),
            ..ctime.clone()
        };
        assert_eq!(differences(&written, &old), ["size", "mtime", "content"]);
        let given = Entry { uid: 5, ..ctime };
        assert_eq!(differences(&given, &old), ["owner"]);
        let elsewhere = Content::Bundled {
            chunk: ChunkId([3; 32]),
            offset: 0,
        };
        let again = Entry {
            content: elsewhere,
            ..old.clone()
        };
        assert!(differences(&again, &old).is_empty());
    }
}
