//! What requests to a bucket of S3 are made of: host, region, style, keys.

use crate::credentials::{self, S3Credentials};
use crate::options::CloudOptions;
use crate::place::CloudPlace;
use crate::transport::Transport;
use crate::{b2, variables::Variables};
use std::io::{self, ErrorKind};

/// A bucket, and who asks for it.
#[derive(Clone, Debug)]
pub struct S3Access {
    /// `https://HOST:PORT`.
    pub endpoint: String,
    pub region: String,
    pub bucket: String,
    /// The bucket is named before the host, not after it.
    pub is_virtual: bool,
    pub profile: Option<String>,
    pub credentials: S3Credentials,
    /// Objects are sent with a checksum: buckets that lock their objects take none without one.
    pub has_checksums: bool,
}

impl S3Access {
    /// As the environment says.
    pub fn of(place: &CloudPlace, environment: &Variables) -> io::Result<S3Access> {
        let region = environment.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
        let is_virtual = match environment.get("BALE_S3_STYLE").as_deref() {
            None | Some("path") => false,
            Some("virtual") => true,
            Some(_) => {
                let text = "BALE_S3_STYLE is neither path nor virtual";
                return Err(io::Error::new(ErrorKind::InvalidInput, text));
            }
        };
        Ok(S3Access {
            endpoint: place.endpoint.clone(),
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
            bucket: place.bucket.clone(),
            is_virtual,
            profile: environment.get("AWS_PROFILE"),
            credentials: credentials::of_s3(environment)?,
            has_checksums: true,
        })
    }

    /// B2's, which must be asked for the host.
    pub fn of_b2(
        place: &CloudPlace,
        options: &CloudOptions,
        transport: &Transport,
    ) -> io::Result<S3Access> {
        let (id, secret) = credentials::of_b2(&options.environment)?;
        let host = b2::find_host(transport, &options.b2_api, &id, &secret)?;
        Ok(S3Access {
            endpoint: host.endpoint,
            region: host.region,
            bucket: place.bucket.clone(),
            is_virtual: false,
            profile: None,
            credentials: S3Credentials::Keys {
                id,
                secret,
                session: None,
            },
            has_checksums: false,
        })
    }

    /// Where objects are, with a slash at its end.
    pub fn bucket_url(&self) -> String {
        let bucket = &self.bucket;
        let endpoint = self.endpoint.replace(&format!("//{bucket}."), "//");
        let endpoint = endpoint.to_ascii_lowercase();
        let endpoint = without_usual_port(endpoint.trim_end_matches('/'));
        let endpoint = match endpoint {
            // The host of all regions does not know those that were made later.
            "https://s3.amazonaws.com" => format!("https://s3.{}.amazonaws.com", self.region),
            endpoint => endpoint.to_owned(),
        };
        match self.is_virtual {
            true => format!("{}/", endpoint.replacen("//", &format!("//{bucket}."), 1)),
            false => format!("{endpoint}/{bucket}/"),
        }
    }
}

/// A host is signed as it is named, and named without the port that everybody knows.
fn without_usual_port(endpoint: &str) -> &str {
    let port = match endpoint.starts_with("https://") {
        true => ":443",
        false => ":80",
    };
    endpoint.strip_suffix(port).unwrap_or(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Cloud;

    #[test]
    fn a_bucket_is_named_as_it_is_signed() {
        for (name, is_virtual, url) in [
            ("https://h:9000/abc/p", false, "https://h:9000/abc/"),
            ("https://h:443/abc", false, "https://h/abc/"),
            ("https://H.example:443/abc", false, "https://h.example/abc/"),
            ("http://h:80/abc", true, "http://abc.h/"),
            ("http://[::1]:443/abc", false, "http://[::1]:443/abc/"),
            (
                "s3.amazonaws.com/abc",
                false,
                "https://s3.eu-north-1.amazonaws.com/abc/",
            ),
            (
                "https://abc.s3.amazonaws.com/abc",
                true,
                "https://abc.s3.eu-north-1.amazonaws.com/",
            ),
        ] {
            let place = CloudPlace::parse(Cloud::S3, name).unwrap();
            let style = if is_virtual { "virtual" } else { "path" };
            let environment = Variables::new(move |name| match name {
                "AWS_REGION" => Some("eu-north-1".to_owned()),
                "BALE_S3_STYLE" => Some(style.to_owned()),
                _ => None,
            });
            let access = S3Access::of(&place, &environment).unwrap();
            assert_eq!(access.bucket_url(), url);
        }
    }
}
