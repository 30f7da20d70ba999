//! The engine.
pub mod store;
