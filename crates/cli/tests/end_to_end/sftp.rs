//! Repositories over SFTP, with OpenSSH's server in the place of `ssh`.

use crate::bench::Bench;
use crate::remote_life::lives;
use bale_testkit::servers::sftp_server;

fn server() -> String {
    sftp_server().display().to_string()
}

#[test]
fn a_repository_over_sftp_lives_as_one_in_a_directory() {
    let bench = Bench::new();
    let repository = format!("sftp:me@nowhere:{}", bench.path("far").display());
    lives(&bench, &repository, &[("BALE_SFTP_COMMAND", &server())]);
    bench.ok(&["check", "--read-data", "-p", "pw", "-r", "far"]);
}

#[test]
fn what_is_no_place_or_no_command_is_refused_before_anything_is_started() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    for (repository, command, said) in [
        (
            "sftp:-oProxyCommand=touch x:/y",
            "true",
            "sftp:USER@HOST:/PATH",
        ),
        ("sftp:h:/x", "'", "BALE_SFTP_COMMAND"),
        ("sftp://me:s3cr3t@h/x", "true", "a password in it"),
    ] {
        let mut run = bench.command();
        run.args(["init", "-p", "pw", "-r", repository]);
        let ran = run.env("BALE_SFTP_COMMAND", command).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{text}");
        assert!(text.contains(said) && !text.contains("s3cr3t"), "{text}");
    }
}

fn init_by(command: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let bench = Bench::new();
    bench.write("pw", "secret");
    let mut run = bench.command();
    run.args(["init", "-p", "pw", "-r", "sftp:h:/x"]).args(more);
    let ran = run.env("BALE_SFTP_COMMAND", command).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
}

/// A login that is refused, a host that is not known, a program that is not there: asking again
/// changes nothing.
#[test]
fn what_ssh_refuses_for_good_is_said_at_once_and_what_to_do() {
    for (command, said) in [
        (
            "sh -c 'echo \"me@h: Permission denied (publickey).\" >&2; exit 255'",
            "ssh logs in by hand",
        ),
        (
            "sh -c 'echo Host key verification failed. >&2; exit 255'",
            "fingerprint",
        ),
        ("/nowhere/ssh -x", "BALE_SFTP_COMMAND"),
    ] {
        let (code, _, text) = init_by(command, &[]);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(said), "{text}");
        assert!(!text.contains("trying again"), "{text}");
    }
}

/// A host that is away is asked again, for as long as was said; who wants quiet hears of the end
/// only, and scripts how often it was.
#[test]
fn a_host_that_is_away_is_asked_again_and_quietly_if_that_is_wanted() {
    let away = "sh -c 'echo connect to host h port 22: Connection refused >&2; exit 255'";
    let (code, _, text) = init_by(away, &["--retry-for", "1s"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("trying again"), "{text}");
    assert!(text.contains("given up after"), "{text}");
    let (code, printed, text) = init_by(away, &["--retry-for", "1s", "-q", "--json"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(!text.contains("trying again"), "{text}");
    assert!(text.contains("given up after"), "{text}");
    let last: serde_json::Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(last["type"], "error", "{printed}");
    assert!(last["requests_repeated"].as_u64().unwrap() > 0, "{printed}");
}
