//! The variables of the environment that stand for options.
//!
//! One that is set but empty is what a script leaves behind that lost a value: it is refused, never
//! taken for absent.

use crate::exit::Usage;
use std::ffi::OsString;

/// What a variable holds, if it is set.
pub fn read(name: &str) -> Result<Option<OsString>, Usage> {
    match std::env::var_os(name) {
        Some(value) if value.is_empty() => Err(Usage(format!(
            "{name} is set, but empty: give it a value, or unset it"
        ))),
        value => Ok(value),
    }
}

/// The same for words.
pub fn read_text(name: &str) -> Result<Option<String>, Usage> {
    read(name)?
        .map(|value| {
            value
                .into_string()
                .map_err(|_| Usage(format!("{name} is not UTF-8")))
        })
        .transpose()
}

/// Is it set to something that means yes?
pub fn is_on(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| {
        !matches!(
            value.trim().to_ascii_lowercase().as_str(),
            "" | "0" | "no" | "n" | "off" | "false" | "f"
        )
    })
}

/// What another tool's variable holds: one that is empty or not UTF-8 is as good as none.
pub fn lookup(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
