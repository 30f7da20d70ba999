//! What Amazon makes of the policy of a bucket: which requests of a client it refuses, whatever
//! else his keys may.
//!
//! Rules as Amazon's manual has them: what a request does is one action or several, on the bucket
//! or on an object; what one statement denies is denied, what none allows is, too. Of the language
//! only what our policies say is known; anything else panics, since a policy that is half
//! understood shows nothing.

use crate::http_gate::{GateAnswer, GateRequest, Passage};
use serde_json::Value;
use std::collections::BTreeMap;

/// What Amazon says to a request that may not be made.
fn access_denied() -> GateAnswer {
    GateAnswer::s3_error(403, "AccessDenied", "")
}

/// The policy of one bucket, named in the path of requests.
pub struct BucketPolicy {
    bucket: String,
    statements: Vec<Value>,
    /// His keys may do everything, by another policy: only what is denied holds him.
    pub is_powerful: bool,
}

/// Something that a request does, and what conditions can look at.
struct BucketAction {
    name: &'static str,
    resource: String,
    context: BTreeMap<&'static str, String>,
}

impl BucketPolicy {
    /// As it is printed.
    pub fn new(policy: &Value, bucket: &str) -> BucketPolicy {
        let statements = policy["Statement"].as_array().expect("statements");
        BucketPolicy {
            bucket: bucket.to_owned(),
            statements: statements.clone(),
            is_powerful: false,
        }
    }

    /// What becomes of a request; a 404 is for those alone who may list.
    pub fn passage(&self, request: &GateRequest) -> Passage {
        if self.refused(request).is_some() {
            return Passage::Refused(access_denied());
        }
        let key = self.key(request);
        if key.is_empty() || !["GET", "HEAD"].contains(&request.method.as_str()) {
            return Passage::Open;
        }
        let listing = BucketAction {
            name: "s3:ListBucket",
            resource: self.arn(""),
            context: BTreeMap::new(),
        };
        match self.is_refused(&listing) {
            true => Passage::HidingWhatIsMissing(access_denied()),
            false => Passage::Open,
        }
    }

    /// The first action of a request that is refused.
    pub fn refused(&self, request: &GateRequest) -> Option<&'static str> {
        let actions = self.actions(request);
        let mut refused = actions.iter().filter(|action| self.is_refused(action));
        refused.next().map(|action| action.name)
    }

    fn is_refused(&self, action: &BucketAction) -> bool {
        let says = |effect: &str| {
            let of_effect = (self.statements.iter()).filter(|one| one["Effect"] == effect);
            of_effect.into_iter().any(|one| is_about(one, action))
        };
        says("Deny") || !(self.is_powerful || says("Allow"))
    }

    fn arn(&self, key: &str) -> String {
        match key {
            "" => format!("arn:aws:s3:::{}", self.bucket),
            key => format!("arn:aws:s3:::{}/{key}", self.bucket),
        }
    }

    fn key<'a>(&self, request: &'a GateRequest) -> &'a str {
        let path = request.path.strip_prefix('/').unwrap_or(&request.path);
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        assert_eq!(bucket, self.bucket, "another bucket");
        key
    }

    fn actions(&self, request: &GateRequest) -> Vec<BucketAction> {
        let key = self.key(request);
        if key.is_empty() && request.method == "POST" && request.parameter("delete").is_some() {
            let body = String::from_utf8_lossy(&request.body);
            return self.bulk_delete(&body);
        }
        let names = match key {
            "" => vec![of_bucket(request)],
            _ => of_object(request),
        };
        let mut context = BTreeMap::new();
        if let Some(prefix) = request.parameter("prefix") {
            context.insert("s3:prefix", prefix.to_owned());
        }
        if let Some(condition) = request.header("if-none-match") {
            context.insert("s3:if-none-match", condition.to_owned());
        }
        let is_part =
            request.parameter("uploads").is_some() || request.parameter("partNumber").is_some();
        context.insert("s3:ObjectCreationOperation", (!is_part).to_string());
        let action = |name| BucketAction {
            name,
            resource: self.arn(key),
            context: context.clone(),
        };
        names.into_iter().map(action).collect()
    }

    fn bulk_delete(&self, body: &str) -> Vec<BucketAction> {
        let mut actions = Vec::new();
        for object in body.split("<Object>").skip(1) {
            let inside = |name: &str| {
                let (_, after) = object.split_once(&format!("<{name}>"))?;
                Some(after.split_once('<')?.0)
            };
            actions.push(BucketAction {
                name: match inside("VersionId") {
                    Some(_) => "s3:DeleteObjectVersion",
                    None => "s3:DeleteObject",
                },
                resource: self.arn(inside("Key").expect("a key")),
                context: BTreeMap::new(),
            });
        }
        actions
    }
}

