//! Repositories that are damaged, cut or lied about: found out, named, never taken for good, and
//! mended from whatever is left.

mod cold_repair;
mod config_twice;
mod error_words;
mod forget;
mod healed;
mod lists;
mod marks;
mod one_decoder;
mod pack_head;
mod prune;
mod repository;
mod snapshots_missed;
