//! More than one store, stores far away and stores of few large objects: copies, mirrors, tiers,
//! archives and segments.

mod archived_packs;
mod catalog_reach;
#[path = "../../../repository/tests/repository/catalog_seam.rs"]
mod catalog_seam;
mod copy;
mod mirror;
mod mirror_segments;
mod remote_flights;
mod remote_put_only;
mod stretched_plans;
mod stretched_projects;
mod stretched_store;
mod tiered_store;
