//! The packages that `scripts/package` makes: what is in them, and that the binary in them runs
//! where there is nothing else. `./test` builds it beside the tests and names it in
//! `BALE_STATIC_BINARY`; elsewhere it is built here, which takes minutes the first time.
//!
//! The binary is built by the profile of tests: what is shown is how it is linked and packed, and
//! not how fast it is. Of a release, name the binary in that variable.

use bale_testkit::{have, is_root, skipped};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Made once for all tests.
struct Packed {
    directory: PathBuf,
    is_static: bool,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a program printed; it must end well.
fn printed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out
}

fn can_link_statically() -> bool {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut words = Command::new("rustc");
    let libraries = words.args(["--print", "target-libdir", "--target", &target]);
    let libraries = libraries.output().map(|output| output.stdout);
    let libraries = String::from_utf8(libraries.unwrap_or_default()).unwrap();
    have("musl-gcc") && Path::new(libraries.trim()).exists()
}

fn packed() -> &'static Packed {
    static PACKED: OnceLock<Packed> = OnceLock::new();
    PACKED.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let directory = target.join("test/packages");
        let built = std::env::var_os("BALE_STATIC_BINARY");
        let is_static = built.is_some() || can_link_statically();
        let mut command = Command::new(repository().join("scripts/package"));
        command.arg("--into").arg(&directory);
        match (&built, is_static) {
            (Some(built), _) => command.arg("--binary").arg(built),
            (None, true) => command.args(["--profile", "dev"]),
            // The rest of the package can be looked at all the same.
            (None, false) => command.args(["--binary", env!("CARGO_BIN_EXE_bale")]),
        };
        printed(command.env("CARGO_TARGET_DIR", target));
        Packed {
            directory,
            is_static,
        }
    })
}

impl Packed {
    /// The only file whose name ends so.
    fn file(&self, end: &str) -> PathBuf {
        let entries = std::fs::read_dir(&self.directory).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut found = paths.filter(|path| path.to_string_lossy().ends_with(end));
        let first = found.next().unwrap_or_else(|| panic!("no {end}"));
        assert!(found.next().is_none(), "two of {end}");
        first
    }
}

fn scratch() -> tempfile::TempDir {
    let directory = tempfile::Builder::new().prefix("bale-package-").tempdir();
    directory.unwrap()
}

/// `/proc` below a root directory, as any system that runs has it, until this is dropped.
struct Proc(PathBuf);

impl Proc {
    fn of(root: &Path) -> Proc {
        let proc = Proc(root.join("proc"));
        std::fs::create_dir_all(&proc.0).unwrap();
        printed(Command::new("mount").args(["--bind", "/proc"]).arg(&proc.0));
        proc
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        let _reported_by_who_cleans_up = Command::new("umount").arg(&self.0).status();
    }
}

/// A backup and its restore, by the binary at a place in a root directory with nothing else in it
/// but `/proc`, without which nothing can be said of a symbolic link's attributes.
fn backs_up_and_restores_in(root: &Path, bale: &str) {
    std::fs::create_dir_all(root.join("source/below")).unwrap();
    std::fs::write(root.join("source/below/file"), "content").unwrap();
    std::os::unix::fs::symlink("below/file", root.join("source/link")).unwrap();
    std::fs::write(root.join("password"), "secret\n").unwrap();
    let _proc = Proc::of(root);
    let run = |words: &[&str]| {
        let mut command = Command::new("chroot");
        command.arg(root).arg(bale).args(words).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        printed(command.env("BALE_PASSWORD_FILE", "/password"))
    };
    run(&["init", "-r", "/repository"]);
    run(&["backup", "-r", "/repository", "--host", "here", "/source"]);
    let words = [
        "-r",
        "/repository",
        "latest:/source",
        "--target",
        "/back",
        "--verify",
    ];
    run(&[&["restore"], &words[..]].concat());
    run(&["check", "-r", "/repository", "--read-data"]);
    let back = std::fs::read(root.join("back/below/file")).unwrap();
    assert_eq!(back, b"content");
    assert_eq!(std::fs::read(root.join("back/link")).unwrap(), b"content");
}

