//! Why `ssh` ended before the server said anything, as far as it stays so.
//!
//! `ssh` ends with 255 whatever was wrong, and says in words what. A host that is away, or a name
//! that does not resolve, may be there in a minute. A login or a host key that is refused will be
//! refused again, and asking again may lock the user out. With any other code it ends as the
//! program on the host did. Words that are not known are taken for those that pass.

use std::io::ErrorKind;

/// What ssh says, and what to do.
const FINAL: [(&[&str], ErrorKind, &str); 5] = [
    (
        &["Host key verification failed"],
        ErrorKind::PermissionDenied,
        "ssh does not trust the key of the host: connect once by hand (ssh HOST) and compare its \
         fingerprint; a key that has changed is taken out of known_hosts only by who knows why it \
         has",
    ),
    (
        &[
            "Permission denied (",
            "Too many authentication failures",
            "No more authentication methods",
            "Permission denied, please try again",
        ],
        ErrorKind::PermissionDenied,
        "the host refuses this login: see that ssh logs in by hand as this user, without asking \
         where nobody can answer (a key, an agent)",
    ),
    (
        &["Unable to negotiate with"],
        ErrorKind::Unsupported,
        "the host and ssh have no algorithm in common: ssh_config can allow an old one",
    ),
    (
        &["subsystem request failed"],
        ErrorKind::Unsupported,
        "the host gives this user no files: its sshd_config needs a line Subsystem sftp",
    ),
    (
        &[
            "Bad configuration option",
            "bad configuration options",
            "Bad owner or permissions on",
            "unknown option",
            "illegal option",
        ],
        ErrorKind::InvalidInput,
        "ssh refuses its configuration or options: mend them, or BALE_SFTP_COMMAND",
    ),
];

/// Codes with which a shell says that there is no such program.
const NO_PROGRAM: [&str; 2] = ["ended with exit status: 126", "ended with exit status: 127"];

/// The kind of what stays, and what to do; `how` is how the process ended and what it said.
pub(super) fn what_stays(how: &str) -> Option<(ErrorKind, &'static str)> {
    if NO_PROGRAM.iter().any(|code| how.contains(code)) {
        let text = "there is no such program, here or on the host: see BALE_SFTP_COMMAND";
        return Some((ErrorKind::InvalidInput, text));
    }
    let mut known = FINAL.into_iter();
    let (_, kind, text) = known.find(|(said, ..)| said.iter().any(|words| how.contains(words)))?;
    Some((kind, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stays(code: i32, said: &str) -> bool {
        what_stays(&format!(
            "ssh ended with exit status: {code}; it said: {said}"
        ))
        .is_some()
    }

    /// As OpenSSH 9 and 10 say it.
    #[test]
    fn what_may_pass_is_told_from_what_stays() {
        for said in [
            "ssh: Could not resolve hostname nas: Temporary failure in name resolution",
            "ssh: Could not resolve hostname nas: Name or service not known",
            "ssh: connect to host nas port 22: Connection refused",
            "ssh: connect to host nas port 22: Connection timed out",
            "ssh: connect to host nas port 22: No route to host",
            "kex_exchange_identification: Connection closed by remote host",
            "kex_exchange_identification: read: Connection reset by peer",
            "Connection timed out during banner exchange",
            "Connection closed by 10.0.0.1 port 22",
            "",
        ] {
            assert!(!stays(255, said), "{said}");
        }
        for said in [
            "No ED25519 host key is known for nas and you have requested strict checking.; Host \
             key verification failed.",
            "me@nas: Permission denied (publickey,password).",
            "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures",
            "Unable to negotiate with 10.0.0.1 port 22: no matching host key type found.",
            "subsystem request failed on channel 0",
            "command-line: line 0: Bad configuration option: x",
        ] {
            assert!(stays(255, said), "{said}");
        }
        assert!(stays(127, "sh: 1: sftp-serve: not found"));
        assert!(!stays(1, ""));
    }
}
