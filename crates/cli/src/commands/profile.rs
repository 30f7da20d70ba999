//! `bale profile`

use crate::args::{Global, ProfileCommand, ProfileShow};
use crate::output;
use crate::profile_files::{self, FoundProfiles, refused};
use crate::{exit, sizes};
use anyhow::Result;
use bale_profile::profile::{Profile, ResolvedText};
use bale_profile::words::{ProfileTable, ValueKind, Word};
use serde_json::json;
use std::os::unix::ffi::OsStrExt;

/// Columns of a value, before where it comes from.
const VALUE_COLUMNS: usize = 48;

/// Shows profiles; opens no repository.
pub fn run(global: &Global, command: &ProfileCommand) -> Result<i32> {
    match command {
        ProfileCommand::Show(options) => show(global, options),
        ProfileCommand::List(options) => list(global, &profile_files::find(&options.files)?),
    }
}

fn show(global: &Global, options: &ProfileShow) -> Result<i32> {
    let found = profile_files::find(&options.files)?;
    let names: Vec<&str> = match options.names.is_empty() {
        true => found.profiles.names().collect(),
        false => options.names.iter().map(String::as_str).collect(),
    };
    let mut profiles = Vec::new();
    for name in names {
        profiles.push(found.profiles.resolve(name).map_err(refused)?);
    }
    for (number, profile) in profiles.iter().enumerate() {
        match global.json {
            true => show_objects(profile),
            false => show_lines(profile, number > 0),
        }
    }
    Ok(exit::COMPLETE)
}

fn show_objects(profile: &Profile) {
    for (word, texts) in profile.values() {
        for text in texts {
            let mut value = json!({
                "type": "value", "profile": profile.name(), "table": word.table.name(),
                "word": word.name, "value": text.text, "from": &*text.profile,
                "line": text.at.line,
            });
            output::put_path(&mut value, "file", text.at.file.as_os_str().as_bytes());
            output::object(&value);
        }
    }
    for step in profile.steps() {
        output::object(&json!({
            "type": "step", "profile": profile.name(), "step": step.name(),
        }));
    }
}

fn show_lines(profile: &Profile, is_further: bool) {
    if is_further {
        output::line("");
    }
    let is_template = match profile.is_template() {
        true => ", which others inherit from",
        false => "",
    };
    let place = profile.place().to_string();
    let place = output::escape(place.as_bytes());
    output::line(&format!(
        "[profile.{}]  # {place}{is_template}",
        profile.name()
    ));
    let tables = [ProfileTable::Profile].into_iter().chain(profile.steps());
    for table in tables {
        if table != ProfileTable::Profile {
            output::line(&format!("[profile.{}.{}]", profile.name(), table.name()));
        }
        for (word, texts) in profile.values().filter(|(word, _)| word.table == table) {
            texts.iter().for_each(|text| show_line(profile, word, text));
        }
    }
}

/// One of several texts of a list stands on a line of its own, as each may come from elsewhere.
fn show_line(profile: &Profile, word: Word, text: &ResolvedText) {
    let value = match word.kind {
        ValueKind::Flag => text.text.clone(),
        _ => format!("{:?}", output::escape(text.text.as_bytes())),
    };
    let by = match *text.profile == *profile.name() {
        true => String::new(),
        false => format!(", profile {}", text.profile),
    };
    let value = format!("{} = {value}", word.name);
    let place = output::escape(text.at.to_string().as_bytes());
    output::line(&format!("{value:VALUE_COLUMNS$}  # {place}{by}"));
}

fn list(global: &Global, found: &FoundProfiles) -> Result<i32> {
    let mut code = exit::COMPLETE;
    for name in found.profiles.names() {
        let profile = match found.profiles.resolve(name) {
            Ok(profile) => profile,
            Err(error) => {
                let error = refused(error).to_string();
                match global.json {
                    true => output::object(&json!({
                        "type": "profile", "profile": name, "refused": error,
                    })),
                    false => report!("bale: {}", output::escape(error.as_bytes())),
                }
                code = exit::USAGE;
                continue;
            }
        };
        match global.json {
            true => list_object(&profile),
            false => list_line(&profile),
        }
    }
    Ok(code)
}

fn list_object(profile: &Profile) {
    let steps: Vec<_> = profile.steps().map(ProfileTable::name).collect();
    let texts = |word| -> Vec<&str> {
        let texts = profile.texts(ProfileTable::Profile, word);
        texts.iter().map(|text| text.text.as_str()).collect()
    };
    let mut value = json!({
        "type": "profile", "profile": profile.name(), "template": profile.is_template(),
        "steps": steps, "sources": texts("sources"), "schedule": texts("schedule"),
        "line": profile.place().line,
    });
    output::put_path(
        &mut value,
        "file",
        profile.place().file.as_os_str().as_bytes(),
    );
    output::object(&value);
}

fn list_line(profile: &Profile) {
    let steps: Vec<_> = profile.steps().map(ProfileTable::name).collect();
    let what = match profile.is_template() {
        true => "template".to_owned(),
        false => steps.join(", "),
    };
    let sources = profile.texts(ProfileTable::Profile, "sources");
    let sources = match sources {
        [] => String::new(),
        [one] => format!(" of {}", one.text),
        [first, rest @ ..] => {
            format!(
                " of {} and {} more",
                first.text,
                sizes::count(rest.len() as u64)
            )
        }
    };
    let line = format!("{}: {what}{sources}  # {}", profile.name(), profile.place());
    output::line(&output::escape(line.as_bytes()));
}
