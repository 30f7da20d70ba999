//! `bale init --print-policy`: what the owner of a bucket sets up so that a client only adds.
//!
//! Nothing is connected to. The policy is on standard output, what else is needed beside it.

use crate::args::Global;
use crate::exit::{self, Usage};
use crate::{output, place};
use anyhow::Result;
use bale_remote::{CLIENT, Location, put_only_policy};

/// Prints it for the repository that is named.
pub fn print(global: &Global) -> Result<i32> {
    let policy = match place::named(global)? {
        Some(Location::Remote(scheme, place)) => {
            let policy = put_only_policy(scheme, &place);
            policy.map_err(|error| Usage(error.to_string()))?
        }
        Some(Location::Directory(_)) | None => None,
    };
    let Some(policy) = policy else {
        let text = "--print-policy is for repositories in S3 (-r s3:https://HOST/BUCKET/PREFIX); \
            bale serve --append-only keeps a directory so";
        return Err(Usage(text.to_owned()).into());
    };
    output::line(&serde_json::to_string_pretty(&policy)?);
    report!("Write the client's ARN for {CLIENT}, and set it as the bucket's policy.");
    report!();
    report!(
        "The policy lets the client add objects and replace none. Against whoever has other keys, \
         and against your own mistakes:"
    );
    report!("- versioning is on: what is deleted all the same stays as an old version;");
    report!(
        "- Object Lock is on, with a default retention (mode COMPLIANCE: nobody takes it away); \
         backup --retain DAYS renews the locks of what a snapshot uses;"
    );
    report!(
        "- forget, prune and key remove run elsewhere, with keys that may delete; packs that are \
         locked stay as old versions until their time is over."
    );
    Ok(exit::COMPLETE)
}
