//! What an SFTP server sends: the length of a packet, then the packet in every way that it is read.

#![no_main]

use bale_remote::sftp::wire::{
    PACKET_BYTES_MAX, SftpReply, decode_file_system, decode_len, decode_limits, decode_reply,
    decode_version, shown,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some((prefix, packet)) = data.split_first_chunk::<4>() {
        if let Ok(len) = decode_len(*prefix) {
            assert!(len <= PACKET_BYTES_MAX);
        }
        let _ = decode_version(packet);
        if let Ok((_, SftpReply::Extended(bytes))) = decode_reply(packet) {
            let _ = (decode_limits(&bytes), decode_file_system(&bytes));
        }
    }
    assert!(!shown(data).contains(char::is_control));
});
