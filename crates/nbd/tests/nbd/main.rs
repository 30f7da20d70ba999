//! The client and the server of NBD, with the programs of others and with servers that lie.

mod dirty_bitmaps;
mod liar;
mod lies;
mod overlay;
mod peer;
mod peers;
mod qemu_images;
mod served;
