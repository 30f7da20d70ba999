//! Entrances for fuzzing: each parser over bare bytes. Not for other use.

use super::attributes::decode_list;
use super::boot::{BOOT_BYTES, NtfsBoot};
use super::record::{ATTRIBUTE_LIST, AttributeBody, MftRecord, forget_reading};
use super::stream::NtfsStream;
use super::{Ntfs, linux_kind, log, lznt1, names, reparse};
use std::sync::Arc;

/// A volume of 1 GiB in clusters of 4 KiB.
fn example() -> NtfsBoot {
    NtfsBoot {
        sector_bytes: 512,
        cluster_bytes: 4096,
        clusters: 1 << 18,
        sectors: 1 << 21,
        mft_cluster: 4,
        mirror_cluster: 1 << 17,
        record_bytes: 1024,
        serial: 0,
    }
}

/// A boot sector.
pub fn boot(bytes: &[u8]) {
    if let Some(sector) = bytes.first_chunk::<BOOT_BYTES>() {
        let _ = NtfsBoot::parse(sector, 1 << 40);
    }
}

/// A record with its attributes; also one whose fixups are taken for undone.
pub fn record(bytes: &[u8]) {
    let mut torn = bytes.to_vec();
    torn.resize(1024, 0);
    let mut whole = torn.clone();
    forget_reading(&mut whole, true);
    for record in [MftRecord::parse(0, &mut torn), MftRecord::undone(0, &whole)] {
        let Ok(record) = record else {
            continue;
        };
        for attribute in record.attributes().map_while(Result::ok) {
            let _ = NtfsStream::begin(&example(), &attribute);
            if let AttributeBody::Resident(value) = attribute.body {
                let _ = names::decode_name(value);
                let _ = reparse::link_target(value);
                let _ = linux_kind::of_reparse_point(value, 0, value);
                let _ = linux_kind::of_interix(4, value);
                if attribute.kind == ATTRIBUTE_LIST {
                    let _ = decode_list(value);
                }
            }
        }
    }
}

/// Compressed data, as much of it as is compressed together.
pub fn compressed(bytes: &[u8]) {
    let _ = lznt1::decompress(bytes, &mut [0; 64 << 10]);
}

/// The first bytes of a log.
pub fn log_head(bytes: &[u8]) {
    let _ = log::is_clean(bytes);
}

/// A volume: all its files, with what they hold.
pub fn volume(bytes: &[u8]) {
    let mut device = bytes.to_vec();
    device.resize(bytes.len().next_multiple_of(512), 0);
    let device_bytes = device.len() as u64;
    let Ok(ntfs) = Ntfs::open(Arc::new(device)) else {
        return;
    };
    let security = ntfs.security_descriptors();
    for piece in ntfs.table() {
        assert!(piece.offset + piece.bytes <= device_bytes);
    }
    let mut buffer = [0; 4096];
    ntfs.files(0, u64::MAX, &mut |number, file| {
        let Ok(file) = file else {
            return;
        };
        let _ = file.inode();
        for (_, stream) in file.streams() {
            let _ = ntfs.extents(stream).count();
            let len = stream.size().min(4096) as usize;
            let _ = ntfs.read_content(number, stream, 0, &mut buffer[..len]);
        }
        let _ = ntfs.xattrs(&file, security.as_ref().ok());
        let _ = ntfs.is_below_internal(file.reference);
    });
}
