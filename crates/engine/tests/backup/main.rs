//! Backups: what counts as a change, what may be taken for unchanged, what goes on after an
//! interruption, and many at once.

mod changes;
mod clock;
mod emptied;
mod moved;
mod packs_unmixed;
mod resume;
mod unchanged;
mod writers;
