//! Key slots: the root key, wrapped for one password, key file or recovery key. docs/FORMAT.md,
//! section 3.
//!
//! What a slot asks of the key derivation is checked before it runs: a hostile slot must not eat
//! memory or hours.

use crate::aead::SealKey;
use crate::error::{Fault, FormatError};
use crate::id::RepositoryId;
use crate::keys::RootKey;
use crate::limits::{
    KDF_M_KIB_MAX, KDF_P_MAX, KDF_T_MAX, KDF_WORK_KIB_MAX, KEY_FILE_BYTES_MAX, KEY_FILE_BYTES_MIN,
    KEY_LABEL_BYTES_MAX, KEY_SLOT_BYTES_MAX,
};
use crate::recovery::RecoveryKey;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

const WHAT: &str = "key slot";
const VERSION: u64 = 1;
const WRAPPED_BYTES: usize = 48;
/// Each wrapping key wraps once.
const NONCE: [u8; 12] = [0; 12];
const PASSWORD_SALT_BYTES_MIN: usize = 16;
const PASSWORD_SALT_BYTES_MAX: usize = 64;

/// What somebody knows or holds.
#[derive(Clone, Copy)]
pub enum SlotSecret<'a> {
    /// Any bytes.
    Password(&'a [u8]),
    /// Content of a key file, 32 to 4096 bytes.
    KeyFile(&'a [u8]),
    /// A printed recovery key.
    Recovery(&'a RecoveryKey),
}

/// What opens a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotKind {
    Password,
    KeyFile,
    /// A recovery key.
    Recovery,
}

/// What Argon2id is asked to spend on one password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordCost {
    /// Memory.
    pub m_kib: u32,
    /// Passes.
    pub t: u32,
    /// Lanes.
    pub p: u32,
}

impl Default for PasswordCost {
    /// 64 MiB and three passes: 0.15 s here, and too much for anybody's dictionary.
    fn default() -> PasswordCost {
        PasswordCost {
            m_kib: 64 << 10,
            t: 3,
            p: 4,
        }
    }
}

impl PasswordCost {
    fn check(self) -> Result<(), FormatError> {
        let work_kib = u64::from(self.m_kib) * u64::from(self.t);
        for (field, found, max) in [
            ("m_kib", u64::from(self.m_kib), u64::from(KDF_M_KIB_MAX)),
            ("t", u64::from(self.t), u64::from(KDF_T_MAX)),
            ("p", u64::from(self.p), u64::from(KDF_P_MAX)),
            ("m_kib * t", work_kib, KDF_WORK_KIB_MAX),
        ] {
            if found > max {
                return Err(FormatError::damaged(
                    WHAT,
                    Fault::Over { field, found, max },
                ));
            }
        }
        self.params().map(|_| ())
    }

    fn params(self) -> Result<argon2::Params, FormatError> {
        argon2::Params::new(self.m_kib, self.t, self.p, Some(32)).map_err(|_| {
            FormatError::damaged(
                WHAT,
                Fault::Value {
                    field: "m_kib",
                    found: u64::from(self.m_kib),
                },
            )
        })
    }
}

/// How a secret becomes a key. Its compact JSON is part of the wrapped key's additional data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kdf {
    #[serde(rename = "argon2id")]
    Argon2id {
        m_kib: u32,
        t: u32,
        p: u32,
        salt: Base64Bytes,
    },
    #[serde(rename = "blake3")]
    Blake3 { salt: Base64Bytes },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Base64Bytes(Vec<u8>);

impl Serialize for Base64Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BASE64
            .decode(String::deserialize(deserializer)?)
            .map(Base64Bytes)
            .map_err(serde::de::Error::custom)
    }
}

#[derive(Deserialize)]
struct SlotOnly {
    slot: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SlotJson {
    slot: u64,
    kind: SlotKind,
    label: String,
    created: i64,
    kdf: Kdf,
    commitment: Base64Bytes,
    wrapped: Base64Bytes,
}

/// One way into a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySlot(SlotJson);

/// What a new slot is made with.
#[derive(Clone, Debug)]
pub struct SlotParameters<'a> {
    /// For people.
    pub label: &'a str,
    /// Seconds since 1970.
    pub created: i64,
    /// Random.
    pub salt: [u8; 32],
    /// Used for passwords only.
    pub cost: PasswordCost,
}

