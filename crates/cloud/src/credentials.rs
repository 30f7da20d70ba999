//! Who asks: keys by the names that restic's users and the providers' own tools know, and what was
//! looked for where there are none.

use crate::place::Cloud;
use crate::transport::Transport;
use crate::variables::Variables;
use std::fmt;
use std::io::{self, ErrorKind};

/// Requests are made without any credentials.
const ANONYMOUS: &str = "BALE_ANONYMOUS";

/// What signs requests to S3.
#[derive(Clone, PartialEq, Eq)]
pub enum S3Credentials {
    Keys {
        id: String,
        secret: String,
        session: Option<String>,
    },
    /// From `~/.aws`, or what the machine is given: the signer looks there.
    Found,
    Anonymous,
}

/// Secrets are not shown.
impl fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            S3Credentials::Keys { .. } => "Keys",
            S3Credentials::Found => "Found",
            S3Credentials::Anonymous => "Anonymous",
        })
    }
}

pub fn is_anonymous(environment: &Variables) -> bool {
    environment.is_on(ANONYMOUS)
}

/// Keys of the environment, or where else to look.
pub fn of_s3(environment: &Variables) -> io::Result<S3Credentials> {
    if is_anonymous(environment) {
        return Ok(S3Credentials::Anonymous);
    }
    let id = environment.get("AWS_ACCESS_KEY_ID");
    let secret = environment.get("AWS_SECRET_ACCESS_KEY");
    match (id, secret) {
        (Some(id), Some(secret)) => Ok(S3Credentials::Keys {
            id,
            secret,
            session: environment.get("AWS_SESSION_TOKEN"),
        }),
        (None, None) => Ok(S3Credentials::Found),
        (Some(_), None) => Err(half("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")),
        (None, Some(_)) => Err(half("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID")),
    }
}

/// The key of B2 and its id.
pub fn of_b2(environment: &Variables) -> io::Result<(String, String)> {
    let id = environment.first(&["B2_ACCOUNT_ID", "B2_APPLICATION_KEY_ID"]);
    let key = environment.first(&["B2_ACCOUNT_KEY", "B2_APPLICATION_KEY"]);
    id.zip(key).ok_or_else(|| missing(Cloud::B2))
}

fn half(set: &str, unset: &str) -> io::Error {
    let text = format!("{set} is set, and {unset} is not: they belong together");
    io::Error::new(ErrorKind::PermissionDenied, text)
}

/// There are none, and what was looked for.
pub fn missing(cloud: Cloud) -> io::Error {
    let looked_for = match cloud {
        Cloud::S3 => {
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile (AWS_PROFILE) in \
             ~/.aws/credentials or ~/.aws/config, and a role of this machine"
        }
        Cloud::Gcs => {
            "GOOGLE_APPLICATION_CREDENTIALS (a file), GOOGLE_ACCESS_TOKEN, what gcloud has left in \
             ~/.config/gcloud, and a service account of this machine"
        }
        Cloud::Azure => {
            "AZURE_ACCOUNT_NAME with AZURE_ACCOUNT_KEY or AZURE_ACCOUNT_SAS, AZURE_CLIENT_ID with \
             its secret and tenant, and an identity of this machine"
        }
        Cloud::B2 => "B2_ACCOUNT_ID and B2_ACCOUNT_KEY",
    };
    let text = format!(
        "no credentials were found; looked for: {looked_for} ({ANONYMOUS}=1 makes requests \
         without any)"
    );
    io::Error::new(ErrorKind::PermissionDenied, text)
}

/// Whoever signs found none, and says no more than this.
pub fn not_found(cloud: Cloud, transport: &Transport) -> io::Error {
    let missing = missing(cloud);
    match transport.take_credentials_failure() {
        // There is no such service on this machine.
        None => missing,
        Some(refusal) => io::Error::new(
            missing.kind(),
            format!("{missing}; the last that was asked for some: {refusal}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &'static [(&str, &str)]) -> Variables {
        Variables::new(|name| {
            let found = variables.iter().find(|variable| variable.0 == name);
            found.map(|variable| variable.1.to_owned())
        })
    }

    #[test]
    fn half_a_pair_of_keys_is_refused_by_name() {
        let half = of_s3(&environment(&[("AWS_ACCESS_KEY_ID", "AKIA")])).unwrap_err();
        assert!(
            half.to_string().contains("AWS_SECRET_ACCESS_KEY is not"),
            "{half}"
        );
        let empty = environment(&[
            ("AWS_ACCESS_KEY_ID", ""),
            ("AWS_SECRET_ACCESS_KEY", "s3cr3t"),
        ]);
        let error = of_s3(&empty).unwrap_err().to_string();
        assert!(error.contains("AWS_ACCESS_KEY_ID is not") && !error.contains("s3cr3t"));
    }

    #[test]
    fn no_secret_is_shown() {
        let keys = [
            ("AWS_ACCESS_KEY_ID", "AKIA"),
            ("AWS_SECRET_ACCESS_KEY", "s3cr3t"),
        ];
        let keys: &'static [_] = Box::leak(Box::new(keys));
        let found = of_s3(&environment(keys)).unwrap();
        assert!(matches!(found, S3Credentials::Keys { .. }));
        assert!(!format!("{found:?} {:?}", environment(keys)).contains("s3cr3t"));
    }

    #[test]
    fn nobody_is_a_choice() {
        let anonymous = environment(&[("BALE_ANONYMOUS", "1"), ("AWS_ACCESS_KEY_ID", "x")]);
        assert_eq!(of_s3(&anonymous).unwrap(), S3Credentials::Anonymous);
        assert!(missing(Cloud::B2).to_string().contains("B2_ACCOUNT_KEY"));
    }
}
