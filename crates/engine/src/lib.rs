//! The engine.
pub mod catalog;
pub mod spill;
pub mod store;
