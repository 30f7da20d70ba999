//! What tests believe of the stores and servers of this crate is so.

mod faulty_store;
mod proxies;
