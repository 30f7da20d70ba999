//! The `config` object: what a repository is, authenticated by its root key. docs/FORMAT.md,
//! section 2.

use crate::error::{Fault, FormatError};
use crate::id::{RepositoryId, from_hex, hex};
use crate::keys::Keys;
use crate::limits::{CHUNK_BYTES_MAX, CONFIG_BYTES_MAX};
use serde::{Deserialize, Serialize};

const WHAT: &str = "config";
/// The format written here, and the highest one read.
pub(crate) const FORMAT_VERSION: u64 = 1;
/// Of writers and deleters: the repository has a cold store beside a hot one, and both are written.
pub const FEATURE_COLD: &str = "cold";
/// Of everybody: packs of data may be in stretches ([`crate::stretch`]).
pub const FEATURE_STRETCHES: &str = "stretches";
/// Names in `features_*` that this program knows.
const FEATURES_KNOWN: [&str; 2] = [FEATURE_COLD, FEATURE_STRETCHES];

/// How large files are cut. `avg` is a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSizes {
    /// No piece is shorter, except the last before a hole or the end.
    pub min: u32,
    /// Bytes after `min` until a cut, on average.
    pub avg: u32,
    /// No piece is longer.
    pub max: u32,
}

impl Default for ChunkSizes {
    fn default() -> ChunkSizes {
        ChunkSizes {
            min: 512 << 10,
            avg: 1 << 20,
            max: 4 << 20,
        }
    }
}

impl ChunkSizes {
    fn check(self) -> Result<ChunkSizes, FormatError> {
        let ordered = 64 <= self.min && self.min <= self.max;
        if !ordered || !self.avg.is_power_of_two() || self.avg < 2 {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Mismatch {
                    field: "chunk sizes",
                },
            ));
        }
        if self.max as usize > CHUNK_BYTES_MAX {
            return Err(FormatError::over(
                WHAT,
                "chunk_bytes_max",
                self.max as usize,
                CHUNK_BYTES_MAX,
            ));
        }
        Ok(self)
    }
}

/// What somebody wants to do with a repository: each needs its own list of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// List, restore, verify.
    Read,
    /// Back up.
    Write,
    /// Forget and prune.
    Delete,
}

/// What a repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Random, bound into every seal.
    pub repository: RepositoryId,
    /// Features that a reader must know.
    pub features_read: Vec<String>,
    /// Features that a writer must know.
    pub features_write: Vec<String>,
    /// Features that a deleter must know.
    pub features_gc: Vec<String>,
    /// Seconds since 1970.
    pub created: i64,
    /// How large files are cut.
    pub chunk_sizes: ChunkSizes,
    /// Of a repository with stretches: the length at which writers close one.
    pub stretch_bytes: Option<u64>,
}

#[derive(Deserialize)]
struct FormatOnly {
    format: u64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    format: u64,
    repository: String,
    #[serde(default)]
    features_read: Vec<String>,
    #[serde(default)]
    features_write: Vec<String>,
    #[serde(default)]
    features_gc: Vec<String>,
    created: i64,
    chunk_bytes_min: u32,
    chunk_bytes_avg: u32,
    chunk_bytes_max: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stretch_bytes: Option<u64>,
}

impl Config {
    pub fn new(repository: RepositoryId, created: i64) -> Config {
        Config {
            repository,
            features_read: Vec::new(),
            features_write: Vec::new(),
            features_gc: Vec::new(),
            created,
            chunk_sizes: ChunkSizes::default(),
            stretch_bytes: None,
        }
    }

    /// The same of a repository with a cold store beside a hot one.
    pub fn with_cold_store(mut self) -> Config {
        for features in [&mut self.features_write, &mut self.features_gc] {
            features.push(FEATURE_COLD.to_owned());
        }
        self
    }

    /// The same of a repository that may have packs in stretches of about so many bytes.
    pub fn with_stretches(mut self, stretch_bytes: u64) -> Config {
        self.stretch_bytes = Some(stretch_bytes);
        for features in [
            &mut self.features_read,
            &mut self.features_write,
            &mut self.features_gc,
        ] {
            features.push(FEATURE_STRETCHES.to_owned());
        }
        self
    }

    /// Has it a cold store beside a hot one?
    pub fn has_cold_store(&self) -> bool {
        let mut features = self.features_write.iter().chain(&self.features_gc);
        features.any(|feature| feature == FEATURE_COLD)
    }

    /// May it have packs in stretches?
    pub fn has_stretches(&self) -> bool {
        let mut features = self.features_read.iter();
        features.any(|feature| feature == FEATURE_STRETCHES)
    }

