//! The engine.
pub mod filter;
pub mod scan;
pub mod store;
