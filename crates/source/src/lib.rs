//! What is backed up: scanning by walking and by inodes, reading in the order of the device, file
//! systems in images.
//!
//! Knows no repository: what was stored before comes in as digests and tables, and rows and content
//! go out.

#![forbid(unsafe_code)]

pub mod image;
mod magic;
mod problem;
pub mod raw;
pub mod read;
pub mod scan;
