//! The policy of a bucket by which a client adds objects and never replaces or deletes any: a pure
//! function of the place.
//!
//! A right to write is one to replace, so writing is bound to the condition that nothing is there.
//! Only records of unfinished backups (`runs/`) may be deleted, as on a server that runs with
//! `--append-only`.

use crate::place::{Cloud, CloudPlace};
use serde_json::{Value, json};

/// Stands where the owner of the bucket writes who the client is.
pub const CLIENT: &str = "arn:aws:iam::ACCOUNT:user/CLIENT";

/// What the client may do at most, whatever other policies let its keys do.
const ACTIONS_AT_MOST: [&str; 7] = [
    "s3:Get*",
    "s3:List*",
    "s3:PutObject",
    "s3:PutObjectRetention",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:RestoreObject",
];

/// For a place in S3; for others there is none.
pub fn put_only_policy(place: &CloudPlace) -> Option<Value> {
    if place.cloud() != Cloud::S3 {
        return None;
    }
    let partition = match place.is_chinese() {
        true => "aws-cn",
        false => "aws",
    };
    let client = json!({"AWS": CLIENT.replace("arn:aws:", &format!("arn:{partition}:"))});
    let bucket = format!("arn:{partition}:s3:::{}", place.bucket);
    let below = match place.prefix.is_empty() {
        true => String::new(),
        false => format!("{}/", place.prefix),
    };
    let (objects, runs) = (
        format!("{bucket}/{below}*"),
        format!("{bucket}/{below}runs/*"),
    );
    Some(json!({
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "List", "Effect": "Allow", "Principal": client,
                "Action": "s3:ListBucket", "Resource": bucket,
                // Without "IfExists" Amazon may say that an object that is missing is forbidden: no
                // prefix is said in a request for one.
                "Condition": {"StringLikeIfExists": {"s3:prefix": format!("{below}*")}},
            },
            {
                "Sid": "ReadWarmUpAddAndLockLonger", "Effect": "Allow", "Principal": client,
                "Action": [
                    "s3:GetObject", "s3:PutObject", "s3:GetObjectRetention",
                    "s3:PutObjectRetention", "s3:RestoreObject",
                ],
                "Resource": objects,
            },
            {
                "Sid": "ReplaceNothing", "Effect": "Deny", "Principal": client,
                "Action": "s3:PutObject", "Resource": objects,
                "Condition": {
                    "Null": {"s3:if-none-match": "true"},
                    "Bool": {"s3:ObjectCreationOperation": "true"},
                },
            },
            {
                "Sid": "EndUnfinishedBackups", "Effect": "Allow", "Principal": client,
                "Action": "s3:DeleteObject", "Resource": runs,
            },
            {
                "Sid": "DeleteNothingElse", "Effect": "Deny", "Principal": client,
                "Action": "s3:DeleteObject", "NotResource": runs,
            },
            {
                "Sid": "DeleteNoVersionAndUnlockNothing", "Effect": "Deny", "Principal": client,
                "Action": ["s3:DeleteObjectVersion", "s3:BypassGovernanceRetention"],
                "Resource": format!("{bucket}/*"),
            },
            {
                "Sid": "DoNothingElse", "Effect": "Deny", "Principal": client,
                "NotAction": ACTIONS_AT_MOST, "Resource": [bucket, objects],
            },
        ],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(cloud: Cloud, name: &str) -> Option<Value> {
        put_only_policy(&CloudPlace::parse(cloud, name).unwrap())
    }

    #[test]
    fn writing_is_denied_where_something_may_be_replaced_and_deleting_everywhere_but_in_runs() {
        let policy = policy(Cloud::S3, "https://h/bucket/a/b").unwrap();
        let statements = policy["Statement"].as_array().unwrap();
        let of = |sid: &str| {
            let found = statements.iter().find(|statement| statement["Sid"] == sid);
            found.unwrap()
        };
        let replace = of("ReplaceNothing");
        assert_eq!(replace["Effect"], "Deny");
        assert_eq!(replace["Resource"], "arn:aws:s3:::bucket/a/b/*");
        assert_eq!(replace["Condition"]["Null"]["s3:if-none-match"], "true");
        let allowed: Vec<&Value> = statements
            .iter()
            .filter(|statement| statement["Effect"] == "Allow")
            .filter(|statement| statement["Action"].to_string().contains("Delete"))
            .collect();
        assert_eq!(allowed, [of("EndUnfinishedBackups")]);
        assert_eq!(allowed[0]["Resource"], "arn:aws:s3:::bucket/a/b/runs/*");
        let all = of("DeleteNothingElse");
        assert_eq!(all["NotResource"], allowed[0]["Resource"]);
        let other = of("DoNothingElse");
        for statement in statements.iter().filter(|one| one["Effect"] == "Allow") {
            let actions = match &statement["Action"] {
                Value::Array(actions) => actions.clone(),
                action => vec![action.clone()],
            };
            for action in actions {
                let name = action.as_str().unwrap();
                let is_left = other["NotAction"].as_array().unwrap().iter().any(|left| {
                    let left = left.as_str().unwrap();
                    left.strip_suffix('*')
                        .map_or(name == left, |left| name.starts_with(left))
                });
                assert!(is_left, "{name} is allowed and denied");
            }
        }
    }

    #[test]
    fn only_s3_has_it_and_a_whole_bucket_too() {
        assert_eq!(policy(Cloud::Gcs, "bucket:/x"), None);
        let whole = policy(Cloud::S3, "s3.cn-north-1.amazonaws.com.cn/bucket").unwrap();
        let text = whole.to_string();
        assert!(text.contains("arn:aws-cn:s3:::bucket/runs/*"), "{text}");
        assert!(!text.contains("arn:aws:"), "{text}");
    }
}
