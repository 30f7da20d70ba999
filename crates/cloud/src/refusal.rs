//! What a server's refusal means: a pure function of its status, two headers and its text.
//!
//! The kinds of `io::Error` are those that `Retried` of `bale-remote` knows: what passes is
//! `TimedOut` or `ResourceBusy`; what stays is said in a sentence with what to do. `NotFound` is of
//! the object alone: a bucket that is missing is another error. Text of a server is untrusted: it
//! is cut, and what a terminal would act on is left out.

use crate::dates::utc;
use bale_repository::store::Archived;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime};

/// Letters of a server's text that are shown.
const TEXT_LETTERS_MAX: usize = 200;

/// Servers refuse requests that are signed by a clock further off than 15 minutes.
const CLOCK_OFF_MAX: Duration = Duration::from_secs(14 * 60);

/// Words of servers for a place that is full, or a quota that is used up: MinIO's, Ceph's, Garage's
/// and B2's among them.
const FULL: [&str; 8] = [
    "XMinioStorageFull",
    "XMinioAdminBucketQuotaExceeded",
    "QuotaExceeded",
    "StorageQuotaExceeded",
    "InsufficientCapacity",
    "InsufficientStorage",
    "storage_cap_exceeded",
    "cap_exceeded",
];

/// Words of servers for an object that is longer than they take.
const TOO_LONG: [&str; 3] = [
    "EntityTooLarge",
    "RequestBodyTooLarge",
    "MaxMessageLengthExceeded",
];

/// S3's word for what cannot be read yet, and Azure's.
const ARCHIVED_OBJECT: [&str; 1] = ["InvalidObjectState"];
const ARCHIVED_BLOB: [&str; 2] = ["BlobArchived", "BlobBeingRehydrated"];

/// What came back.
#[derive(Clone, Debug, Default)]
pub struct Answer<'a> {
    pub status: u16,
    /// The beginning of its body.
    pub body: &'a [u8],
    /// `x-ms-error-code`: Azure's, also where there is no body.
    pub code: Option<&'a str>,
    /// `x-amz-bucket-region`.
    pub region: Option<&'a str>,
    /// `Date`.
    pub date: Option<SystemTime>,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    pub status: u16,
    pub kind: ErrorKind,
    pub text: String,
    /// The object is there, in a class from which it must be brought back.
    pub is_archived: bool,
}

impl Refusal {
    /// The same as a failure of I/O.
    pub(crate) fn into_error(self) -> io::Error {
        match self.kind {
            ErrorKind::NotFound => ErrorKind::NotFound.into(),
            kind if self.is_archived => io::Error::new(kind, Archived(self.text)),
            kind => io::Error::new(kind, self),
        }
    }
}

/// The range that was requested is not there.
pub(crate) fn is_out_of_range(error: &io::Error) -> bool {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Refusal>());
    inner.is_some_and(|refusal| refusal.status == 416)
}

/// What an answer that is no success means.
pub fn refusal(answer: &Answer<'_>, now: SystemTime) -> Refusal {
    let said = Said::read(answer);
    let status = answer.status;
    let (kind, sentence) = meaning(&said, answer, now);
    let shown = said.shown();
    let text = match sentence {
        Some(sentence) => format!("{sentence} ({status}{shown})"),
        None => format!("the server answers {status}{shown}"),
    };
    Refusal {
        status,
        kind,
        text,
        is_archived: said.is_archived(),
    }
}

/// Code, text, region and the server's time, from XML, JSON or headers.
struct Said {
    code: String,
    message: String,
    region: Option<String>,
    time: Option<String>,
}

impl Said {
    fn read(answer: &Answer<'_>) -> Said {
        let text = String::from_utf8_lossy(answer.body);
        let (mut code, mut message) = match serde_json::from_slice(answer.body) {
            Ok(json) => of_json(&json),
            Err(_) => (element(&text, "Code"), element(&text, "Message")),
        };
        if let Some(header) = answer.code {
            code = header.to_owned();
        }
        let region = answer.region.map(str::to_owned);
        let region = region.or_else(|| Some(element(&text, "Region")));
        for text in [&mut code, &mut message] {
            *text = harmless(text);
        }
        let time = Some(harmless(&element(&text, "ServerTime"))).filter(|time| !time.is_empty());
        Said {
            code,
            message,
            region: region
                .map(|text| harmless(&text))
                .filter(|text| !text.is_empty()),
            time: answer.date.and_then(utc).or(time),
        }
    }