#[test]
fn the_static_binary_backs_up_and_restores_where_there_is_nothing_else() {
    if !is_root() || !packed().is_static {
        return skipped("a static binary needs musl-tools, its target of rustup, and root to try");
    }
    let binary = packed().directory.join("bale");
    let headers = printed(Command::new("readelf").arg("-lW").arg(&binary));
    assert!(
        headers.contains("LOAD") && !headers.contains("INTERP"),
        "{headers}"
    );
    let needed = printed(Command::new("readelf").arg("-dW").arg(&binary));
    assert!(!needed.contains("NEEDED"), "{needed}");
    let root = scratch();
    std::fs::copy(&binary, root.path().join("bale")).unwrap();
    backs_up_and_restores_in(root.path(), "/bale");
}

/// Paths of files in the tree that all packages are made of.
fn tree() -> Vec<String> {
    let tree = packed().directory.join("tree");
    let mut find = Command::new("find");
    let found = printed(
        find.arg(&tree)
            .args(["!", "-type", "d", "-printf", "/%P\\n"]),
    );
    let mut found: Vec<_> = found.lines().map(str::to_owned).collect();
    found.sort();
    found
}

#[test]
fn a_package_has_what_an_administrator_looks_for_and_no_other_program() {
    let tree = tree();
    for path in [
        "/etc/bale/bale.toml",
        "/usr/bin/bale",
        "/usr/lib/systemd/system/bale-serve.service",
        "/usr/lib/systemd/system/bale-serve.socket",
        "/usr/lib/systemd/system/bale@.service",
        "/usr/lib/systemd/system/bale@.timer",
        "/usr/share/bash-completion/completions/bale",
        "/usr/share/doc/bale/LICENSE-MIT",
        "/usr/share/doc/bale/SECURITY.md",
        "/usr/share/doc/bale/THIRD-PARTY-LICENSES.gz",
        "/usr/share/doc/bale/changelog.gz",
        "/usr/share/doc/bale/docs/guide/restoring.md",
        "/usr/share/man/man1/bale.1.gz",
        "/usr/share/man/man1/bale-backup.1.gz",
    ] {
        assert!(tree.iter().any(|found| found == path), "{path}: {tree:#?}");
    }
    // Whatever keeps last copies holds nothing that measures them beside others.
    let programs = tree.iter().filter(|path| path.contains("bin/"));
    assert_eq!(programs.collect::<Vec<_>>(), ["/usr/bin/bale"]);
    let profiles = packed().directory.join("tree/etc/bale/bale.toml");
    let profiles = std::fs::read_to_string(profiles).unwrap();
    let counts = |line: &&str| !line.is_empty() && !line.starts_with('#');
    assert_eq!(profiles.lines().find(counts), None, "a line that counts");
    assert!(profiles.contains("[profile."), "{profiles}");
}

#[test]
fn the_deb_unpacks_and_runs_and_an_edited_profile_stays() {
    if !have("dpkg") || !have("lintian") || !is_root() {
        return skipped("dpkg and lintian are missing, or root");
    }
    let deb = packed().file(".deb");
    let control = scratch();
    let unpack = ["-e".as_ref(), deb.as_os_str(), control.path().as_os_str()];
    printed(Command::new("dpkg-deb").args(unpack));
    let file = |name: &str| std::fs::read_to_string(control.path().join(name)).unwrap();
    assert_eq!(file("conffiles"), "/etc/bale/bale.toml\n");
    let needs = file("control").contains("\nDepends:");
    assert!(!needs, "{}", file("control"));
    let root = scratch();
    let installs = || install_deb(&deb, root.path());
    installs();
    for path in tree() {
        let is_there = root.path().join(&path[1..]).exists();
        // As Debian has that licence.
        assert!(is_there || path.ends_with("LICENSE-APACHE"), "{path}");
    }
    let md5sums = control.path().join("md5sums");
    let mut compare = Command::new("md5sum");
    printed(
        compare
            .args(["--quiet", "-c"])
            .arg(md5sums)
            .current_dir(&root),
    );
    let profile = root.path().join("etc/bale/bale.toml");
    std::fs::write(&profile, "# mine\n").unwrap();
    installs();
    assert_eq!(std::fs::read_to_string(&profile).unwrap(), "# mine\n");
    if packed().is_static {
        backs_up_and_restores_in(root.path(), "/usr/bin/bale");
    }
    // The binary of a release is stripped and static; that of tests is not stripped.
    let of_tests = "unstripped-binary-or-object,undeclared-elf-prerequisites";
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error", "--suppress-tags"]);
    printed(lintian.arg(of_tests).arg(&deb));
}

