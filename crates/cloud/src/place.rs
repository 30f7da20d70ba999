//! Names of repositories in clouds, as restic's users write them: what stands after the scheme.
//!
//! `s3:https://HOST/BUCKET/PREFIX` and `s3:HOST/BUCKET/PREFIX`, `gs:BUCKET:/PREFIX`,
//! `azure:CONTAINER:/PREFIX`, `b2:BUCKET:PREFIX`. A name has no secrets in it: what looks like a
//! login is refused, and not shown. A prefix has no empty parts and no `.` or `..`: not all servers
//! agree on what those are.

use std::fmt;

/// Which cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    S3,
    Gcs,
    Azure,
    B2,
}

impl Cloud {
    /// Every one.
    pub const ALL: [Cloud; 4] = [Cloud::S3, Cloud::Gcs, Cloud::Azure, Cloud::B2];

    /// The scheme of its repositories.
    pub fn scheme(self) -> &'static str {
        match self {
            Cloud::S3 => "s3",
            Cloud::Gcs => "gs",
            Cloud::Azure => "azure",
            Cloud::B2 => "b2",
        }
    }

    /// How a repository in it is written.
    pub fn example(self) -> &'static str {
        match self {
            Cloud::S3 => "s3:https://HOST/BUCKET/PREFIX",
            Cloud::Gcs => "gs:BUCKET:/PREFIX",
            Cloud::Azure => "azure:CONTAINER:/PREFIX",
            Cloud::B2 => "b2:BUCKET:PREFIX",
        }
    }

    /// What it calls a bucket.
    pub(crate) fn bucket_word(self) -> &'static str {
        match self {
            Cloud::Azure => "container",
            _ => "bucket",
        }
    }
}

/// Where in a cloud a repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudPlace {
    pub(crate) cloud: Cloud,
    /// `https://HOST:PORT`, for S3.
    pub(crate) endpoint: String,
    pub(crate) bucket: String,
    /// Without slashes at its ends; may be empty.
    pub(crate) prefix: String,
}

/// Why a text names no place in a cloud. A login is not shown.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CloudPlaceError {
    #[error(
        "there is no {} in the repository's name: it is written {}",
        .0.bucket_word(),
        .0.example()
    )]
    NoBucket(Cloud),
    #[error("there is no host in the name: it is written {}", .0.example())]
    NoHost(Cloud),
    #[error(
        "a login in the repository's name is not used: give the keys by the environment, and \
         write {}",
        .0.example()
    )]
    Login(Cloud),
    #[error(
        "the repository's name has a query or a fragment (? or #): it is written {}",
        .0.example()
    )]
    Query(Cloud),
    #[error(
        "the {word} {bucket:?} is none: it has 3 to 63 letters, digits, dots, underscores and \
         hyphens",
        word = .cloud.bucket_word()
    )]
    Bucket { cloud: Cloud, bucket: String },
    #[error(
        "the prefix {prefix:?} has an empty part, . or .. in it: it is written {example}",
        example = .cloud.example()
    )]
    Prefix { cloud: Cloud, prefix: String },
    #[error("the host {host:?} is none: it is written {example}", example = .cloud.example())]
    Host { cloud: Cloud, host: String },
}

