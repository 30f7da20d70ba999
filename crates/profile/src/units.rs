//! The text of a service and a timer of systemd for a profile.
//!
//! Whatever is put into a unit is escaped there: a path with a space, a per cent sign, a dollar or
//! a line's end is that path and nothing else.

use crate::calendar::Times;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first line of every file that a schedule is written to: by it, it is known for ours.
pub const MARK: &str =
    "# Written by bale schedule install, and replaced by it: put what is your own into a drop-in.";

/// Where a system's own files are read-only for the service.
const PROTECTED: [&str; 4] = ["/usr", "/boot", "/efi", "/etc"];

/// Of which the service would see others than everybody else, if they were private to it.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// What reading everything and freezing take (docs/decisions/0030-profiles.md). DAC_READ_SEARCH:
/// read and open by handle whatever the modes are. SYS_ADMIN: freeze and thaw, have XFS list
/// inodes, read what the kernel tracked. LEASE: learn whether somebody writes to a file of another
/// user. FOWNER: leave atimes alone. IPC_LOCK, SYS_RESOURCE: keep the process that thaws in memory.
const OF_READING: &str = "CAP_DAC_READ_SEARCH CAP_SYS_ADMIN CAP_LEASE CAP_FOWNER CAP_IPC_LOCK \
                          CAP_SYS_RESOURCE";

/// What a schedule of a profile is.
#[derive(Clone, Debug)]
pub struct SchedulePlan {
    /// The profile.
    pub profile: String,
    /// The program, a whole path.
    pub program: PathBuf,
    /// Its words.
    pub words: Vec<Vec<u8>>,
    /// When it is started.
    pub times: Vec<Times>,
    /// By how much starts are spread.
    pub random_delay: Duration,
    /// Does the service belong to the system (root), or to a user?
    pub is_of_system: bool,
    /// Is the repository reached over a network?
    pub is_remote: bool,
    /// Does it start programs of the user, which may need any right?
    pub starts_programs: bool,
    /// Directories and files that it writes.
    pub writes: Vec<PathBuf>,
    /// What it backs up, and what else it reads.
    pub reads: Vec<PathBuf>,
    /// What it backs up stands in a list: it may be anything.
    pub reads_anything: bool,
    /// The service keeps its state and cache where systemd makes them.
    pub has_own_state: bool,
}

/// What the units of a profile are called, without their ends.
pub fn unit_name(profile: &str) -> String {
    format!("bale-run-{profile}")
}

/// The service.
pub fn service(plan: &SchedulePlan) -> String {
    let head = vec![MARK.to_owned()];
    service_text(plan, head, &command_line(plan))
}

/// The service of packages, `bale@.service`: of whatever profile it is enabled for, so it allows
/// what one may need of which nothing is known.
pub fn template_service() -> String {
    let plan = SchedulePlan {
        profile: "%i".to_owned(),
        program: "/usr/bin/bale".into(),
        words: Vec::new(),
        times: Vec::new(),
        random_delay: Duration::ZERO,
        is_of_system: true,
        is_remote: true,
        starts_programs: true,
        writes: Vec::new(),
        reads: Vec::new(),
        reads_anything: true,
        has_own_state: true,
    };
    let head = TEMPLATE_HEAD.map(str::to_owned).to_vec();
    service_text(&plan, head, "/usr/bin/bale run %i")
}

const TEMPLATE_HEAD: [&str; 4] = [
    "# Runs the profile %i of /etc/bale/bale.toml: backup, forget, prune and check as they are \
     due. `bale schedule install`",
    "# writes units for a profile that allow less, as it knows what that profile does; these are \
     for those who would rather",
    "# enable bale@PROFILE.timer. This file is what it would write for a profile of which nothing \
     is known (a test holds the",
    "# two together).",
];

fn service_text(plan: &SchedulePlan, head: Vec<String>, command_line: &str) -> String {
    let mut lines = head;
    lines.extend([
        "[Unit]".to_owned(),
        format!(
            "Description=Backup by the profile {} (bale run)",
            plan.profile
        ),
        "Documentation=man:bale-run(1)".to_owned(),
    ]);
    if plan.is_remote && plan.is_of_system {
        lines.push("Wants=network-online.target".to_owned());
        lines.push("After=network-online.target".to_owned());
    }
    lines.extend([
        String::new(),
        "[Service]".to_owned(),
        "Type=oneshot".to_owned(),
        format!("ExecStart={command_line}"),
        "# The run tells the command that it started to end, and waits for it.".to_owned(),
        "KillMode=mixed".to_owned(),
        "TimeoutStopSec=300".to_owned(),
        "# Problems that the journal names are no failure of the unit: an alarm reads bale status."
            .to_owned(),
        "SuccessExitStatus=3".to_owned(),
    ]);
    if plan.is_of_system {
        of_system(plan, &mut lines);
    }
    lines.extend(sandbox(plan).map(str::to_owned));
    lines.extend(
        [
            "# Beside other work: a backup has the night.",
            "Nice=10",
            "IOSchedulingClass=best-effort",
            "IOSchedulingPriority=7",
        ]
        .map(str::to_owned),
    );
    lines.join("\n") + "\n"
}

