//! Where in a tree a pattern can match at all: saves reading the rest of a catalog.

use bale_format::Key;
use bale_format::entry::{is_below, split};

/// Paths that are to be looked at. Paths are without leading slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    One(Vec<u8>),
    /// What is directly in a directory.
    Children(Vec<u8>),
    /// A path and everything below it.
    Subtree(Vec<u8>),
}

impl Reach {
    /// Of a pattern that is compared with whole paths. `special` are the characters that do not
    /// stand for themselves, besides the backslash, which makes the next one do.
    pub fn of(pattern: &str, special: &[char]) -> Reach {
        let mut base = Vec::new();
        let mut components = pattern.trim_matches('/').split('/');
        while let Some(component) = components.next() {
            let Some(literal) = literal(component, special) else {
                let only_stars = component.chars().all(|letter| letter == '*');
                // A class could be thought to match a slash; only the plainest case is narrowed
                // further.
                let is_one_level = (component == "*" || !only_stars)
                    && !component.contains(|letter| {
                        !matches!(letter, '*' | '?') && special.contains(&letter)
                    })
                    && !component.contains("**")
                    && components.next().is_none();
                return match is_one_level {
                    true => Reach::Children(base),
                    false => Reach::Subtree(base),
                };
            };
            if !base.is_empty() {
                base.push(b'/');
            }
            base.extend_from_slice(&literal);
        }
        Reach::One(base)
    }

    /// The path, or the directory, that it begins at.
    pub fn path(&self) -> &[u8] {
        match self {
            Reach::One(path) | Reach::Children(path) | Reach::Subtree(path) => path,
        }
    }

    /// What of it is at `root` or below; `None` if nothing is.
    pub fn within(self, root: &[u8]) -> Option<Reach> {
        if is_below(self.path(), root) {
            return Some(self);
        }
        match self {
            Reach::Children(path) if split(root).0 == path => Some(Reach::One(root.to_vec())),
            Reach::Subtree(path) if is_below(root, &path) => Some(Reach::Subtree(root.to_vec())),
            _ => None,
        }
    }

    fn covers(&self, other: &Reach) -> bool {
        match (self, other) {
            (Reach::Subtree(root), other) => is_below(other.path(), root),
            (Reach::Children(directory), Reach::One(path)) => {
                !path.is_empty() && split(path).0 == &directory[..]
            }
            (this, other) => this == other,
        }
    }

    fn widen_for(&mut self, other: &Reach) {
        if let (Reach::Children(directory), Reach::Subtree(root)) = (&*self, other)
            && !root.is_empty()
            && split(root).0 == &directory[..]
        {
            *self = Reach::Subtree(directory.clone());
        }
    }
}

/// The same paths, none of them twice, in the order of keys.
pub fn distinct(mut reaches: Vec<Reach>) -> Vec<Reach> {
    for at in 0..reaches.len() {
        let mut widened = reaches[at].clone();
        reaches.iter().for_each(|other| widened.widen_for(other));
        reaches[at] = widened;
    }
    let mut kept: Vec<Reach> = Vec::new();
    for reach in reaches {
        if !kept.iter().any(|other| other.covers(&reach)) {
            kept.retain(|other| !reach.covers(other));
            kept.push(reach);
        }
    }
    kept.sort_by_cached_key(|reach| Key::of_path(reach.path()));
    kept
}

/// The bytes that a component matches if it matches only one name.
fn literal(component: &str, special: &[char]) -> Option<Vec<u8>> {
    let mut name = String::with_capacity(component.len());
    let mut letters = component.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => name.push(letters.next()?),
            _ if special.contains(&letter) => return None,
            _ => name.push(letter),
        }
    }
    (!name.is_empty()).then(|| name.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pattern: &str) -> Reach {
        Reach::of(pattern, &['*', '?', '['])
    }

    fn one(path: &str) -> Reach {
        Reach::One(path.into())
    }

    fn children(path: &str) -> Reach {
        Reach::Children(path.into())
    }

    fn subtree(path: &str) -> Reach {
        Reach::Subtree(path.into())
    }

    #[test]
    fn a_pattern_reaches_no_further_than_its_literal_beginning() {
        assert_eq!(of("/a/b c"), one("a/b c"));
        assert_eq!(of("/a/b/"), one("a/b"));
        assert_eq!(of("/a/\\*b"), one("a/*b"));
        assert_eq!(of("/a/*.c"), children("a"));
        assert_eq!(of("/*"), children(""));
        assert_eq!(of("/home/*/x"), subtree("home"));
        assert_eq!(of("/home/[ab]"), subtree("home"));
        assert_eq!(of("/a/**"), subtree("a"));
        assert_eq!(of("/a/**/z"), subtree("a"));
        assert_eq!(of("/a/x**"), subtree("a"));
        assert_eq!(of("/a//b"), subtree("a"));
    }

    #[test]
    fn nothing_is_looked_at_twice() {
        let all = vec![
            one("a/b"),
            subtree("a"),
            one("c/d"),
            children("c"),
            one("c/e/f"),
        ];
        assert_eq!(distinct(all), [subtree("a"), children("c"), one("c/e/f")]);
        let all = vec![children("c"), subtree("c/x"), one("c/x/y")];
        assert_eq!(distinct(all), [subtree("c")]);
        assert_eq!(distinct(vec![one("a"), one("a")]), [one("a")]);
    }

    #[test]
    fn what_is_outside_is_not_looked_at() {
        assert_eq!(one("a/b").within(b"a"), Some(one("a/b")));
        assert_eq!(one("a/b").within(b"c"), None);
        assert_eq!(subtree("a").within(b"a/b"), Some(subtree("a/b")));
        assert_eq!(children("a").within(b"a/b"), Some(one("a/b")));
        assert_eq!(children("a").within(b"a/b/c"), None);
        assert_eq!(children("a").within(b""), Some(children("a")));
    }
}
