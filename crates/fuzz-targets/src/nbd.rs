//! Both sides of the NBD protocol, and headers of images that QEMU reads.

use crate::input::text;
use bale_nbd::NbdUri;
use bale_nbd::image_header::{check_vdi, check_vhdx, read_qcow2};
use bale_nbd::vmdk_descriptor::read_vmdk;
use bale_nbd::wire::negotiation::{
    ChosenContexts, ExportFact, decode_client_flags, decode_context, decode_contexts,
    decode_export_choice, decode_export_fact, decode_greeting, decode_listed, decode_option_head,
    decode_option_reply_head, encode_contexts, encode_export_choice,
};
use bale_nbd::wire::reply::{
    MAGIC_BYTES, ReadCoverage, ReplyHead, Requested, StatusRange, check_chunk, decode_error,
    decode_extents, decode_head, decode_hole, head_bytes, kept_bytes,
};
use bale_nbd::wire::request::{decode_request, encode_request, request_bytes};
use bale_nbd::wire::{ALLOCATION_CONTEXT, HeaderStyle, OPTION_BYTES_MAX};

/// A text that may be the URI of an export: what is read of it is written and read as the same.
pub fn uri(data: &[u8]) {
    let text = text(data);
    match NbdUri::parse(text) {
        Ok(mut uri) => {
            // It is not shown, being of no use to anybody else.
            uri.certificates = None;
            assert_eq!(NbdUri::parse(&uri.to_string()), Ok(uri));
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
}

/// What an NBD server or client sends before the first request, and a request, in every way that it
/// is read.
pub fn negotiation(data: &[u8]) {
    if let Some(bytes) = data.first_chunk() {
        let _ = decode_greeting(bytes);
    }
    if let Some(bytes) = data.first_chunk() {
        let _ = decode_client_flags(*bytes);
    }
    if let Some(Ok((_, len))) = data.first_chunk().map(decode_option_head) {
        assert!(len <= OPTION_BYTES_MAX);
    }
    if let Some(Ok(head)) = data.first_chunk().map(decode_option_reply_head) {
        assert!(head.len <= OPTION_BYTES_MAX);
    }
    if let Ok(ExportFact::BlockSizes(sizes)) = decode_export_fact(data) {
        assert!(sizes.minimum.is_power_of_two() && sizes.maximum >= sizes.minimum);
        assert!(sizes.maximum.is_multiple_of(sizes.minimum));
    }
    if let Ok((name, _)) = decode_export_choice(data) {
        let again = decode_export_choice(&encode_export_choice(&name));
        assert_eq!(again, Ok((name, true)));
    }
    if let Ok((export, queries)) = decode_contexts(data) {
        let texts: Vec<_> = queries.iter().map(String::as_str).collect();
        assert_eq!(
            decode_contexts(&encode_contexts(&export, &texts)),
            Ok((export, queries))
        );
    }
    let _ = (decode_context(data), decode_listed(data));
    let _ = ChosenContexts::default().push(data, &[ALLOCATION_CONTEXT]);
    for style in [HeaderStyle::Structured, HeaderStyle::Extended] {
        if let Some(bytes) = data.get(..request_bytes(style))
            && let Ok(request) = decode_request(bytes, style)
        {
            let again = decode_request(&encode_request(&request, style), style);
            assert_eq!(again.map(|again| again.bytes), Ok(request.bytes));
        }
    }
}

const RANGE: StatusRange = StatusRange {
    offset: 4096,
    bytes: 8192,
    export_len: 65536,
};

/// What an NBD server answers to requests: chunks one after the other, each in every way that it is
/// read. What it says of a range stays in the range, and data comes once.
pub fn reply(data: &[u8]) {
    let Some((choice, mut rest)) = data.split_first() else {
        return;
    };
    let style = match choice % 3 {
        0 => HeaderStyle::Simple,
        1 => HeaderStyle::Structured,
        _ => HeaderStyle::Extended,
    };
    let mut coverage = ReadCoverage::new(RANGE.offset, RANGE.bytes);
    while let Some((magic, after)) = rest.split_first_chunk::<MAGIC_BYTES>() {
        let Ok(len) = head_bytes(*magic, style) else {
            return;
        };
        let Some((head, after)) = after.split_at_checked(len) else {
            return;
        };
        let Ok(ReplyHead::Chunk(head)) = decode_head(head) else {
            return;
        };
        let kinds = [Requested::Read, Requested::Status, Requested::Nothing];
        if !(kinds.iter()).any(|kind| check_chunk(&head, *kind, RANGE.bytes, style).is_ok()) {
            return;
        }
        let Some((payload, after)) = after.split_at_checked(head.len as usize) else {
            return;
        };
        let _ = decode_error(head.kind, payload);
        if let Ok((offset, bytes)) = decode_hole(payload)
            && let Ok(start) = coverage.push(offset, bytes)
        {
            assert!(start + bytes <= RANGE.bytes);
        }
        let kept = &payload[..kept_bytes(&head) as usize];
        if let Ok((_, extents)) = decode_extents(kept, head.len, RANGE, style) {
            assert!(extents.iter().all(|extent| extent.bytes > 0));
            assert!(extents.iter().map(|extent| extent.bytes).sum::<u64>() <= RANGE.bytes);
        }
        let _ = coverage.finish();
        rest = after;
    }
}

/// The first bytes of an image of QEMU's formats: the names of files in it.
pub fn image_header(data: &[u8]) {
    let _ = (check_vdi(data), check_vhdx(data));
    if let Ok(found) = read_qcow2(data)
        && let Some(backing) = found.backing
    {
        assert!(!backing.name.is_empty() && !backing.name.contains('\0'));
    }
    if let Ok(found) = read_vmdk(data) {
        assert!(found.extents.iter().all(|name| !name.is_empty()));
    }
}