    fn shown(&self) -> String {
        match (self.code.as_str(), self.message.as_str()) {
            ("", "") => String::new(),
            ("", text) | (text, "") => format!(", {text}"),
            (code, message) => format!(", {code}: {message}"),
        }
    }

    fn has(&self, words: &[&str]) -> bool {
        let is_said = |word: &&str| self.code == **word;
        words.iter().any(is_said)
    }

    fn is_archived(&self) -> bool {
        self.has(&ARCHIVED_OBJECT) || self.has(&ARCHIVED_BLOB)
    }

    /// Google gives no codes.
    fn mentions(&self, words: &str) -> bool {
        self.message.to_ascii_lowercase().contains(words)
    }
}

fn meaning(said: &Said, answer: &Answer<'_>, now: SystemTime) -> (ErrorKind, Option<String>) {
    let sentence = |text: &str| Some(text.to_owned());
    let is_bucket = ["NoSuchBucket", "ContainerNotFound", "InvalidBucketName"];
    if said.has(&is_bucket) || said.mentions("bucket does not exist") {
        let text = "there is no such bucket or container: make it first, with the provider's tools";
        return (ErrorKind::Other, sentence(text));
    }
    if said.has(&FULL) || said.mentions("storage cap exceeded") {
        let text = "the store is full, or its quota is used up";
        return (ErrorKind::StorageFull, sentence(text));
    }
    if said.has(&TOO_LONG) || answer.status == 413 {
        let text = "the server takes no object as long as this: use smaller packs (--pack-size), \
                    or raise its limit";
        return (ErrorKind::FileTooLarge, sentence(text));
    }
    match answer.status {
        404 | 410 => (ErrorKind::NotFound, None),
        412 => (ErrorKind::AlreadyExists, None),
        409 if said.has(&["BlobAlreadyExists", "RestoreAlreadyInProgress"]) => {
            (ErrorKind::AlreadyExists, None)
        }
        416 => (ErrorKind::UnexpectedEof, None),
        409 if said.has(&ARCHIVED_BLOB) => refused(said, answer, now),
        400 | 401 | 403 => refused(said, answer, now),
        301 | 302 | 303 | 307 => (ErrorKind::Other, Some(elsewhere(said))),
        408 | 504 => (ErrorKind::TimedOut, None),
        409 | 425 | 429 | 499 | 500 | 502 | 503 => (ErrorKind::ResourceBusy, None),
        501 => (ErrorKind::Unsupported, None),
        507 => (
            ErrorKind::StorageFull,
            sentence("the store is full, or its quota is used up"),
        ),
        _ => (ErrorKind::Other, None),
    }
}

fn elsewhere(said: &Said) -> String {
    match &said.region {
        Some(region) => format!(
            "the bucket is in the region {region}: set AWS_REGION={region}, and name the host of \
             that region"
        ),
        None => {
            "the server sends elsewhere, where nothing is sent: name the host itself".to_owned()
        }
    }
}

fn refused(said: &Said, answer: &Answer<'_>, now: SystemTime) -> (ErrorKind, Option<String>) {
    let denied = |text: &str| (ErrorKind::PermissionDenied, Some(text.to_owned()));
    if said.has(&["RequestTimeout"]) {
        return (ErrorKind::TimedOut, None);
    }
    if said.has(&["SlowDown", "TooManyRequests"]) {
        return (ErrorKind::ResourceBusy, None);
    }
    let skewed = ["RequestTimeTooSkewed", "RequestExpired"];
    if said.has(&skewed) || said.mentions("too skewed") || is_off(answer.date, now) {
        return denied(&apart(said, now));
    }
    if said.has(&[
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
    ]) && said.region.is_some()
    {
        return (ErrorKind::Other, Some(elsewhere(said)));
    }
    if said.has(&ARCHIVED_OBJECT) {
        let text = "it is archived in a cold storage class: restore and dump have it brought back \
                    with --warm-up";
        return (ErrorKind::Other, Some(text.to_owned()));
    }
    if said.has(&ARCHIVED_BLOB) {
        let text = "it is archived in a cold storage class: have it rehydrated first (--plan names \
                    what a restore needs, --warm-command runs what brings it)";
        return (ErrorKind::Other, Some(text.to_owned()));
    }
    if said.has(&["InvalidAccessKeyId", "AuthenticationFailed"]) || answer.status == 401 {
        return denied("the server does not know these credentials");
    }
    if said.has(&["SignatureDoesNotMatch"]) {
        return denied("the secret key does not fit the access key");
    }
    if said.has(&["ExpiredToken", "InvalidToken", "TokenRefreshRequired"]) {
        return denied("these credentials have expired");
    }
    match answer.status {
        403 => denied("these credentials may not do this, or the server does not know them"),
        _ => (ErrorKind::Other, None),
    }
}

