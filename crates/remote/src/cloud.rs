//! Stores of the clouds, as all other remote stores are told what to do: a login is a key and its
//! secret, bounds on bytes a second are theirs, too.

use crate::login::StoreLogin;
use crate::open::RemoteOptions;
use crate::throttle::Throttle;
use bale_cloud::{Cloud, CloudOptions, CloudPlace, CloudStore, Pace, Variables};
use bale_repository::store::Result;
use std::sync::Arc;
use std::time::Duration;

/// The store of a repository there. Nothing is requested yet.
pub fn open(place: CloudPlace, options: &RemoteOptions) -> Result<CloudStore> {
    let usual = CloudOptions::default();
    let environment = match &options.login {
        Some(login) => with_login(place.cloud(), login, &options.environment),
        None => options.environment.clone(),
    };
    let options = CloudOptions {
        environment,
        ca_file: options.ca_file.clone(),
        connect_timeout: options.connect_timeout.unwrap_or(usual.connect_timeout),
        idle_timeout: options.idle_timeout.unwrap_or(usual.idle_timeout),
        pace: Some(Arc::new(options.throttle.clone())),
        data_class: options.data_class.clone(),
        ..usual
    };
    CloudStore::open(place, &options)
}

/// A login stands for the variables of a key and its secret.
fn with_login(cloud: Cloud, login: &StoreLogin, environment: &Variables) -> Variables {
    let names = match cloud {
        Cloud::S3 => ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
        Cloud::B2 => ["B2_ACCOUNT_ID", "B2_ACCOUNT_KEY"],
        Cloud::Azure => ["AZURE_ACCOUNT_NAME", "AZURE_ACCOUNT_KEY"],
        // Google's keys are files.
        Cloud::Gcs => return environment.clone(),
    };
    let (login, environment) = (login.clone(), environment.clone());
    Variables::new(move |name| match name {
        name if name == names[0] => Some(login.user.clone()),
        name if name == names[1] => Some(login.password.clone()),
        // It belongs to other keys.
        "AWS_SESSION_TOKEN" | "AZURE_ACCOUNT_SAS" | "AZURE_STORAGE_SAS_TOKEN" => None,
        name => environment.get(name),
    })
}

impl Pace for Throttle {
    fn upload_piece(&self) -> usize {
        Throttle::upload_piece(self)
    }

    fn upload(&self, bytes: usize) -> Duration {
        self.pause_of_upload(bytes)
    }

    fn download(&self, bytes: usize) -> Duration {
        self.pause_of_download(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_stands_for_a_key_and_its_secret() {
        let login = StoreLogin {
            user: "id".to_owned(),
            password: "s3cr3t".to_owned(),
            origin: String::new(),
        };
        let environment = Variables::new(|name| Some(format!("of {name}")));
        let of = |cloud, name| with_login(cloud, &login, &environment).get(name);
        assert_eq!(of(Cloud::S3, "AWS_ACCESS_KEY_ID").unwrap(), "id");
        assert_eq!(of(Cloud::S3, "AWS_SECRET_ACCESS_KEY").unwrap(), "s3cr3t");
        assert_eq!(of(Cloud::S3, "AWS_SESSION_TOKEN"), None);
        assert_eq!(of(Cloud::S3, "AWS_REGION").unwrap(), "of AWS_REGION");
        assert_eq!(of(Cloud::B2, "B2_ACCOUNT_KEY").unwrap(), "s3cr3t");
        assert_eq!(
            of(Cloud::Gcs, "AWS_ACCESS_KEY_ID").unwrap(),
            "of AWS_ACCESS_KEY_ID"
        );
    }
}
