//! What a request's path means: a repository, an area or an object of one, or the counters.
//!
//! Nothing is unescaped. A repository is named by plain parts, and an object only as `ObjectName`
//! reads it, so no path leads out of the directory that is served.

use bale_repository::store::{Area, ObjectName};

/// Parts of a repository's name at most.
pub const PARTS_MAX: usize = 16;

/// Bytes of one of them at most.
const PART_BYTES_MAX: usize = 64;

/// Which names repositories may have, for whoever chose another one.
pub fn allowed_names() -> String {
    let mut reserved: Vec<&str> = Area::ALL
        .iter()
        .chain(&Area::OF_STRETCHES)
        .map(|area| area.text())
        .collect();
    reserved.extend(["tmp", "metrics"]);
    format!(
        "no repository can have this name here: a name is made of letters (a to z, A to Z), \
         digits, - and _, at most {PART_BYTES_MAX} of them, or of up to {PARTS_MAX} such parts \
         with / between, and none of these is a part of it: {}",
        reserved.join(", ")
    )
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// `/metrics`.
    Metrics,
    /// `/NAME/`.
    Repository(RepositoryName),
    /// `/NAME/AREA/`.
    Area(RepositoryName, Area),
    /// `/NAME/` and the path of an object.
    Object(RepositoryName, ObjectName),
}

/// Parts with `/` between; empty for a repository that is the served directory itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RepositoryName(String);

impl RepositoryName {
    /// Its parts, from the outermost.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }

    /// As it stands in a path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl RequestTarget {
    /// Reads the path of a URL, without what follows a question mark.
    pub fn parse(path: &str) -> Option<RequestTarget> {
        let path = path.strip_prefix('/')?;
        if path == "metrics" {
            return Some(RequestTarget::Metrics);
        }
        let mut at = 0;
        for (number, part) in path.split('/').enumerate() {
            let rest = &path[at..];
            let name = || RepositoryName(path[..at].trim_end_matches('/').to_owned());
            if rest.is_empty() {
                return Some(RequestTarget::Repository(name()));
            }
            if is_reserved(part) {
                let area = areas().find(|area| {
                    area.is_directory() && rest.strip_suffix('/') == Some(area.text())
                });
                return match area {
                    Some(area) => Some(RequestTarget::Area(name(), area)),
                    None => {
                        let object = ObjectName::parse(rest)?;
                        let is_stored = areas().any(|area| area == object.area);
                        is_stored.then(|| RequestTarget::Object(name(), object))
                    }
                };
            }
            if number >= PARTS_MAX || !is_plain(part) {
                return None;
            }
            at += part.len() + 1;
            if at > path.len() {
                return None;
            }
        }
        None
    }

    /// The repository that it is in.
    pub fn repository(&self) -> Option<&RepositoryName> {
        match self {
            RequestTarget::Metrics => None,
            RequestTarget::Repository(name)
            | RequestTarget::Area(name, _)
            | RequestTarget::Object(name, _) => Some(name),
        }
    }
}

/// May this be the name of a user or a part of the name of a repository?
pub fn is_plain(part: &str) -> bool {
    !part.is_empty()
        && part.len() <= PART_BYTES_MAX
        && !is_reserved(part)
        && (part.bytes()).all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Areas that are stored. Of segments it is their records: a hot store has those.
fn areas() -> impl Iterator<Item = Area> {
    Area::ALL.into_iter().chain([Area::Stretched])
}

/// Begins the path of an object, or stands in a repository's directory.
fn is_reserved(part: &str) -> bool {
    let mut areas = Area::ALL.iter().chain(&Area::OF_STRETCHES);
    part == "tmp" || part == "metrics" || areas.any(|area| area.text() == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str) -> Option<(String, String)> {
        Some(match RequestTarget::parse(path)? {
            RequestTarget::Metrics => ("metrics".to_owned(), String::new()),
            RequestTarget::Repository(name) => (name.0, String::new()),
            RequestTarget::Area(name, area) => (name.0, format!("{area}/")),
            RequestTarget::Object(name, object) => (name.0, object.path()),
        })
    }

    #[test]
    fn paths_name_repositories_areas_and_objects() {
        let id = "ab".repeat(32);
        for repository in ["", "web1", "team/web1", "a/b/c/d"] {
            let slash = if repository.is_empty() { "" } else { "/" };
            let base = format!("/{repository}{slash}");
            let expected = |rest: &str| Some((repository.to_owned(), rest.to_owned()));
            assert_eq!(shown(&base), expected(""));
            for rest in [
                "config".to_owned(),
                "config.copy".to_owned(),
                "keys/".to_owned(),
                "runs/".to_owned(),
                format!("packs/ab/{id}"),
                format!("runs/{}/{id}", "01".repeat(16)),
                format!("snapshots/{id}"),
                "stretched/".to_owned(),
                format!("stretched/{id}"),
            ] {
                assert_eq!(shown(&format!("{base}{rest}")), expected(&rest));
            }
        }
        assert_eq!(
            RequestTarget::parse("/metrics"),
            Some(RequestTarget::Metrics)
        );
    }

    #[test]
    fn no_path_leads_elsewhere() {
        let id = "ab".repeat(32);
        for path in [
            "".to_owned(),
            "a/".to_owned(),
            "//".to_owned(),
            "/a".to_owned(),
            "/a//".to_owned(),
            "//a/".to_owned(),
            "/../".to_owned(),
            "/./".to_owned(),
            "/a/../b/".to_owned(),
            "/a/..".to_owned(),
            "/.ssh/".to_owned(),
            "/a.b/".to_owned(),
            "/%2e%2e/".to_owned(),
            "/a%2fb/".to_owned(),
            "/a\\b/".to_owned(),
            "/a\0/".to_owned(),
            "/\u{e4}/".to_owned(),
            "/a/config/".to_owned(),
            "/a/config/../../x".to_owned(),
            "/a/keys".to_owned(),
            "/a/keys//".to_owned(),
            format!("/a/keys/../{id}"),
            format!("/a/keys/{id}/"),
            format!("/a/packs/{id}"),
            format!("/a/packs/ac/{id}"),
            "/a/packs/ab/".to_owned(),
            format!("/a/tmp/{id}"),
            "/a/stretches/".to_owned(),
            format!("/a/stretches/{}/00000000", "01".repeat(16)),
            "/a/tmp/".to_owned(),
            "/metrics/".to_owned(),
            "/a/metrics".to_owned(),
            format!("/{}", "a/".repeat(17)),
            format!("/{}/", "a".repeat(65)),
        ] {
            assert_eq!(RequestTarget::parse(&path), None, "{path:?}");
        }
    }
}
