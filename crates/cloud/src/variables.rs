//! Variables of the environment, by a door: the program hands in its own, a test what it likes.

use std::fmt;
use std::sync::Arc;

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What variables are set to. By default there are none.
#[derive(Clone)]
pub struct Variables(Arc<Lookup>);

impl Variables {
    /// Looks each variable up when it is needed. One that is set and empty counts as not set.
    pub fn new(lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Variables {
        Variables(Arc::new(lookup))
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// The first of them that is set.
    pub(crate) fn first(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Is it set to something that means yes?
    pub(crate) fn is_on(&self, name: &str) -> bool {
        let value = self.get(name).unwrap_or_default().to_ascii_lowercase();
        !matches!(value.trim(), "" | "0" | "no" | "off" | "false")
    }
}

impl Default for Variables {
    fn default() -> Self {
        Variables::new(|_| None)
    }
}

/// Values are secrets, some of them.
impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Variables")
    }
}
