//! Profiles (`bale.toml`): what is written there, where each value comes from, which command lines
//! it makes, what of it is due, and the text of timers. docs/decisions/0030-profiles.md.
//!
//! Pure: it opens and starts nothing, and knows no environment and no clock. Bytes of files and the
//! moment come from whoever calls.

pub mod calendar;
pub mod cron;
pub mod due;
pub mod error;
pub mod file;
pub mod inherit;
mod nearest;
pub mod profile;
pub mod record;
pub mod steps;
pub mod units;
mod value;
pub mod words;
