//! The format: what was written comes back, golden vectors stay, and damage, lies and lengths tell
//! nothing that they should not.

mod atimes;
mod damage;
mod golden;
mod key_slots;
mod reader;
mod round_trips;
mod sizes;
mod snapshots;
mod stretches;
