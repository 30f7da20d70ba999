//! Key slots open with their own secret only, and a hostile slot costs nothing.

use bale_format::{
    Fault, FormatError, KeySlot, Keys, PasswordCost, RecoveryKey, RepositoryId, RootKey, SlotKind,
    SlotParameters, SlotSecret,
};

const REPOSITORY: RepositoryId = RepositoryId([2; 16]);
const CHEAP: PasswordCost = PasswordCost {
    m_kib: 64,
    t: 1,
    p: 1,
};

fn root() -> RootKey {
    RootKey::from_bytes([1; 32])
}

fn create(secret: SlotSecret<'_>) -> KeySlot {
    let new = SlotParameters {
        label: "mine",
        created: 5,
        salt: [3; 32],
        cost: CHEAP,
    };
    KeySlot::create(&root(), REPOSITORY, secret, &new).unwrap()
}

/// Root keys show nothing of themselves: compare what follows from them.
fn same_root(opened: &RootKey) -> bool {
    let id = |root: &RootKey| {
        Keys::derive(root, REPOSITORY).chunk_id(bale_format::ChunkKind::Data, b"x")
    };
    id(opened) == id(&root())
}

#[test]
fn each_secret_opens_its_slot_and_no_other() {
    let recovery = RecoveryKey::from_bytes([7; 32]);
    let other_recovery = RecoveryKey::from_bytes([8; 32]);
    let file = [9; 32];
    let secrets = [
        SlotSecret::Password(b"password"),
        SlotSecret::KeyFile(&file),
        SlotSecret::Recovery(&recovery),
    ];
    let strangers = [
        SlotSecret::Password(b"Password"),
        SlotSecret::KeyFile(&[7; 32]),
        SlotSecret::Recovery(&other_recovery),
    ];
    let kinds = [SlotKind::Password, SlotKind::KeyFile, SlotKind::Recovery];
    for (position, secret) in secrets.into_iter().enumerate() {
        let slot = KeySlot::decode(&create(secret).encode()).unwrap();
        assert_eq!(slot.kind(), kinds[position]);
        assert_eq!((slot.label(), slot.created()), ("mine", 5));
        assert!(same_root(&slot.open(REPOSITORY, secret).unwrap()));
        let others = (0..3).filter(|other| *other != position);
        for wrong in others
            .map(|other| secrets[other])
            .chain([strangers[position]])
        {
            let opened = slot.open(REPOSITORY, wrong);
            assert!(matches!(opened, Err(FormatError::WrongKey)));
        }
    }
}

#[test]
fn a_slot_moved_to_another_repository_does_not_open() {
    let slot = create(SlotSecret::Password(b"password"));
    let opened = slot.open(RepositoryId([3; 16]), SlotSecret::Password(b"password"));
    assert!(matches!(opened, Err(FormatError::Damaged { .. })));
}

#[test]
fn every_changed_letter_of_a_slot_is_refused_or_harmless() {
    let secret = [4; 40];
    let json = create(SlotSecret::KeyFile(&secret)).encode();
    for at in 0..json.len() {
        assert!(KeySlot::decode(&json[..at]).is_err() || at + 1 >= json.len());
        let mut changed = json.clone();
        changed[at] ^= 1;
        let Ok(slot) = KeySlot::decode(&changed) else {
            continue;
        };
        if let Ok(opened) = slot.open(REPOSITORY, SlotSecret::KeyFile(&secret)) {
            assert!(same_root(&opened), "byte {at}");
        }
    }
}

#[test]
fn greedy_key_derivations_are_refused_before_they_run() {
    let json = String::from_utf8(create(SlotSecret::Password(b"password")).encode()).unwrap();
    for (m_kib, t, p) in [
        (2_097_153_u64, 1_u64, 1_u64),
        (64, 17, 1),
        (1024, 1, 17),
        (2_097_152, 5, 1),
        (u64::from(u32::MAX), 1, 1),
        (0, 1, 1),
        (64, 0, 1),
        (64, 1, 0),
        (7, 1, 1),
    ] {
        let greedy = json
            .replace("\"m_kib\": 64", &format!("\"m_kib\": {m_kib}"))
            .replace("\"t\": 1", &format!("\"t\": {t}"))
            .replace("\"p\": 1", &format!("\"p\": {p}"));
        assert_ne!(greedy, json);
        // Refused while decoding: opening, which would run it, cannot even be asked for.
        let decoded = KeySlot::decode(greedy.as_bytes());
        assert!(
            matches!(decoded, Err(FormatError::Damaged { .. })),
            "{m_kib} {t} {p}"
        );
    }
    let new = SlotParameters {
        label: "",
        created: 0,
        salt: [0; 32],
        cost: PasswordCost {
            m_kib: 2_097_152,
            t: 16,
            p: 1,
        },
    };
    assert!(KeySlot::create(&root(), REPOSITORY, SlotSecret::Password(b"x"), &new).is_err());
}

#[test]
fn wrong_salts_and_lengths_are_refused() {
    let json = String::from_utf8(create(SlotSecret::KeyFile(&[4; 32])).encode()).unwrap();
    let salt = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=";
    assert!(json.contains(salt));
    assert!(KeySlot::decode(json.replace(salt, "AwMDAw==").as_bytes()).is_err());
    assert!(KeySlot::decode(json.replace("keyfile", "password").as_bytes()).is_err());
    assert!(KeySlot::decode(&vec![b' '; 16_385]).is_err());
    for length in [31, 4097] {
        let opened = KeySlot::decode(json.as_bytes())
            .unwrap()
            .open(REPOSITORY, SlotSecret::KeyFile(&vec![4; length]));
        assert!(matches!(opened, Err(FormatError::WrongKey)));
    }
}

#[test]
fn a_recovery_key_is_read_however_it_is_typed() {
    let key = RecoveryKey::from_bytes(*blake3::hash(b"paper").as_bytes());
    let slot = create(SlotSecret::Recovery(&key));
    let text = key.to_text();
    assert_eq!(text.len(), 56 + 7);
    let typed = [
        text.to_lowercase(),
        text.replace('-', " "),
        text.replace('-', "").replace('0', "O").replace('1', "l"),
        format!("  {}\n", text.replace('-', " - ").replace('1', "I")),
    ];
    for typed in typed {
        let key = RecoveryKey::from_text(&typed).unwrap();
        assert!(slot.open(REPOSITORY, SlotSecret::Recovery(&key)).is_ok());
    }
}

#[test]
fn a_mistyped_recovery_key_is_noticed() {
    let text = RecoveryKey::from_bytes([0x5c; 32]).to_text().to_string();
    for (at, letter) in text.char_indices().filter(|(_, letter)| *letter != '-') {
        let other = if letter == 'Z' { "Y" } else { "Z" };
        let mut wrong = text.clone();
        wrong.replace_range(at..=at, other);
        assert!(RecoveryKey::from_text(&wrong).is_err(), "letter {at}");
    }
    for wrong in [&text[1..], "", "U", &format!("{text}0"), "é"] {
        assert!(matches!(
            RecoveryKey::from_text(wrong),
            Err(FormatError::Damaged {
                fault: Fault::Text { .. },
                ..
            })
        ));
    }
}
