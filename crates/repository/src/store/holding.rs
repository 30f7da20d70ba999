//! How a store holds an object, where it can say and change that: in a class from which it must be
//! brought back before it is read, or locked against everybody until a time.

use super::{ObjectName, Result};
use std::time::SystemTime;

/// Why an object cannot be read now: it is there, in a class from which it must be brought back. A
/// cause of an `io::Error`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Archived(pub String);

/// Can an object be read?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// At once.
    Readable,
    /// Only once somebody has it brought back.
    Cold,
    /// It is being brought back; hours, perhaps days.
    Coming,
}

/// Objects in classes from which they must be brought back.
pub trait ColdClasses: Sync {
    /// Can the object be read now?
    fn warmth(&self, name: &ObjectName) -> Result<Warmth>;

    /// Has an object that is cold brought back for so many days; says how it is after that.
    fn bring_back(&self, name: &ObjectName, days: u32) -> Result<Warmth>;
}

/// Locks of single objects: until its time nobody deletes the object, or this version of it.
pub trait ObjectLocks: Sync {
    /// Locks the object until `until`, unless it is locked until `least` anyway; true if it was
    /// not. No lock ends sooner than before.
    fn lock(&self, name: &ObjectName, least: SystemTime, until: SystemTime) -> Result<bool>;
}
