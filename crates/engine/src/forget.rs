//! Which snapshots stay: the keep rules, and the reason for each decision.
//!
//! A plan is data: it can be printed and only what it says is applied. Rules work on groups of
//! snapshots (host, paths, file systems, tags), newest first. A snapshot without any rule that
//! keeps it goes. If no rule is given at all, nothing goes. What is dated in the future stays and
//! counts for nothing. `by_id` is for a single object, also one that cannot be read.

mod by_id;
mod plan;
mod policy;

pub use by_id::{FoundObject, find, remove};
pub use plan::{Decision, ForgetPlan, GroupBy, SnapshotGroup, plan};
pub use policy::{Keep, Policy, Within};
