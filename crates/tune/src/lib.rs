//! Measuring from outside: the generator of dense trees, and the comparison with peers.

#![forbid(unsafe_code)]

pub mod compare;
pub mod generate;