/// As on a machine whose root directory that is, with no other package.
fn install_deb(deb: &Path, root: &Path) {
    for directory in ["info", "updates", "triggers"] {
        let directory = root.join("var/lib/dpkg").join(directory);
        std::fs::create_dir_all(directory).unwrap();
    }
    let status = root.join("var/lib/dpkg/status");
    if !status.exists() {
        std::fs::write(status, "").unwrap();
    }
    let mut dpkg = Command::new("dpkg");
    dpkg.arg(format!("--root={}", root.display()));
    // Scripts of the package run here and are told so: there is no shell in that root directory.
    dpkg.args(["--force-script-chrootless", "--log=/dev/null", "-i"]);
    printed(dpkg.arg(deb));
}

#[test]
fn the_rpm_has_the_same_files_and_needs_nothing() {
    if !have("rpmbuild") {
        return skipped("rpmbuild is missing");
    }
    let rpm = packed().file(".rpm");
    let query = |words: &str| printed(Command::new("rpm").args([words, "--nosignature"]).arg(&rpm));
    let listed = query("-qpl");
    let listed: Vec<_> = listed.lines().collect();
    for path in tree() {
        assert!(listed.contains(&path.as_str()), "{path} of {listed:#?}");
    }
    assert_eq!(
        listed.len(),
        tree().len() + 2,
        "and two directories: {listed:#?}"
    );
    assert_eq!(query("-qpc"), "/etc/bale/bale.toml\n");
    for needed in query("-qpR").lines() {
        let is_of_rpm = needed.starts_with("rpmlib(") || needed == "/bin/sh";
        assert!(is_of_rpm || needed.starts_with("config("), "needs {needed}");
    }
}

#[test]
fn the_units_are_what_systemd_understands() {
    if !have("systemd-analyze") {
        return skipped("systemd-analyze is missing");
    }
    let units = scratch();
    let bale = env!("CARGO_BIN_EXE_bale");
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]);
    for entry in std::fs::read_dir(repository().join("scripts/systemd")).unwrap() {
        let path = entry.unwrap().path();
        let name = path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .replace('@', "@home");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("ExecStart=/usr/bin/bale ") || !name.ends_with(".service"));
        // The program need not be installed here.
        std::fs::write(
            units.path().join(&name),
            text.replace("/usr/bin/bale", bale),
        )
        .unwrap();
        command.arg(units.path().join(&name));
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// There need be no engine here: what it would copy is laid out, and run.
#[test]
fn the_container_file_copies_what_is_there_and_starts_it() {
    let file = std::fs::read_to_string(repository().join("packaging/Containerfile")).unwrap();
    let (tree, root) = (packed().directory.join("tree"), scratch());
    let mut program = None;
    for line in file.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["FROM", base] => assert_eq!(base, "scratch"),
            ["COPY", from, to] => {
                let to = root.path().join(to.strip_prefix('/').unwrap());
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                printed(Command::new("cp").arg("-a").arg(tree.join(from)).arg(to));
            }
            ["ENTRYPOINT", words] => {
                program = Some(words.trim_matches(['[', ']', '"']).to_owned());
            }
            ["ENV" | "VOLUME" | "CMD", _] => {}
            _ => panic!("what is this? {line}"),
        }
    }
    let program = program.expect("it starts something");
    assert!(root.path().join(&program[1..]).exists(), "{program}");
    if is_root() && packed().is_static {
        backs_up_and_restores_in(root.path(), &program);
    }
}
