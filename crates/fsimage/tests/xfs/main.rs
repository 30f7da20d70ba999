//! The XFS reader against the kernel and the XFS tools: file systems made, mounted, changed and
//! broken for real.

mod damage;
mod histories;
#[path = "../mounting/mod.rs"]
mod mounting;
mod parsers;
mod reader;
mod shapes;
mod unchanged;
mod unmounted;
mod xfs_image;
