//! What takes away, and what goes on beside it: prunes and rewrites among backups, checks and
//! restores, and killed at any call.

mod check_running;
mod concurrency;
mod cost;
mod crash_operations;
mod restore_while_pruned;
mod rewrite;
mod running;
mod stale_listings;
