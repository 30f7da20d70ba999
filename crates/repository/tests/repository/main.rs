//! Stores, catalogs, keys, uploads and caches: each keeps what it acknowledged, whatever stops,
//! lies or comes twice.

mod catalog_export;
mod catalog_layers;
mod catalog_model;
mod catalog_seam;
mod concurrency_init;
mod keys;
mod remote_cache;
mod store_conformance;
mod store_crash;
mod stretched_twice;
mod uploads;
