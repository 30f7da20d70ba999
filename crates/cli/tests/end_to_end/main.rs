//! The `bale` binary as its users meet it: what README.md and docs/SCRIPTING.md say, tried with
//! real trees.
//!
//! Every test has a home directory of its own and never touches the user's.

mod archived;
mod bench;
mod buckets;
mod choosing;
mod cold;
mod cold_store;
mod config;
mod copying;
mod copying_far;
mod counted;
mod deleting;
mod dying;
mod file_servers;
mod foreign;
mod forgetting;
mod full_servers;
mod generating;
mod golden;
mod healing;
mod hidden;
mod inits_at_once;
mod keys;
mod killing;
mod latest;
mod left_out;
mod live;
mod logins;
mod looking;
mod many_names;
mod named;
mod no_secrets;
mod places;
mod proxies;
mod put_only;
mod put_only_life;
mod readers;
mod refusing_buckets;
mod remote_life;
mod restoring;
mod secrets;
mod segments;
mod segments_far;
mod segments_read;
mod selecting;
mod serving;
mod sftp;
mod snapshot_words;
mod source;
mod thief;
mod thief_in_a_bucket;
mod tree;
mod trouble;
mod words;
