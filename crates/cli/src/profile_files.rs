//! Which profile files count, and that nobody else can write what we do: a profile names commands
//! that run with our rights.

use crate::args::ProfileFiles;
use crate::exit::Usage;
use crate::named_paths::NamedPath;
use crate::{output, place, variables};
use anyhow::Result;
use bale_profile::error::ProfileError;
use bale_profile::file::{PROFILE_FILE_BYTES_MAX, ProfileFile, parse};
use bale_profile::inherit::Profiles;
use bale_profile::profile::Profile;
use std::fs::Metadata;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Of the system.
const SYSTEM_FILE: &str = "/etc/bale/bale.toml";

const ROOT: u32 = 0;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_GROUP: u32 = 0o020;
const WRITABLE_BY_ALL: u32 = 0o002;

/// The files that were read, as whole paths, and their profiles.
pub struct FoundProfiles {
    /// In the order in which they count.
    pub files: Vec<PathBuf>,
    /// What they say together.
    pub profiles: Profiles,
}

impl FoundProfiles {
    /// Those that are named, each once, or all that are no templates.
    pub fn choose(&self, names: &[String]) -> Result<Vec<Profile>, Usage> {
        let is_all = names.is_empty();
        let names: Vec<&str> = match is_all {
            true => self.profiles.names().collect(),
            false => names.iter().map(String::as_str).collect(),
        };
        let mut profiles: Vec<Profile> = Vec::new();
        for name in names {
            let profile = self.profiles.resolve(name).map_err(refused)?;
            match profile.is_template() {
                true if is_all => {}
                true => return Err(refuse_template(&profile)),
                false if profiles.iter().any(|other| other.name() == name) => {}
                false => profiles.push(profile),
            }
        }
        Ok(profiles)
    }
}

/// It is named where profiles are run, scheduled or judged.
pub fn refuse_template(profile: &Profile) -> Usage {
    Usage(format!(
        "{} is a template, which others inherit from: name a profile ({})",
        profile.name(),
        profile.place()
    ))
}

/// A file that does not count, and why.
pub struct UnreadFile {
    /// A whole path.
    pub path: PathBuf,
    /// With the attempt and the cause.
    pub error: anyhow::Error,
    /// Nobody named it, and it is not for us.
    pub is_of_others: bool,
}

/// Reads the files that are named, or else those of the system and of the user, where they are.
pub fn find(options: &ProfileFiles) -> Result<FoundProfiles> {
    let (found, unread) = find_what_reads(options)?;
    if let Some(first) = unread.into_iter().next() {
        return Err(first.error);
    }
    if found.files.is_empty() {
        return Err(Usage(format!(
            "there are no profiles: write {SYSTEM_FILE}, or bale/bale.toml in your configuration \
             directory, or name a file with --profiles"
        ))
        .into());
    }
    Ok(found)
}

/// The same for who makes do with what there is: perhaps nothing.
pub fn find_what_reads(options: &ProfileFiles) -> Result<(FoundProfiles, Vec<UnreadFile>), Usage> {
    let (mut files, mut read_files, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    for (by, path) in named(options)? {
        let path = std::path::absolute(&path).unwrap_or(path);
        match read(by.unwrap_or("default"), &path) {
            Ok(file) => {
                read_files.push(file);
                files.push(path);
            }
            Err(error) if by.is_none() && is_absent(&error) => {}
            Err(error) => unread.push(UnreadFile {
                is_of_others: by.is_none() && is_of_kind(&error, &[ErrorKind::PermissionDenied]),
                path,
                error,
            }),
        }
    }
    let profiles = Profiles::of(read_files);
    Ok((FoundProfiles { files, profiles }, unread))
}

/// What is wrong with a profile is wrong with words.
pub fn refused(error: ProfileError) -> Usage {
    Usage(error.to_string())
}

/// Who named each file: nobody, of those that need not be there.
fn named(options: &ProfileFiles) -> Result<Vec<(Option<&'static str>, PathBuf)>, Usage> {
    if !options.profiles.is_empty() {
        let given = options.profiles.iter().cloned();
        return Ok(given.map(|path| (Some("--profiles"), path)).collect());
    }
    if let Some(path) = variables::read("BALE_PROFILES")? {
        return Ok(vec![(Some("BALE_PROFILES"), path.into())]);
    }
    let of_user = place::user_dir("XDG_CONFIG_HOME", ".config");
    let of_user = of_user.map(|dir| dir.join("bale/bale.toml"));
    let both = [Some(PathBuf::from(SYSTEM_FILE)), of_user];
    Ok(both
        .into_iter()
        .flatten()
        .map(|path| (None, path))
        .collect())
}

fn is_absent(error: &anyhow::Error) -> bool {
    is_of_kind(error, &[ErrorKind::NotFound, ErrorKind::NotADirectory])
}

fn is_of_kind(error: &anyhow::Error, kinds: &[ErrorKind]) -> bool {
    let mut causes = error.chain();
    let cause = causes.find_map(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| kinds.contains(&cause.kind()))
}

fn read(by: &str, path: &Path) -> Result<ProfileFile> {
    let named = NamedPath {
        by,
        attempt: "read the profiles in",
        path,
        advice: "Name a file of profiles (an example: contrib/bale.toml)",
    };
    let context = |error: std::io::Error| {
        let text = named.trouble(&error).to_string();
        anyhow::Error::from(error).context(text)
    };
    let file = bale_pipeline::private_dir::open_following(path).map_err(context)?;
    let meta = file.metadata().map_err(context)?;
    refuse_if_others_write(path, &meta)?;
    let mut bytes = Vec::new();
    let mut file = file.take(PROFILE_FILE_BYTES_MAX + 1);
    file.read_to_end(&mut bytes).map_err(context)?;
    Ok(parse(path, &bytes).map_err(refused)?)
}

/// The file, and every directory on its way, must be in nobody else's hands.
fn refuse_if_others_write(path: &Path, meta: &Metadata) -> Result<(), Usage> {
    let refuse = |at: &Path, why: String| {
        Err(Usage(format!(
            "{} is not taken for profiles, as they name commands that run with your rights: {} \
             {why}",
            output::path(path),
            output::path(at)
        )))
    };
    let (own, group) = (rustix::process::geteuid(), rustix::process::getegid());
    // Many systems give every user a group of his own, and write his files for it.
    let may_group = !own.is_root() && meta.gid() == group.as_raw();
    let is_open =
        meta.mode() & WRITABLE_BY_ALL != 0 || meta.mode() & WRITABLE_BY_GROUP != 0 && !may_group;
    if ![own.as_raw(), ROOT].contains(&meta.uid()) {
        return refuse(path, format!("belongs to user {}", meta.uid()));
    }
    if is_open {
        return refuse(
            path,
            "can be written by others (chmod go-w makes it yours)".to_owned(),
        );
    }
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    for at in path.ancestors().chain(real.ancestors()).skip(1) {
        let Ok(meta) = std::fs::symlink_metadata(at) else {
            continue;
        };
        if ![own.as_raw(), ROOT].contains(&meta.uid()) {
            return refuse(at, format!("belongs to user {}", meta.uid()));
        }
        if meta.is_dir() && meta.mode() & (WRITABLE_BY_ALL | STICKY) == WRITABLE_BY_ALL {
            return refuse(at, "can be changed by everybody".to_owned());
        }
    }
    Ok(())
}