impl CloudPlace {
    /// Reads what stands after the scheme.
    pub fn parse(cloud: Cloud, text: &str) -> Result<CloudPlace, CloudPlaceError> {
        if text.contains(['?', '#']) {
            return Err(CloudPlaceError::Query(cloud));
        }
        if text.contains('@') {
            return Err(CloudPlaceError::Login(cloud));
        }
        let (endpoint, rest) = match cloud {
            Cloud::S3 => endpoint_and_path(text)?,
            _ => (String::new(), text),
        };
        let (bucket, prefix) = match cloud {
            Cloud::S3 => rest.split_once('/').unwrap_or((rest, "")),
            _ => rest.split_once(':').unwrap_or((rest, "")),
        };
        if bucket.is_empty() {
            return Err(CloudPlaceError::NoBucket(cloud));
        }
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.$".contains(letter);
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(is_letter) {
            return Err(CloudPlaceError::Bucket {
                cloud,
                bucket: bucket.to_owned(),
            });
        }
        let prefix = prefix.strip_prefix('/').unwrap_or(prefix);
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let is_odd = |part: &str| matches!(part, "" | "." | "..");
        if !prefix.is_empty() && (prefix.split('/').any(is_odd) || prefix.contains('\\')) {
            return Err(CloudPlaceError::Prefix {
                cloud,
                prefix: prefix.to_owned(),
            });
        }
        Ok(CloudPlace {
            cloud,
            endpoint,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }

    /// The cloud that it is in.
    pub fn cloud(&self) -> Cloud {
        self.cloud
    }

    /// The host is Amazon's.
    pub(crate) fn is_amazon(&self) -> bool {
        let host = self.host();
        host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn")
    }

    /// The same of Amazon's that China has.
    pub(crate) fn is_chinese(&self) -> bool {
        self.host().ends_with(".amazonaws.com.cn")
    }

    fn host(&self) -> &str {
        let host = self.endpoint.split_once("://").map_or("", |parts| parts.1);
        match host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => host,
        }
    }
}

/// `https://HOST:PORT` and what is after its slash.
fn endpoint_and_path(text: &str) -> Result<(String, &str), CloudPlaceError> {
    let cloud = Cloud::S3;
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
        Some((scheme, _)) => {
            return Err(CloudPlaceError::Host {
                cloud,
                host: scheme.to_owned(),
            });
        }
        None => ("https", text),
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() {
        return Err(CloudPlaceError::NoHost(cloud));
    }
    let url = format!("{scheme}://{host}");
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-.:[]_".contains(letter);
    // A name without a dot or a port is a bucket whose host was forgotten.
    let is_named = host.contains(['.', ':']) || host == "localhost" || text.contains("://");
    let has_authority = http::Uri::try_from(url.as_str()).is_ok_and(|uri| uri.host().is_some());
    // Two dots in a row are no name, and alone a way up.
    let is_odd = host.starts_with('.') || host.contains("..");
    if !host.chars().all(is_letter) || !is_named || !has_authority || is_odd {
        return Err(CloudPlaceError::Host {
            cloud,
            host: host.to_owned(),
        });
    }
    Ok((url, path))
}

/// As it was written, with its scheme.
impl fmt::Display for CloudPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CloudPlace {
            cloud,
            endpoint,
            bucket,
            prefix,
        } = self;
        let scheme = cloud.scheme();
        match cloud {
            Cloud::S3 if prefix.is_empty() => write!(f, "{scheme}:{endpoint}/{bucket}"),
            Cloud::S3 => write!(f, "{scheme}:{endpoint}/{bucket}/{prefix}"),
            Cloud::B2 => write!(f, "{scheme}:{bucket}:{prefix}"),
            Cloud::Gcs | Cloud::Azure => write!(f, "{scheme}:{bucket}:/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(cloud: Cloud, text: &str) -> String {
        CloudPlace::parse(cloud, text).unwrap().to_string()
    }

    #[test]
    fn names_are_those_of_restics_users() {
        for (cloud, text, expected) in [
            (Cloud::S3, "https://h/bucket/a/b", "s3:https://h/bucket/a/b"),
            (Cloud::S3, "http://h:9000/bucket", "s3:http://h:9000/bucket"),
            (
                Cloud::S3,
                "s3.eu.example.com/bucket/a/",
                "s3:https://s3.eu.example.com/bucket/a",
            ),
            (Cloud::S3, "localhost/bucket", "s3:https://localhost/bucket"),
            (
                Cloud::S3,
                "http://[::1]:80/bucket",
                "s3:http://[::1]:80/bucket",
            ),
            (Cloud::Gcs, "bucket:/a/b", "gs:bucket:/a/b"),
            (Cloud::Gcs, "bucket:a", "gs:bucket:/a"),
            (Cloud::Azure, "container:/", "azure:container:/"),
            (Cloud::Azure, "container", "azure:container:/"),
            (Cloud::B2, "bucket:a/b", "b2:bucket:a/b"),
        ] {
            assert_eq!(shown(cloud, text), expected);
        }
    }

    #[test]
    fn what_is_wrong_in_a_name_is_said_with_how_it_is_written() {
        for cloud in Cloud::ALL {
            for text in [
                "",
                ":",
                ":/x",
                "/",
                "http://",
                "https:///bucket",
                "ab:/x",
                "https://h/ab/x",
                "bucket:/a//b",
                "https://h/bucket/a//b",
                "bucket:/../x",
                "https://h/bucket/../x",
                "bu cket:/x",
                "https://h/bu%20cket/x",
                "bucket",
                "bucket/prefix",
                "ftp://h/bucket/x",
                "bucket:/x?y",
                "https://me:s3cr3t@h/bucket/x",
                "https://h/bucket#x",
                "https://h:x:y/bucket",
            ] {
                match CloudPlace::parse(cloud, text) {
                    Ok(place) => {
                        let again = place.to_string();
                        let rest = again.split_once(':').unwrap().1;
                        assert_eq!(CloudPlace::parse(cloud, rest), Ok(place), "{text}");
                    }
                    Err(error) => {
                        let said = error.to_string();
                        assert!(!said.contains("s3cr3t"), "{said}");
                        assert!(said.contains("writ") || said.contains("none:"), "{said}");
                    }
                }
            }
        }
        let forgotten = CloudPlace::parse(Cloud::S3, "bucket/prefix").unwrap_err();
        assert!(
            forgotten
                .to_string()
                .contains("s3:https://HOST/BUCKET/PREFIX"),
            "{forgotten}"
        );
    }

    #[test]
    fn amazon_is_known_by_its_host() {
        let is_amazon = |text| CloudPlace::parse(Cloud::S3, text).unwrap().is_amazon();
        assert!(is_amazon("s3.amazonaws.com/bucket"));
        assert!(is_amazon("https://s3.eu-west-1.amazonaws.com:443/bucket"));
        assert!(!is_amazon("amazonaws.com.example.org/bucket"));
        assert!(!is_amazon("http://127.0.0.1:9000/bucket"));
    }
}
