//! What an NBD server or client sends before the first request, and a request, in every way that it
//! is read.

#![no_main]

use bale_nbd::wire::negotiation::{
    ChosenContexts, ExportFact, decode_client_flags, decode_context, decode_contexts,
    decode_export_choice, decode_export_fact, decode_greeting, decode_listed, decode_option_head,
    decode_option_reply_head, encode_contexts, encode_export_choice,
};
use bale_nbd::wire::request::{decode_request, encode_request, request_bytes};
use bale_nbd::wire::{ALLOCATION_CONTEXT, HeaderStyle, OPTION_BYTES_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
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
});
