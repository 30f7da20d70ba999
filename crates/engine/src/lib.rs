//! The engine.
pub mod filter;
pub mod read;
pub mod scan;
pub mod store;
