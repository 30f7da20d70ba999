//! The engine.
pub mod restore;
pub mod store;
