//! What opens a repository: its config, key slots, recovery keys, seals.

use crate::input::{keys, text};
use bale_format::config::is_authentic;
use bale_format::{Access, KeySlot, ObjectType, RecoveryKey, UnverifiedConfig};

/// The unencrypted `config` object; what is accepted is checked against the keys too.
pub fn config(data: &[u8]) {
    let keys = keys();
    let is_authentic = is_authentic(data, &keys);
    if let Ok(config) = UnverifiedConfig::decode(data) {
        assert!(data.starts_with(config.line()));
        let _ = config.repository();
        if let Ok(config) = config.verify(&keys) {
            assert!(
                is_authentic,
                "what is believed is what a holder of the keys wrote"
            );
            let _ = config.check_access(Access::Write);
        }
    }
}

/// A key slot: JSON that decides how much memory a password costs. It is not opened,
/// which would take that memory.
pub fn key_slot(data: &[u8]) {
    if let Ok(slot) = KeySlot::decode(data) {
        let again = slot.encode();
        assert!(KeySlot::decode(&again).is_ok(), "what we write we read");
        let _ = (slot.kind(), slot.label(), slot.created());
    }
}

/// A recovery key as typed: what is accepted reads the same as we would print it.
pub fn recovery_key(data: &[u8]) {
    let text = text(data);
    if let Ok(key) = RecoveryKey::from_text(text) {
        let printed = key.to_text();
        let again = RecoveryKey::from_text(&printed).expect("we read what we print");
        assert_eq!(again.to_text(), printed);
    }
}

/// A sealed object, as found and with a valid seal over any plaintext.
pub fn sealed_object(data: &[u8]) {
    const PLAIN_BYTES_MAX: usize = 1 << 20;
    let keys = keys();
    let found = keys.open_object(ObjectType::Snapshot, data, PLAIN_BYTES_MAX);
    assert!(found.is_err(), "nobody guesses a seal");
    let sealed = keys
        .seal_object(ObjectType::Snapshot, data, [3; 32])
        .expect("short enough");
    let opened = keys.open_object(ObjectType::Snapshot, &sealed, PLAIN_BYTES_MAX);
    assert_eq!(opened.as_deref(), Ok(data));
}