/// With both times, where they are known.
fn apart(said: &Said, now: SystemTime) -> String {
    let times = match (utc(now), &said.time) {
        (Some(here), Some(there)) => format!(": it is {here} here and {there} there"),
        (Some(here), None) => format!(": it is {here} here"),
        (None, _) => String::new(),
    };
    format!("this machine's clock and the server's are too far apart{times}; set the clock")
}

fn is_off(date: Option<SystemTime>, now: SystemTime) -> bool {
    let apart = date.map(|date| match now.duration_since(date) {
        Ok(apart) => apart,
        Err(before) => before.duration(),
    });
    apart.is_some_and(|apart| apart > CLOCK_OFF_MAX)
}

/// What stands in the first element of this name, if it holds no others.
fn element(text: &str, name: &str) -> String {
    let after = text.split_once(&format!("<{name}>"));
    let inside = after.and_then(|(_, after)| after.split_once('<'));
    inside.map_or(String::new(), |(inside, _)| without_entities(inside))
}

/// With the letters that `&#39;`, `&#x27;`, `&amp;` and their likes stand for; what is none of them
/// stays as it is.
fn without_entities(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let entity = after.split_once(';');
        match entity.and_then(|(name, after)| Some((letter_of(name)?, after))) {
            Some((letter, after)) => {
                plain.push(letter);
                rest = after;
            }
            None => {
                plain.push('&');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

fn letter_of(entity: &str) -> Option<char> {
    let numbered = |digits: &str, radix| char::from_u32(u32::from_str_radix(digits, radix).ok()?);
    match entity.strip_prefix('#') {
        Some(number) => match number.strip_prefix('x') {
            Some(digits) => numbered(digits, 16),
            None => numbered(number, 10),
        },
        None => match entity {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => None,
        },
    }
}

/// Google's `{"error": {"message": ..}}`, and B2's `{"code": .., "message": ..}`.
fn of_json(json: &serde_json::Value) -> (String, String) {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let error = json.get("error").filter(|error| error.is_object());
    let error = error.unwrap_or(json);
    (text(&error["code"]), text(&error["message"]))
}

/// One short line without what a terminal would act on.
fn harmless(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let kept = line.chars().filter(|letter| !letter.is_control());
    kept.take(TEXT_LETTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn xml(status: u16, code: &str) -> Refusal {
        let body = format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>"
        );
        let answer = Answer {
            status,
            body: body.as_bytes(),
            ..Answer::default()
        };
        refusal(&answer, UNIX_EPOCH)
    }

    #[test]
    fn only_a_missing_object_is_not_found() {
        assert_eq!(xml(404, "NoSuchKey").kind, ErrorKind::NotFound);
        let bucket = xml(404, "NoSuchBucket");
        assert_eq!(bucket.kind, ErrorKind::Other);
        assert!(bucket.text.contains("no such bucket"), "{bucket}");
        let body = br#"{"error":{"code":404,"message":"The specified bucket does not exist."}}"#;
        let google = Answer {
            status: 404,
            body,
            ..Answer::default()
        };
        assert_eq!(refusal(&google, UNIX_EPOCH).kind, ErrorKind::Other);
        let azure = Answer {
            status: 404,
            code: Some("ContainerNotFound"),
            ..Answer::default()
        };
        assert_eq!(refusal(&azure, UNIX_EPOCH).kind, ErrorKind::Other);
    }

    #[test]
    fn what_passes_and_what_stays_have_kinds_of_their_own() {
        for (status, code, kind) in [
            (503, "SlowDown", ErrorKind::ResourceBusy),
            (500, "InternalError", ErrorKind::ResourceBusy),
            (429, "", ErrorKind::ResourceBusy),
            (409, "ConditionalRequestConflict", ErrorKind::ResourceBusy),
            (400, "RequestTimeout", ErrorKind::TimedOut),
            (504, "", ErrorKind::TimedOut),
            (412, "PreconditionFailed", ErrorKind::AlreadyExists),
            (409, "BlobAlreadyExists", ErrorKind::AlreadyExists),
            (409, "RestoreAlreadyInProgress", ErrorKind::AlreadyExists),
            (409, "BlobArchived", ErrorKind::Other),
            (416, "InvalidRange", ErrorKind::UnexpectedEof),
            (403, "AccessDenied", ErrorKind::PermissionDenied),
            (403, "InvalidObjectState", ErrorKind::Other),
            (501, "NotImplemented", ErrorKind::Unsupported),
            (507, "", ErrorKind::StorageFull),
            (403, "QuotaExceeded", ErrorKind::StorageFull),
            (507, "XMinioStorageFull", ErrorKind::StorageFull),
            (
                400,
                "XMinioAdminBucketQuotaExceeded",
                ErrorKind::StorageFull,
            ),
            (403, "storage_cap_exceeded", ErrorKind::StorageFull),
            (400, "EntityTooLarge", ErrorKind::FileTooLarge),
            (413, "", ErrorKind::FileTooLarge),
        ] {
            assert_eq!(xml(status, code).kind, kind, "{status} {code}");
        }
    }

    #[test]
    fn what_is_archived_is_told_from_what_is_damaged_or_denied() {
        for (status, code) in [
            (403, "InvalidObjectState"),
            (409, "BlobArchived"),
            (409, "BlobBeingRehydrated"),
        ] {
            let refused = xml(status, code);
            assert!(refused.text.contains("--warm"), "{refused}");
            let inner = refused.into_error().into_inner().unwrap();
            assert!(inner.is::<Archived>(), "{code}");
        }
        let denied = xml(403, "AccessDenied").into_error().into_inner();
        assert!(!denied.unwrap().is::<Archived>());
    }

    #[test]
    fn a_clock_that_is_off_is_called_by_its_name() {
        let skewed = xml(403, "RequestTimeTooSkewed").text;
        assert!(skewed.contains("clock"), "{skewed}");
        assert!(
            skewed.contains("it is 1970-01-01T00:00:00Z here"),
            "{skewed}"
        );
        // A HEAD has no body to say it in.
        let date = Some(UNIX_EPOCH + Duration::from_secs(3_600));
        let head = Answer {
            status: 403,
            date,
            ..Answer::default()
        };
        let off = refusal(&head, UNIX_EPOCH);
        for text in [
            "clock",
            "1970-01-01T00:00:00Z here",
            "1970-01-01T01:00:00Z there",
        ] {
            assert!(off.text.contains(text), "{text}: {off}");
        }
        let right = refusal(&head, UNIX_EPOCH + Duration::from_secs(3_500));
        assert!(!right.text.contains("clock"), "{right}");
    }

    #[test]
    fn a_servers_text_is_read_without_its_entities() {
        let body = b"<Error><Code>Odd</Code><Message>it&#39;s &lt;5&gt; &amp;amp; &#x22;x&quot; \
            &nbsp; &#xd800; & &;</Message></Error>";
        let answer = Answer {
            status: 400,
            body,
            ..Answer::default()
        };
        let text = refusal(&answer, UNIX_EPOCH).text;
        let plain = "it's <5> &amp; \"x\" &nbsp; &#xd800; & &;";
        assert!(text.contains(plain), "{text}");
        let steering = b"<Error><Code>Odd</Code><Message>a&#27;[31m</Message></Error>";
        let answer = Answer {
            body: steering,
            ..answer
        };
        let text = refusal(&answer, UNIX_EPOCH).text;
        assert!(text.contains("a[31m"), "{text}");
    }

    #[test]
    fn another_region_is_named() {
        let body =
            b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-north-1</Region></Error>";
        for status in [301, 400] {
            let answer = Answer {
                status,
                body,
                ..Answer::default()
            };
            let text = refusal(&answer, UNIX_EPOCH).text;
            assert!(text.contains("AWS_REGION=eu-north-1"), "{text}");
        }
    }

    #[test]
    fn a_servers_text_is_cut_and_harmless() {
        let message = format!("\x1b[31mred{}", "x".repeat(10_000));
        let body = format!("<Error><Code>Odd</Code><Message>{message}</Message></Error>");
        let answer = Answer {
            status: 400,
            body: body.as_bytes(),
            ..Answer::default()
        };
        let text = refusal(&answer, UNIX_EPOCH).text;
        assert!(text.len() < 300 && !text.contains('\x1b'), "{text}");
        for body in [
            &b""[..],
            b"<Code>",
            b"\xff\xfe",
            b"{",
            b"{\"error\":7}",
            b"[]",
            b"7",
        ] {
            for status in [0, 301, 400, 404, 599] {
                refusal(
                    &Answer {
                        status,
                        body,
                        ..Answer::default()
                    },
                    UNIX_EPOCH,
                );
            }
        }
    }
}