impl KeySlot {
    /// Wraps `root` for `secret`, and opens the slot again to be sure.
    pub fn create(
        root: &RootKey,
        repository: RepositoryId,
        secret: SlotSecret<'_>,
        new: &SlotParameters<'_>,
    ) -> Result<KeySlot, FormatError> {
        if new.label.len() > KEY_LABEL_BYTES_MAX {
            return Err(FormatError::TooLarge {
                what: "label of a key slot",
                found: new.label.len() as u64,
                max: KEY_LABEL_BYTES_MAX as u64,
            });
        }
        let salt = Base64Bytes(new.salt.to_vec());
        let PasswordCost { m_kib, t, p } = new.cost;
        let (kind, kdf) = match secret {
            SlotSecret::Password(_) => (SlotKind::Password, Kdf::Argon2id { m_kib, t, p, salt }),
            SlotSecret::KeyFile(_) => (SlotKind::KeyFile, Kdf::Blake3 { salt }),
            SlotSecret::Recovery(_) => (SlotKind::Recovery, Kdf::Blake3 { salt }),
        };
        let key = derive_kek(&kdf, secret)?;
        let mut wrapped = Vec::with_capacity(WRAPPED_BYTES);
        wrap_key(&key).seal(
            NONCE,
            &wrap_aad(repository, &kdf),
            root.bytes(),
            &mut wrapped,
        );
        let slot = KeySlot(SlotJson {
            slot: VERSION,
            kind,
            label: new.label.to_owned(),
            created: new.created,
            commitment: Base64Bytes(commitment(&key).as_bytes().to_vec()),
            kdf,
            wrapped: Base64Bytes(wrapped),
        });
        let read_back = slot.unwrap(repository, &key)?;
        let decoded = KeySlot::decode(&slot.encode())?;
        if read_back.bytes() != root.bytes() || decoded != slot {
            return Err(FormatError::NotVerified { what: WHAT });
        }
        Ok(slot)
    }

    /// The root key, or `WrongKey` if this slot is another secret's.
    pub fn open(
        &self,
        repository: RepositoryId,
        secret: SlotSecret<'_>,
    ) -> Result<RootKey, FormatError> {
        if self.0.kind != kind_of(secret) {
            return Err(FormatError::WrongKey);
        }
        if let SlotSecret::KeyFile(bytes) = secret
            && !is_key_file_length(bytes)
        {
            // No slot is made of such a file.
            return Err(FormatError::WrongKey);
        }
        let key = derive_kek(&self.0.kdf, secret)?;
        self.unwrap(repository, &key)
    }

    /// What opens it.
    pub fn kind(&self) -> SlotKind {
        self.0.kind
    }

    /// For people.
    pub fn label(&self) -> &str {
        &self.0.label
    }

    /// Seconds since 1970.
    pub fn created(&self) -> i64 {
        self.0.created
    }

    /// The object's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(&self.0).expect("a slot has a JSON form");
        bytes.push(b'\n');
        bytes
    }

    /// From an object's bytes. Nothing is derived yet, but everything the derivation would need is
    /// within its bounds.
    pub fn decode(bytes: &[u8]) -> Result<KeySlot, FormatError> {
        if bytes.len() > KEY_SLOT_BYTES_MAX {
            return Err(FormatError::over(
                WHAT,
                "length",
                bytes.len(),
                KEY_SLOT_BYTES_MAX,
            ));
        }
        let json = |error| FormatError::json(WHAT, &error);
        let version = serde_json::from_slice::<SlotOnly>(bytes)
            .map_err(json)?
            .slot;
        if version > VERSION {
            return Err(FormatError::Newer {
                what: WHAT,
                found: version,
                known: VERSION,
            });
        }
        let slot: SlotJson = serde_json::from_slice(bytes).map_err(json)?;
        check_slot(&slot)?;
        Ok(KeySlot(slot))
    }

    fn unwrap(&self, repository: RepositoryId, key: &[u8; 32]) -> Result<RootKey, FormatError> {
        let expected: [u8; 32] = self.0.commitment.0[..].try_into().map_err(|_| {
            FormatError::damaged(
                WHAT,
                Fault::Mismatch {
                    field: "commitment",
                },
            )
        })?;
        // blake3::Hash compares in constant time.
        if commitment(key) != expected {
            return Err(FormatError::WrongKey);
        }
        let mut root = Zeroizing::new(Vec::new());
        wrap_key(key).open(
            WHAT,
            NONCE,
            &wrap_aad(repository, &self.0.kdf),
            &self.0.wrapped.0,
            &mut root,
        )?;
        let bytes = root[..].try_into().map_err(|_| {
            FormatError::damaged(
                WHAT,
                Fault::Length {
                    expected: 32,
                    found: root.len() as u64,
                },
            )
        })?;
        Ok(RootKey::from_bytes(bytes))
    }
}

