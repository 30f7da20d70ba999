//! Walking and reading what is backed up: everything that a Linux tree holds, in order, under
//! filters, and while it changes.

mod filter_patterns;
mod read_large;
mod read_small;
mod walk_left_out;
mod walk_objects;
mod walk_order;
mod walk_races;
mod walk_support;
mod walk_unfound;
