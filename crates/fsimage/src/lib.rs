//! fsimage
