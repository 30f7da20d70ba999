//! What follows `rclone:` in the name of a repository: `REMOTE:PATH` as rclone reads it.
//!
//! It becomes the last argument of a program, so it must not look like an option. A remote that is
//! written with its settings (`:sftp,host=h,pass=p:path`) may hold secrets: they are not shown.

use std::fmt;

/// A remote of rclone's and a path on it.
#[derive(Clone, PartialEq, Eq)]
pub struct RclonePlace {
    text: String,
}

/// Why a text is no place of rclone's. Its words hold nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RclonePlaceError {
    #[error("it is written REMOTE:PATH, with a remote of rclone's own configuration")]
    Form,
    #[error("it begins with a dash, which rclone would take for an option")]
    Option,
}

impl RclonePlace {
    /// Reads what stands after `rclone:`.
    pub fn parse(text: &str) -> Result<RclonePlace, RclonePlaceError> {
        if text.starts_with('-') {
            return Err(RclonePlaceError::Option);
        }
        let after = text.get(1..).unwrap_or_default();
        match after.contains(':') {
            true => Ok(RclonePlace {
                text: text.to_owned(),
            }),
            false => Err(RclonePlaceError::Form),
        }
    }

    /// As rclone takes it.
    pub fn argument(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for RclonePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rclone:{}", without_settings(&self.text))
    }
}

impl fmt::Debug for RclonePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RclonePlace({:?})", self.to_string())
    }
}

/// Settings of a remote begin with its first comma.
pub fn without_settings(text: &str) -> String {
    match text.find(',') {
        Some(comma) => format!("{},***", &text[..comma]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_remote_and_a_path_and_shows_no_settings() {
        for text in ["b2:bucket/x", "r:", ":memory:", ":local:/srv/x", "a b:/x:y"] {
            let place = RclonePlace::parse(text).unwrap();
            assert_eq!(place.argument(), text);
            assert_eq!(place.to_string(), format!("rclone:{text}"));
        }
        let place = RclonePlace::parse(":sftp,host=h,pass=s3cr3t:x").unwrap();
        let shown = format!("{place} {place:?}");
        assert!(
            !shown.contains("s3cr3t") && shown.contains(":sftp"),
            "{shown}"
        );
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for (text, why) in [
            ("", RclonePlaceError::Form),
            (":", RclonePlaceError::Form),
            ("bucket/x", RclonePlaceError::Form),
            ("--config=/x:y", RclonePlaceError::Option),
        ] {
            assert_eq!(RclonePlace::parse(text).unwrap_err(), why, "{text}");
        }
    }
}