fn kind_of(secret: SlotSecret<'_>) -> SlotKind {
    match secret {
        SlotSecret::Password(_) => SlotKind::Password,
        SlotSecret::KeyFile(_) => SlotKind::KeyFile,
        SlotSecret::Recovery(_) => SlotKind::Recovery,
    }
}

fn check_slot(slot: &SlotJson) -> Result<(), FormatError> {
    let value = |field, found: usize| {
        FormatError::damaged(
            WHAT,
            Fault::Value {
                field,
                found: found as u64,
            },
        )
    };
    if slot.slot == 0 {
        return Err(value("slot", 0));
    }
    if slot.label.len() > KEY_LABEL_BYTES_MAX {
        return Err(value("length of the label", slot.label.len()));
    }
    if slot.commitment.0.len() != 32 {
        return Err(value("length of the commitment", slot.commitment.0.len()));
    }
    if slot.wrapped.0.len() != WRAPPED_BYTES {
        return Err(value("length of the wrapped key", slot.wrapped.0.len()));
    }
    match (&slot.kdf, slot.kind) {
        (Kdf::Argon2id { m_kib, t, p, salt }, SlotKind::Password) => {
            let bounds = PASSWORD_SALT_BYTES_MIN..=PASSWORD_SALT_BYTES_MAX;
            if !bounds.contains(&salt.0.len()) {
                return Err(value("length of the salt", salt.0.len()));
            }
            let (m_kib, t, p) = (*m_kib, *t, *p);
            PasswordCost { m_kib, t, p }.check()
        }
        (Kdf::Blake3 { salt }, SlotKind::KeyFile | SlotKind::Recovery) => match salt.0.len() {
            32 => Ok(()),
            length => Err(value("length of the salt", length)),
        },
        _ => Err(FormatError::damaged(WHAT, Fault::Mismatch { field: "kdf" })),
    }
}

/// The key-encryption key. Argon2's memory is freed before this returns.
fn derive_kek(kdf: &Kdf, secret: SlotSecret<'_>) -> Result<Zeroizing<[u8; 32]>, FormatError> {
    let mut key = Zeroizing::new([0; 32]);
    match (kdf, secret) {
        (Kdf::Argon2id { m_kib, t, p, salt }, SlotSecret::Password(password)) => {
            let (m_kib, t, p) = (*m_kib, *t, *p);
            let cost = PasswordCost { m_kib, t, p };
            cost.check()?;
            argon2::Argon2::new(
                argon2::Algorithm::Argon2id,
                argon2::Version::V0x13,
                cost.params()?,
            )
            .hash_password_into(password, &salt.0, &mut key[..])
            .map_err(|error| FormatError::Unfit {
                what: WHAT,
                fault: Fault::Text {
                    field: "argon2id",
                    reason: error.to_string(),
                },
            })?;
        }
        (Kdf::Blake3 { salt }, SlotSecret::KeyFile(bytes)) => {
            if !is_key_file_length(bytes) {
                return Err(FormatError::Unfit {
                    what: "key file",
                    fault: Fault::Value {
                        field: "length",
                        found: bytes.len() as u64,
                    },
                });
            }
            *key = derive_salted(&salt.0, bytes);
        }
        (Kdf::Blake3 { salt }, SlotSecret::Recovery(recovery)) => {
            *key = derive_salted(&salt.0, recovery.bytes());
        }
        _ => return Err(FormatError::WrongKey),
    }
    Ok(key)
}

fn is_key_file_length(bytes: &[u8]) -> bool {
    (KEY_FILE_BYTES_MIN..=KEY_FILE_BYTES_MAX).contains(&bytes.len())
}

fn derive_salted(salt: &[u8], secret: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("bale 1 key file");
    hasher.update(salt);
    hasher.update(secret);
    *hasher.finalize().as_bytes()
}

fn commitment(key: &[u8; 32]) -> blake3::Hash {
    blake3::Hash::from_bytes(blake3::derive_key("bale 1 key commitment", key))
}

fn wrap_key(key: &[u8; 32]) -> SealKey {
    let mut wrap = blake3::derive_key("bale 1 key wrap", key);
    let seal_key = SealKey::new(&wrap);
    wrap.zeroize();
    seal_key
}

fn wrap_aad(repository: RepositoryId, kdf: &Kdf) -> Vec<u8> {
    let mut aad = repository.0.to_vec();
    serde_json::to_writer(&mut aad, kdf).expect("numbers and texts have a JSON form");
    aad
}