/// What a request to a bucket itself does.
fn of_bucket(request: &GateRequest) -> &'static str {
    const RULES: [(&str, &str, &str); 9] = [
        ("policy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"),
        ("versioning", "s3:PutBucketVersioning", ""),
        ("object-lock", "s3:PutBucketObjectLockConfiguration", ""),
        (
            "lifecycle",
            "s3:PutLifecycleConfiguration",
            "s3:PutLifecycleConfiguration",
        ),
        ("acl", "s3:PutBucketAcl", ""),
        (
            "replication",
            "s3:PutReplicationConfiguration",
            "s3:PutReplicationConfiguration",
        ),
        (
            "encryption",
            "s3:PutEncryptionConfiguration",
            "s3:PutEncryptionConfiguration",
        ),
        (
            "ownershipControls",
            "s3:PutBucketOwnershipControls",
            "s3:PutBucketOwnershipControls",
        ),
        ("tagging", "s3:PutBucketTagging", "s3:PutBucketTagging"),
    ];
    let rule = RULES
        .iter()
        .find(|(name, ..)| request.parameter(name).is_some());
    match (request.method.as_str(), rule) {
        ("PUT", Some((_, put, _))) => put,
        ("DELETE", Some((_, _, delete))) => delete,
        ("GET", Some(_)) => "s3:GetBucketRule",
        ("PUT", None) => "s3:CreateBucket",
        ("DELETE", None) => "s3:DeleteBucket",
        ("GET", None) if request.parameter("versions").is_some() => "s3:ListBucketVersions",
        ("GET", None) if request.parameter("uploads").is_some() => "s3:ListBucketMultipartUploads",
        ("GET" | "HEAD", None) => "s3:ListBucket",
        _ => panic!("what does {request:?} do?"),
    }
}

/// What a request to an object does.
fn of_object(request: &GateRequest) -> Vec<&'static str> {
    let has = |name: &str| request.parameter(name).is_some();
    let said = |name: &str| request.header(name).is_some();
    let is_of_version = has("versionId");
    let mut actions = match request.method.as_str() {
        "GET" | "HEAD" if has("retention") => vec!["s3:GetObjectRetention"],
        "GET" | "HEAD" if has("acl") => vec!["s3:GetObjectAcl"],
        "GET" | "HEAD" if has("tagging") => vec!["s3:GetObjectTagging"],
        "GET" | "HEAD" if is_of_version => vec!["s3:GetObjectVersion"],
        "GET" | "HEAD" => vec!["s3:GetObject"],
        "PUT" if has("retention") => vec!["s3:PutObjectRetention"],
        "PUT" if has("legal-hold") => vec!["s3:PutObjectLegalHold"],
        "PUT" if has("acl") => vec!["s3:PutObjectAcl"],
        "PUT" if has("tagging") => vec!["s3:PutObjectTagging"],
        "PUT" => vec!["s3:PutObject"],
        "DELETE" if has("uploadId") => vec!["s3:AbortMultipartUpload"],
        "DELETE" if has("tagging") => vec!["s3:DeleteObjectTagging"],
        "DELETE" if is_of_version => vec!["s3:DeleteObjectVersion"],
        "DELETE" => vec!["s3:DeleteObject"],
        "POST" if has("restore") => vec!["s3:RestoreObject"],
        "POST" if has("uploads") || has("uploadId") => vec!["s3:PutObject"],
        _ => panic!("what does {request:?} do?"),
    };
    let more = [
        ("x-amz-copy-source", "s3:GetObject"),
        ("x-amz-acl", "s3:PutObjectAcl"),
        ("x-amz-tagging", "s3:PutObjectTagging"),
        ("x-amz-object-lock-mode", "s3:PutObjectRetention"),
        (
            "x-amz-bypass-governance-retention",
            "s3:BypassGovernanceRetention",
        ),
    ];
    actions.extend(
        more.iter()
            .filter(|(name, _)| said(name))
            .map(|more| more.1),
    );
    actions
}

fn is_about(statement: &Value, action: &BucketAction) -> bool {
    let known = [
        "Sid",
        "Effect",
        "Principal",
        "Action",
        "NotAction",
        "Resource",
        "NotResource",
        "Condition",
    ];
    for name in statement.as_object().expect("a statement").keys() {
        assert!(known.contains(&name.as_str()), "an element {name}");
    }
    let either = |is: &str, is_not: &str, text: &str| match &statement[is] {
        Value::Null => !is_any(&statement[is_not], text),
        listed => is_any(listed, text),
    };
    either("Action", "NotAction", action.name)
        && either("Resource", "NotResource", &action.resource)
        && holds(&statement["Condition"], &action.context)
}

fn is_any(patterns: &Value, text: &str) -> bool {
    match patterns {
        Value::String(pattern) => is_like(pattern, text),
        Value::Array(patterns) => patterns.iter().any(|pattern| is_any(pattern, text)),
        other => panic!("{other} is no pattern"),
    }
}

/// `*` stands for any letters.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|after| {
            let mut ends = (0..=after.len()).filter(|at| after.is_char_boundary(*at));
            ends.any(|at| is_like(rest, &after[at..]))
        }),
    }
}

/// All of them.
fn holds(conditions: &Value, context: &BTreeMap<&'static str, String>) -> bool {
    let empty = serde_json::Map::new();
    let conditions = conditions.as_object().unwrap_or(&empty);
    conditions.iter().all(|(operator, of_keys)| {
        of_keys
            .as_object()
            .expect("keys")
            .iter()
            .all(|(key, wanted)| {
                let value = context.get(key.as_str());
                match operator.as_str() {
                    "Null" => (wanted == "true") == value.is_none(),
                    "Bool" => value.is_some_and(|value| wanted == value),
                    "StringLike" => value.is_some_and(|value| is_any(wanted, value)),
                    "StringLikeIfExists" => value.is_none_or(|value| is_any(wanted, value)),
                    other => panic!("a condition {other}"),
                }
            })
    })
}
