//! Where backups are kept: stores, the repository in one, its packs, its index of chunks, its
//! catalogs and snapshots.
//!
//! Knows neither what is backed up nor where it is restored to. Each byte of a repository passes
//! `store`, and each content that is believed passes the checks of `repository`.

#![forbid(unsafe_code)]

pub mod catalog;
pub mod error;
pub mod index;
pub mod limits;
pub mod metadata_cache;
pub mod pack;
pub mod repository;
pub mod snapshots;
pub mod store;
pub mod stretched;
