//! Fuzz targets: one function of bytes for each decoder of untrusted bytes or text.
//!
//! A target decodes its input and asserts what must hold of anything that was accepted; on no input
//! may it panic, hang or take memory without bound. `tests/seeds.rs` feeds each with its seeds in
//! `cargo test`; `fuzz/run` searches for inputs that break one. fuzz/README.md says how a target is
//! added.

#![forbid(unsafe_code)]

pub mod catalog;
pub mod changes;
pub mod disks;
pub mod ext4;
pub mod hashes;
mod input;
pub mod keys;
pub mod nbd;
pub mod ntfs;
pub mod packs;
pub mod stores;
pub mod words;
pub mod xfs;

/// A target's name, which is that of its directory in `fuzz/seeds`, and the target.
pub type NamedTarget = (&'static str, fn(&[u8]));

/// All but the canary.
pub const TARGETS: &[NamedTarget] = &[
    ("allocated", disks::allocated),
    ("change_list", changes::change_list),
    ("cloud_place", stores::cloud_place),
    ("cloud_refusal", stores::cloud_refusal),
    ("condemned", packs::condemned),
    ("config", keys::config),
    ("damaged_packs", packs::damaged_packs),
    ("dav_multistatus", stores::dav_multistatus),
    ("decompress", packs::decompress),
    ("exclude_patterns", words::exclude_patterns),
    ("ext4_dir_block", ext4::dir_block),
    ("ext4_file_mapping", ext4::file_mapping),
    ("ext4_group_descriptor", ext4::group_descriptor),
    ("ext4_image", ext4::image),
    ("ext4_inode_table", ext4::inode_table),
    ("ext4_journal", ext4::journal),
    ("ext4_superblock", ext4::superblock),
    ("ext4_xattr_block", ext4::xattr_block),
    ("ftp_listing", stores::ftp_listing),
    ("index", packs::index),
    ("kernel_types", changes::kernel_types),
    ("key_slot", keys::key_slot),
    ("lanes", hashes::lanes),
    ("lvm2", disks::lvm2),
    ("nbd_image_header", nbd::image_header),
    ("nbd_negotiation", nbd::negotiation),
    ("nbd_reply", nbd::reply),
    ("nbd_uri", nbd::uri),
    ("ntfs_compressed", ntfs::compressed),
    ("ntfs_record", ntfs::record),
    ("ntfs_volume", ntfs::volume),
    ("object_name", packs::object_name),
    ("pack_ends", packs::pack_ends),
    ("pack_salvage", packs::pack_salvage),
    ("pack_trailer", packs::pack_trailer),
    ("partitions", disks::partitions),
    ("piece_list", catalog::piece_list),
    ("profile_file", words::profile_file),
    ("recovery_key", keys::recovery_key),
    ("rest_listing", stores::rest_listing),
    ("rest_url", stores::rest_url),
    ("run_record", words::run_record),
    ("sealed_object", keys::sealed_object),
    ("segment", catalog::segment),
    ("serve_request", stores::serve_request),
    ("sftp_packet", stores::sftp_packet),
    ("snapshot", catalog::snapshot),
    ("sources", words::sources),
    ("stretch", packs::stretch),
    ("xattrs", catalog::xattrs),
    ("xfs_acl", xfs::acl),
    ("xfs_ag_inodes", xfs::ag_inodes),
    ("xfs_attr_block", xfs::attr_block),
    ("xfs_dir_block", xfs::dir_block),
    ("xfs_free_space", xfs::free_space),
    ("xfs_inode", xfs::inode),
    ("xfs_inode_chunk_records", xfs::inode_chunk_records),
    ("xfs_log", xfs::log),
    ("xfs_superblock", xfs::superblock),
    ("xfs_unchanged", xfs::unchanged),
];

/// The target of this name.
pub fn find(name: &str) -> Option<fn(&[u8])> {
    let found = TARGETS.iter().find(|(of, _)| *of == name);
    found.map(|(_, target)| *target)
}

/// Panics on an input that is found within seconds with coverage, never without: three comparisons
/// deep. A search that lets it live finds nothing.
pub fn canary(data: &[u8]) {
    if data.len() > 2 && data[0] == b'd' && data[1] == b'i' && data[2] == b'e' {
        panic!("the canary died, as it must");
    }
}
