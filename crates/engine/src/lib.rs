//! The engine.
pub mod catalog;
pub mod store;
