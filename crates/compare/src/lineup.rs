//! Which tools take part, and why the others do not.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use super::adapters::{ADAPTERS, Adapter, Needs, ToolKind};
use super::options::{Case, CompareOptions};
use super::programs::Programs;
use super::report::{Absent, Tool};

/// Those that take part, in the order of tables.
pub(super) struct Lineup {
    pub adapters: Vec<&'static Adapter>,
    pub absent: Vec<Absent>,
}

impl Lineup {
    pub fn find(options: &CompareOptions, programs: &Programs, has_device: bool) -> Lineup {
        let mut lineup = Lineup {
            adapters: Vec::new(),
            absent: Vec::new(),
        };
        let mut peers = 0;
        for adapter in ADAPTERS {
            let is_asked =
                options.tools.is_empty() || options.tools.iter().any(|name| name == adapter.name);
            if !is_asked && adapter.kind != ToolKind::Reference {
                continue;
            }
            match obstacle(adapter, options, programs, has_device) {
                Some((why, get)) => lineup.absent.push(Absent {
                    name: adapter.name,
                    why,
                    get,
                }),
                None => {
                    let counts = adapter.kind == ToolKind::Peer && adapter.name != "tar";
                    peers += usize::from(counts);
                    if counts && peers > options.peers_max {
                        let why = format!(
                            "installed, but at most {} peers were requested",
                            options.peers_max
                        );
                        lineup.absent.push(Absent {
                            name: adapter.name,
                            why,
                            get: "",
                        });
                    } else {
                        lineup.adapters.push(adapter);
                    }
                }
            }
        }
        lineup.leave_out_dependents();
        let is_busy = |adapter: &Adapter| {
            let mut cases = Case::ALL.into_iter().filter(|case| options.measures(*case));
            cases.any(|case| adapter.script(case).is_some())
        };
        // Who only builds the ground for others stays.
        let grounds: Vec<_> = lineup
            .adapters
            .iter()
            .filter(|adapter| is_busy(adapter))
            .map(|adapter| adapter.shares)
            .collect();
        lineup
            .adapters
            .retain(|adapter| is_busy(adapter) || grounds.contains(&adapter.name));
        lineup
    }

    /// Who restores another's backups needs the other.
    fn leave_out_dependents(&mut self) {
        let names: Vec<_> = self.adapters.iter().map(|adapter| adapter.name).collect();
        self.adapters.retain(|adapter| {
            let is_possible = adapter.shares.is_empty() || names.contains(&adapter.shares);
            if !is_possible {
                let why = format!(
                    "restores what {} backs up, which does not take part",
                    adapter.shares
                );
                self.absent.push(Absent {
                    name: adapter.name,
                    why,
                    get: "",
                });
            }
            is_possible
        });
    }

    /// The tools as the report lists them.
    pub fn tools(&self, options: &CompareOptions, programs: &Programs) -> Vec<Tool> {
        let environment = [("BALE", OsString::from(&options.executable))];
        let tool = |adapter: &&'static Adapter| Tool {
            name: adapter.name,
            kind: adapter.kind,
            version: programs
                .first_line(adapter.version, &environment)
                .unwrap_or_default(),
            note: adapter.note,
            commands: commands(adapter),
        };
        self.adapters.iter().map(tool).collect()
    }
}

fn commands(adapter: &Adapter) -> Vec<(&'static str, String)> {
    let all = [
        ("environment", adapter.setup),
        ("before", adapter.init),
        ("scan", adapter.scan),
        ("backup", adapter.backup),
        ("restore", adapter.restore),
        ("restore one file", adapter.one),
    ];
    let used = all.into_iter().filter(|(_, script)| !script.is_empty());
    used.map(|(word, script)| (word, script.to_owned()))
        .collect()
}

/// Why a tool cannot take part, and where it could be had.
fn obstacle(
    adapter: &Adapter,
    options: &CompareOptions,
    programs: &Programs,
    has_device: bool,
) -> Option<(String, &'static str)> {
    let because = |why: &str| Some((why.to_owned(), ""));
    if !adapter.program.is_empty() && programs.find(adapter.program).is_none() {
        return Some(("not installed".to_owned(), adapter.get));
    }
    if adapter.name == "tar" && programs.find("zstd").is_none() {
        return Some(("zstd is not installed".to_owned(), adapter.get));
    }
    match adapter.needs {
        Needs::Ext4Device | Needs::Device | Needs::OurDevice | Needs::Xfs if !has_device => {
            because("needs root and loop devices")
        }
        Needs::Ext4Device if !options.source.is_ext4() => because("reads ext4 only"),
        Needs::Xfs if options.source.is_ext4() => because("reads XFS only: --source xfs"),
        Needs::OurOption { command, option } => {
            let is_offered = help_names(&options.executable, command, option);
            if !is_offered {
                return because("this version of bale cannot do that");
            }
            // Both go past the kernel's view of the tree, to the device.
            if has_device {
                None
            } else {
                because("needs root and loop devices")
            }
        }
        _ => None,
    }
}

fn help_names(executable: &Path, command: &str, option: &str) -> bool {
    let output = Command::new(executable)
        .args([command, "--help"])
        .stdin(Stdio::null())
        .output();
    output.is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout);
        text.split(|letter: char| letter.is_whitespace() || letter == ',')
            .any(|word| word == option)
    })
}

impl Adapter {
    /// The script for one kind of work, if the tool does that.
    pub(super) fn script(&self, case: Case) -> Option<&'static str> {
        let script = match case {
            Case::Scan => self.scan,
            Case::First => self.backup,
            Case::Unchanged | Case::Changed if self.is_incremental => self.backup,
            Case::Unchanged | Case::Changed => "",
            Case::Restore => self.restore,
            Case::OneFile => self.one,
        };
        (!script.is_empty()).then_some(script)
    }

    /// Does it read the device below the tree at this work, so that nothing may be mounted?
    pub(super) fn reads_device(&self, case: Case) -> bool {
        (case.is_backup() || case == Case::Scan)
            && matches!(
                self.needs,
                Needs::Device | Needs::Ext4Device | Needs::OurDevice
            )
    }

    /// Does it write the device below the target of a restore, instead of files?
    pub(super) fn writes_device(&self) -> bool {
        self.restore.contains("$DST_DEV")
    }

    /// Whose repository it uses.
    pub(super) fn owner(&self) -> &'static str {
        if self.shares.is_empty() {
            self.name
        } else {
            self.shares
        }
    }
}