/// The timer that starts the service.
pub fn timer(plan: &SchedulePlan) -> String {
    let mut lines = vec![
        MARK.to_owned(),
        "[Unit]".to_owned(),
        format!(
            "Description=Timer of the backup by the profile {} (bale run)",
            plan.profile
        ),
        String::new(),
        "[Timer]".to_owned(),
    ];
    let times = plan
        .times
        .iter()
        .map(|times| format!("OnCalendar={}", times.for_systemd()));
    lines.extend(times);
    lines.extend([
        "# A start that was missed, as the machine was off, is made up for.".to_owned(),
        "Persistent=true".to_owned(),
        format!("RandomizedDelaySec={}", plan.random_delay.as_secs()),
        "AccuracySec=1min".to_owned(),
        String::new(),
        "[Install]".to_owned(),
        "WantedBy=timers.target".to_owned(),
    ]);
    lines.join("\n") + "\n"
}

fn of_system(plan: &SchedulePlan, lines: &mut Vec<String>) {
    if plan.has_own_state {
        lines.extend(
            [
                "StateDirectory=bale",
                "StateDirectoryMode=0700",
                "CacheDirectory=bale",
                "CacheDirectoryMode=0700",
            ]
            .map(str::to_owned),
        );
    }
    match plan.starts_programs {
        true => lines.push(
            "# No CapabilityBoundingSet: the profile starts programs that may need any right."
                .to_owned(),
        ),
        false => {
            lines.push(
                "# To read everything, and to freeze: no right to write what is another's."
                    .to_owned(),
            );
            lines.push(format!("CapabilityBoundingSet={OF_READING}"));
        }
    }
    protect(plan, lines);
    let is_protected = |path: &&PathBuf| {
        PROTECTED
            .iter()
            .any(|protected| path.starts_with(protected))
    };
    for path in plan.writes.iter().filter(is_protected) {
        lines.push(format!("ReadWritePaths=-{}", quoted(bytes_of(path), false)));
    }
}

/// What is protected becomes a mount of its own, which `-x` does not enter, and what is private is
/// not what everybody else sees: nothing of that may be in what is backed up.
fn protect(plan: &SchedulePlan, lines: &mut Vec<String>) {
    let is_above = |path: &&PathBuf| {
        PROTECTED.iter().any(|protected| {
            Path::new(protected) != *path && Path::new(protected).starts_with(path)
        })
    };
    match plan.reads_anything || plan.reads.iter().any(|path| is_above(&path)) {
        true => lines
            .push("# No ProtectSystem: it would make mounts within what is backed up.".to_owned()),
        false => lines.push("ProtectSystem=full".to_owned()),
    }
    let is_temporary = |path: &PathBuf| {
        TEMPORARY
            .iter()
            .any(|temporary| path.starts_with(temporary) || Path::new(temporary).starts_with(path))
    };
    let mut paths = plan.reads.iter().chain(&plan.writes).chain([&plan.program]);
    match plan.reads_anything || paths.any(is_temporary) {
        true => {
            lines.push("# No PrivateTmp: the profile is about what everybody has there.".to_owned())
        }
        false => lines.push("PrivateTmp=true".to_owned()),
    }
}

/// What neither reading, nor freezing, nor a program that a profile starts is hindered by.
fn sandbox(plan: &SchedulePlan) -> impl Iterator<Item = &'static str> + use<> {
    // These need rights that the manager of a user does not have. Not among them: what closes
    // devices (PrivateDevices, DevicePolicy, and ProtectClock, which implies it), and what hides
    // files (ProtectHome, ProtectKernelModules).
    const OF_SYSTEM: [&str; 3] = [
        "ProtectHostname=true",
        "ProtectKernelLogs=true",
        "ProtectControlGroups=true",
    ];
    const OF_ALL: [&str; 6] = [
        "NoNewPrivileges=true",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        "RestrictRealtime=true",
        "LockPersonality=true",
        "SystemCallArchitectures=native",
        "UMask=0077",
    ];
    const WITHOUT_PROGRAMS: [&str; 3] = [
        "RestrictNamespaces=true",
        "RestrictSUIDSGID=true",
        "MemoryDenyWriteExecute=true",
    ];
    let of_system = plan.is_of_system;
    let without_programs = !plan.starts_programs;
    let of_system = OF_SYSTEM.into_iter().filter(move |_| of_system);
    let without_programs = WITHOUT_PROGRAMS
        .into_iter()
        .filter(move |_| without_programs);
    of_system.chain(OF_ALL).chain(without_programs)
}

