//! The engine.
pub mod clock;
pub mod random;
pub mod store;
