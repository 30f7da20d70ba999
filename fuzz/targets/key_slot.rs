//! A key slot: JSON that decides how much memory a password costs. It is not opened, which would take that memory.

#![no_main]

use bale_format::KeySlot;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(slot) = KeySlot::decode(data) {
        let again = slot.encode();
        assert!(KeySlot::decode(&again).is_ok(), "what we write we read");
        let _ = (slot.kind(), slot.label(), slot.created());
    }
});