fn command_line(plan: &SchedulePlan) -> String {
    let program = quoted(bytes_of(&plan.program), false);
    let words = plan.words.iter().map(|word| quoted(word, true));
    [program]
        .into_iter()
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// One word of a unit. Of a command's words, but not of the program itself, a dollar begins a
/// variable.
fn quoted(word: &[u8], is_argument: bool) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-=:,@+".contains(byte);
    if word.iter().all(is_plain) && !word.is_empty() {
        return String::from_utf8_lossy(word).into_owned();
    }
    let mut text = "\"".to_owned();
    for byte in word {
        match byte {
            b'%' => text.push_str("%%"),
            b'$' if is_argument => text.push_str("$$"),
            b'"' | b'\\' => {
                text.push('\\');
                text.push(char::from(*byte));
            }
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_sources(sources: &[&str], reads_anything: bool) -> String {
        service(&of(sources, reads_anything))
    }

    fn of(sources: &[&str], reads_anything: bool) -> SchedulePlan {
        SchedulePlan {
            profile: "home".to_owned(),
            program: "/usr/bin/bale".into(),
            words: Vec::new(),
            times: Vec::new(),
            random_delay: Duration::ZERO,
            is_of_system: true,
            is_remote: false,
            starts_programs: false,
            writes: vec!["/srv/backup".into()],
            reads: sources.iter().map(PathBuf::from).collect(),
            reads_anything,
            has_own_state: true,
        }
    }

    /// Change the text here, and write what the test prints to that file.
    #[test]
    fn the_unit_of_packages_is_what_a_schedule_of_any_profile_would_be() {
        let packaged = include_str!("../../../scripts/systemd/bale@.service");
        assert_eq!(packaged, template_service());
        let plan = SchedulePlan {
            starts_programs: true,
            is_remote: true,
            ..of(&[], true)
        };
        let settings = |text: &str| {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            let of_profile = ["ExecStart=", "Description="];
            let lines = lines.filter(|line| !of_profile.iter().any(|word| line.starts_with(word)));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(settings(packaged), settings(&service(&plan)));
    }

    /// A mount within a source is not entered with `-x`; a private /tmp is empty.
    #[test]
    fn a_unit_hides_nothing_of_what_is_backed_up() {
        for (sources, is_protected, is_private) in [
            (&["/home"][..], true, true),
            (&["/etc", "/usr/local"], true, true),
            (&["/"], false, false),
            (&["/home", "/var"], true, false),
            (&["/tmp/x"], true, false),
            (&["/var/tmp"], true, false),
        ] {
            let text = of_sources(sources, false);
            assert_eq!(
                text.contains("\nProtectSystem=full\n"),
                is_protected,
                "{sources:?}"
            );
            assert_eq!(
                text.contains("\nPrivateTmp=true\n"),
                is_private,
                "{sources:?}"
            );
        }
        let text = of_sources(&[], true);
        assert!(!text.contains("\nProtectSystem=") && !text.contains("\nPrivateTmp="));
    }

    /// Devices are opened to read by inodes, and files are there to be read.
    #[test]
    fn a_unit_closes_no_device_and_hides_no_files() {
        let text = of_sources(&["/home"], false);
        for word in [
            "PrivateDevices",
            "DevicePolicy",
            "DeviceAllow",
            "ProtectClock",
            "ProtectHome",
            "ProtectKernelModules",
            "InaccessiblePaths",
            "PrivateUsers",
            "ProtectSystem=strict",
        ] {
            assert!(!text.contains(word), "{word}");
        }
    }

    #[test]
    fn whatever_a_path_holds_is_that_path_in_a_unit() {
        assert_eq!(quoted(b"/srv/backup", true), "/srv/backup");
        assert_eq!(quoted(b"", true), "\"\"");
        assert_eq!(quoted(b"/a b/100%/$HOME", true), "\"/a b/100%%/$$HOME\"");
        assert_eq!(quoted(b"/$x", false), "\"/$x\"");
        assert_eq!(
            quoted(b"/a\nExecStartPre=x", true),
            "\"/a\\x0aExecStartPre=x\""
        );
        assert_eq!(quoted(b"a\"b\\c'", true), "\"a\\\"b\\\\c'\"");
        assert_eq!(quoted(b"gr\xc3\xbcn;", true), "\"gr\\xc3\\xbcn;\"");
    }
}
