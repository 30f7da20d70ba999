//! The generator of dense trees, for tests and measurements.

#![forbid(unsafe_code)]

pub mod generate;
