//! The `bale` binary as its users meet it: what README.md and docs/SCRIPTING.md say, tried with
//! real trees.
//!
//! Every test has a home directory of its own and never touches the user's.

mod bench;
mod choosing;
mod config;
mod counted;
mod deleting;
mod forgetting;
mod generating;
mod golden;
mod healing;
mod hidden;
mod keys;
mod killing;
mod latest;
mod left_out;
mod live;
mod looking;
mod many_names;
mod named;
mod places;
mod readers;
mod restoring;
mod secrets;
mod selecting;
mod serving;
mod snapshot_words;
mod source;
mod tree;
mod trouble;
mod words;
