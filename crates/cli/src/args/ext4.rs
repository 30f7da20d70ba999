//! Choices about a new ext4 file system, of every command that writes one.

use crate::exit::Usage;
use crate::sizes;
use bale_fsimage::mkext4::{Ext4Options, LABEL_BYTES_MAX};
use clap::Args;

/// A new ext4 file system.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "File system (with --to-ext4)")]
pub struct Ext4Choices {
    /// Size of the file system (512M, 10G) [default: of the tree and a twentieth, or the device]
    #[arg(long, value_name = "SIZE")]
    pub fs_size: Option<String>,
    /// Number of inodes [default: from tree and size]
    #[arg(long, value_name = "N")]
    pub inodes: Option<u64>,
    /// Bytes of a block: 1024 halves the space of files of 1-2 KiB
    #[arg(long, value_name = "BYTES", value_parser = ["1024", "2048", "4096"])]
    pub block_size: Option<String>,
    /// Volume label
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// UUID, 32 hex digits with or without dashes
    #[arg(long, value_name = "UUID")]
    pub uuid: Option<String>,
}

impl Ext4Choices {
    /// Words about a file system are meant for one.
    pub fn need(&self, to_ext4: bool) -> Result<(), Usage> {
        let Ext4Choices {
            fs_size,
            inodes,
            block_size,
            label,
            uuid,
        } = self;
        let texts = [fs_size, block_size, label, uuid];
        if to_ext4 || (inodes.is_none() && texts.iter().all(|text| text.is_none())) {
            return Ok(());
        }
        Err(Usage(
            "--fs-size, --inodes, --block-size, --label and --uuid need --to-ext4".to_owned(),
        ))
    }

    /// Puts what was chosen in the place of what is usual.
    pub fn apply(&self, options: &mut Ext4Options) -> Result<(), Usage> {
        if let Some(size) = &self.fs_size {
            options.size_bytes = Some(sizes::parse_bytes(size)?);
        }
        options.inodes = self.inodes.or(options.inodes);
        if let Some(bytes) = &self.block_size {
            options.block_size = bytes.parse().expect("one of the possible values");
        }
        if let Some(label) = &self.label {
            if label.len() > LABEL_BYTES_MAX {
                return Err(Usage(format!(
                    "--label takes at most {LABEL_BYTES_MAX} bytes"
                )));
            }
            options.label = label.clone().into_bytes();
        }
        if let Some(text) = &self.uuid {
            options.uuid = parse_uuid(text).ok_or_else(|| {
                Usage(format!("{text:?} is no UUID: 32 hex digits, not all zero"))
            })?;
        }
        Ok(())
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let number = u128::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?;
    (number != 0).then(|| number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_with_and_without_dashes_and_nothing_else_is() {
        let uuid = parse_uuid("00112233-4455-6677-8899-aabbccddeeff").unwrap();
        assert_eq!(uuid[..3], [0, 0x11, 0x22]);
        assert_eq!(parse_uuid("00112233445566778899AABBCCDDEEFF"), Some(uuid));
        for wrong in [
            "",
            "0",
            "00112233-4455-6677-8899-aabbccddeef",
            "+0112233445566778899aabbccddeeff",
        ] {
            assert_eq!(parse_uuid(wrong), None, "{wrong}");
        }
        assert_eq!(parse_uuid(&"0".repeat(32)), None);
    }
}
