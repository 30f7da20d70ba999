//! sys
pub mod restore_calls;