    /// Both lines of the object. `keys` are this repository's.
    pub fn encode(&self, keys: &Keys) -> Result<Vec<u8>, FormatError> {
        let line = serde_json::to_vec(&Line {
            format: FORMAT_VERSION,
            repository: self.repository.to_string(),
            features_read: self.features_read.clone(),
            features_write: self.features_write.clone(),
            features_gc: self.features_gc.clone(),
            created: self.created,
            chunk_bytes_min: self.chunk_sizes.min,
            chunk_bytes_avg: self.chunk_sizes.avg,
            chunk_bytes_max: self.chunk_sizes.max,
            stretch_bytes: self.stretch_bytes,
        })
        .expect("numbers and texts have a JSON form");
        let mac = keys.config_mac(&line);
        let mut bytes = line;
        bytes.push(b'\n');
        bytes.extend_from_slice(hex(mac.as_bytes()).as_bytes());
        bytes.push(b'\n');
        let read_back = UnverifiedConfig::decode(&bytes)?.verify(keys)?;
        if read_back != *self {
            return Err(FormatError::NotVerified { what: WHAT });
        }
        Ok(bytes)
    }

    /// Refuses a repository that needs more than this program knows.
    pub fn check_access(&self, access: Access) -> Result<(), FormatError> {
        let needed: &[&Vec<String>] = match access {
            Access::Read => &[&self.features_read],
            Access::Write => &[&self.features_read, &self.features_write],
            Access::Delete => &[&self.features_read, &self.features_gc],
        };
        match needed
            .iter()
            .flat_map(|features| features.iter())
            .find(|feature| !FEATURES_KNOWN.contains(&feature.as_str()))
        {
            None => Ok(()),
            Some(feature) => Err(FormatError::UnknownFeature {
                feature: feature.clone(),
            }),
        }
    }
}

/// A config before the root key is known: good enough to find the keys, and for nothing else.
#[derive(Clone, Debug)]
pub struct UnverifiedConfig {
    config: Config,
    line: Vec<u8>,
    mac: [u8; 32],
}

impl UnverifiedConfig {
    /// Splits and parses both lines.
    pub fn decode(bytes: &[u8]) -> Result<UnverifiedConfig, FormatError> {
        if bytes.len() > CONFIG_BYTES_MAX {
            return Err(FormatError::over(
                WHAT,
                "length",
                bytes.len(),
                CONFIG_BYTES_MAX,
            ));
        }
        let text = |field, reason: &str| {
            FormatError::damaged(
                WHAT,
                Fault::Text {
                    field,
                    reason: reason.to_owned(),
                },
            )
        };
        let (line, mac) = lines(bytes).ok_or_else(|| text("second line", "missing"))?;
        // A later format may have changed everything but this one field.
        let version: FormatOnly =
            serde_json::from_slice(line).map_err(|error| FormatError::json(WHAT, &error))?;
        check_version(version.format)?;
        let mac = mac_of(mac).ok_or_else(|| text("second line", "not 64 lower-case hex digits"))?;
        let parsed: Line =
            serde_json::from_slice(line).map_err(|error| FormatError::json(WHAT, &error))?;
        let repository = from_hex(&parsed.repository)
            .map_err(|_| text("repository", "not 32 lower-case hex digits"))?;
        Ok(UnverifiedConfig {
            config: Config {
                repository: RepositoryId(repository),
                features_read: parsed.features_read,
                features_write: parsed.features_write,
                features_gc: parsed.features_gc,
                created: parsed.created,
                chunk_sizes: ChunkSizes {
                    min: parsed.chunk_bytes_min,
                    avg: parsed.chunk_bytes_avg,
                    max: parsed.chunk_bytes_max,
                }
                .check()?,
                stretch_bytes: parsed.stretch_bytes,
            },
            line: line.to_vec(),
            mac,
        })
    }

    /// Which repository this claims to be: needed to open a key slot.
    pub fn repository(&self) -> RepositoryId {
        self.config.repository
    }

    /// Does it say that packs may be in stretches?
    pub fn claims_stretches(&self) -> bool {
        self.config.has_stretches()
    }

    /// The first line, as it stands.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// The config, once its second line matches the root key.
    pub fn verify(self, keys: &Keys) -> Result<Config, FormatError> {
        // blake3::Hash compares in constant time.
        if keys.config_mac(&self.line) != self.mac || keys.repository() != self.config.repository {
            return Err(FormatError::damaged(WHAT, Fault::Seal));
        }
        Ok(self.config)
    }
}

/// Did a holder of these keys write both lines? That is known of a later format, too, whose first
/// line means nothing here.
pub fn is_authentic(bytes: &[u8], keys: &Keys) -> bool {
    let lines = lines(bytes).filter(|_| bytes.len() <= CONFIG_BYTES_MAX);
    lines.is_some_and(|(line, mac)| mac_of(mac).is_some_and(|mac| keys.config_mac(line) == mac))
}

fn lines(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// The second line, with or without its end.
fn mac_of(line: &[u8]) -> Option<[u8; 32]> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    from_hex(std::str::from_utf8(line).ok()?).ok()
}

fn check_version(found: u64) -> Result<(), FormatError> {
    match found {
        FORMAT_VERSION => Ok(()),
        0 => Err(FormatError::damaged(
            WHAT,
            Fault::Value {
                field: "format",
                found,
            },
        )),
        _ => Err(FormatError::Newer {
            what: WHAT,
            found,
            known: FORMAT_VERSION,
        }),
    }
}
