//! Ready hooks: a ping to a server that notices when it does not come, and a mail by the `sendmail`
//! of this machine.

use super::hook::{self, Hook};
use crate::exit;
use anyhow::Result;
use bale_profile::profile::Profile;
use bale_profile::words::ProfileTable;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Whatever the server does, a ping takes no longer.
const PING_WAIT: Duration = Duration::from_secs(30);
/// Bytes that are sent with one; servers keep about so many.
const PING_BYTES_MAX: usize = 10_000;
/// Where programs that send mail are, beside `PATH`.
const SENDMAIL: [&str; 3] = ["sendmail", "/usr/sbin/sendmail", "/usr/lib/sendmail"];

/// Reports a beginning (`None`) or an end; why that failed, if it did.
pub fn ping(profile: &Profile, end: Option<(i32, &Value)>) -> Option<String> {
    let address = profile.text(ProfileTable::Profile, "ping")?.to_owned();
    let suffix = match end {
        None => "start",
        Some((exit::COMPLETE | exit::INCOMPLETE, _)) => "",
        Some(_) => "fail",
    };
    let mut body = end.map(|(_, run)| run.to_string()).unwrap_or_default();
    body.truncate(body.floor_char_boundary(PING_BYTES_MAX));
    let ca_file = profile
        .text(ProfileTable::Profile, "ca-file")
        .map(PathBuf::from);
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("ping".to_owned());
    let begun = thread.spawn(move || {
        let _nobody_waits = sender.send(bale_remote::ping(
            &address,
            suffix,
            body.as_bytes(),
            ca_file,
        ));
    });
    // Not the address: whoever knows it may ping in our name.
    match (begun, receiver.recv_timeout(PING_WAIT)) {
        (Err(error), _) => Some(format!("ping: start a thread: {error}")),
        (_, Ok(Ok(()))) => None,
        (_, Ok(Err(error))) => Some(format!("ping: {error}")),
        (_, Err(_)) => Some(format!("ping: no answer in {} s", PING_WAIT.as_secs())),
    }
}

/// Mails what came of a run that was not complete; why that failed, if it did.
pub fn mail(
    profile: &Profile,
    host: &str,
    (code, lines): (i32, &[String]),
    say: &mut dyn FnMut(&[u8]),
) -> Result<Option<String>> {
    let to = profile.texts(ProfileTable::Profile, "mail");
    if to.is_empty() || code == exit::COMPLETE {
        return Ok(None);
    }
    let to: Vec<_> = to.iter().map(|text| text.text.as_str()).collect();
    let what = match code {
        exit::INCOMPLETE => "problems",
        _ => "FAILED",
    };
    // A host's name is no place for a further line of the head.
    let host: String = host.chars().filter(|letter| !letter.is_control()).collect();
    let text = format!(
        "To: {}\nSubject: bale: {} on {host}: {what} (exit {code})\nContent-Type: text/plain; \
         charset=utf-8\nAuto-Submitted: auto-generated\n\n{}\n",
        to.join(", "),
        profile.name(),
        lines.join("\n")
    );
    let mut why = None;
    for program in SENDMAIL {
        let hook = Hook {
            words: &[program, "-t", "-oi"],
            name: "sendmail",
            variables: &[],
            input: text.as_bytes(),
            timeout: profile.hook_timeout(ProfileTable::Profile),
        };
        why = hook::run(&hook, say)?;
        match &why {
            Some(text) if text.contains("cannot be started") => {}
            _ => break,
        }
    }
    Ok(why.map(|why| format!("mail: {why}")))
}
