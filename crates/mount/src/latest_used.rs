//! A few values that are kept because they were used a moment ago.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Forgets what was not used for longest.
pub struct LatestUsed<K, V> {
    max: usize,
    values: HashMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Copy + Eq + Hash, V: Clone> LatestUsed<K, V> {
    /// Keeps so many.
    pub fn new(max: usize) -> LatestUsed<K, V> {
        LatestUsed {
            max,
            values: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    pub fn get(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.values.get_mut(key)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, *key);
        Some(value.clone())
    }

    pub fn put(&mut self, key: K, value: V) {
        self.uses += 1;
        if let Some((used, _)) = self.values.insert(key, (self.uses, value)) {
            self.by_use.remove(&used);
        }
        self.by_use.insert(self.uses, key);
        while self.values.len() > self.max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.values.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let mut kept = LatestUsed::new(2);
        kept.put(1, "one");
        kept.put(2, "two");
        assert_eq!(kept.get(&1), Some("one"));
        kept.put(3, "three");
        assert_eq!((kept.get(&1), kept.get(&2)), (Some("one"), None));
        kept.put(3, "again");
        assert_eq!((kept.get(&1), kept.get(&3)), (Some("one"), Some("again")));
    }
}
