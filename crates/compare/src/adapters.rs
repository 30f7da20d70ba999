//! How each tool does each kind of work: short shell scripts, shown in the report as they are run.
//!
//! A script finds in its environment: `SRC` (the tree), `DEV` (the device below it), `REPO`,
//! `CACHE` (the tool's own), `DST` (where to restore), `DST_DEV` (the device below that), `ONE` (a
//! path below the tree), `NUMBER` (of the latest backup, from 1) and `BALE` (the `bale` that is
//! compared). Passwords are the word "compare". Defaults of each tool are kept, encryption and
//! compression included.

/// What a tool is to a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolKind {
    /// Bale.
    Ours,
    /// A tool that people use for the same work.
    Peer,
    /// No backup tool, but a measure of what the work needs at least.
    Reference,
}

/// What a tool needs besides being installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Tree,
    /// A tree, and an option in the help of a command of ours.
    OurOption {
        command: &'static str,
        option: &'static str,
    },
    /// The device, not mounted, for us.
    OurDevice,
    /// The device, not mounted, of an ext4 file system.
    Ext4Device,
    /// The device, not mounted.
    Device,
    /// A mounted XFS.
    Xfs,
}

/// A tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adapter {
    pub name: &'static str,
    pub kind: ToolKind,
    /// Must be in `PATH`; empty for this program itself.
    pub program: &'static str,
    pub needs: Needs,
    /// Where people get it.
    pub get: &'static str,
    pub version: &'static str,
    /// Something to know about its row.
    pub note: &'static str,
    /// Begins each of its scripts.
    pub setup: &'static str,
    pub init: &'static str,
    pub scan: &'static str,
    pub backup: &'static str,
    /// Can it make a second backup in terms of the first?
    pub is_incremental: bool,
    pub restore: &'static str,
    pub one: &'static str,
    /// Restores what this other tool backed up.
    pub shares: &'static str,
}

const NOTHING: Adapter = Adapter {
    name: "",
    kind: ToolKind::Peer,
    program: "",
    needs: Needs::Tree,
    get: "",
    version: "",
    note: "",
    setup: "",
    init: "",
    scan: "",
    backup: "",
    is_incremental: true,
    restore: "",
    one: "",
    shares: "",
};

const BALE: Adapter = Adapter {
    name: "bale",
    kind: ToolKind::Ours,
    version: "\"$BALE\" --version",
    setup: "export BALE_REPOSITORY=\"$REPO\" BALE_PASSWORD=compare BALE_CACHE_DIR=\"$CACHE\"",
    init: "\"$BALE\" init",
    scan: "\"$BALE\" scan --scan walk \"$SRC\"",
    backup: "\"$BALE\" backup --scan walk \"$SRC\"",
    restore: "\"$BALE\" restore \"latest:$SRC\" --target \"$DST\"",
    one: "\"$BALE\" dump \"latest:$SRC/$ONE\" > \"$DST/one\"",
    ..NOTHING
};

/// In the order of tables, and in which `--quick` chooses.
pub(super) const ADAPTERS: &[Adapter] = &[
    BALE,
    Adapter {
        name: "bale-inode",
        needs: Needs::OurOption {
            command: "backup",
            option: "--scan",
        },
        note: "reads inode tables and directories from the device instead of walking",
        scan: "\"$BALE\" scan --scan inode \"$SRC\"",
        backup: "\"$BALE\" backup --scan inode \"$SRC\"",
        ..BALE
    },
    Adapter {
        name: "bale-device",
        needs: Needs::OurDevice,
        note: "reads the device while nothing is mounted, as dump and partclone do",
        scan: "\"$BALE\" scan --scan inode \"$DEV\"",
        backup: "\"$BALE\" backup --scan inode \"$DEV\"",
        restore: "\"$BALE\" restore \"latest:$DEV\" --target \"$DST\"",
        one: "\"$BALE\" dump \"latest:$DEV/$ONE\" > \"$DST/one\"",
        ..BALE
    },
    Adapter {
        name: "bale-to-ext4",
        needs: Needs::OurOption {
            command: "restore",
            option: "--to-ext4",
        },
        note: "writes the file system itself instead of asking the kernel for every file",
        init: "",
        scan: "",
        backup: "",
        restore: "\"$BALE\" restore \"latest:$SRC\" --to-ext4 \"$DST_DEV\" --force",
        one: "",
        shares: "bale",
        ..BALE
    },
    Adapter {
        name: "tar",
        program: "tar",
        get: "Debian: tar, zstd",
        version: "tar --version",
        note: "GNU tar with a listed-incremental file, zstd -3; no encryption",
        backup: "tar -g \"$CACHE/snar\" -I 'zstd -3 -T0 -q' -cf \"$REPO/$NUMBER.tar.zst\" -C \
            \"$SRC\" .",
        restore: "for n in $(seq \"$NUMBER\"); do tar -g /dev/null -I 'zstd -q' -xf \
            \"$REPO/$n.tar.zst\" -C \"$DST\"; done",
        one: "for n in $(seq \"$NUMBER\" -1 1); do\n  \
            if tar -I 'zstd -q' -xf \"$REPO/$n.tar.zst\" -C \"$DST\" \"./$ONE\" 2>/dev/null; then \
            break; fi\ndone",
        ..NOTHING
    },
    Adapter {
        name: "restic",
        program: "restic",
        get: "Debian: restic; newer at https://github.com/restic/restic/releases",
        version: "restic version",
        setup: "export RESTIC_REPOSITORY=\"$REPO\" RESTIC_PASSWORD=compare \
            RESTIC_CACHE_DIR=\"$CACHE\"",
        init: "restic init",
        backup: "restic backup -q \"$SRC\"",
        restore: "restic restore -q latest --target \"$DST\"",
        one: "restic dump -q latest \"$SRC/$ONE\" > \"$DST/one\"",
        ..NOTHING
    },
    Adapter {
        name: "borg",
        program: "borg",
        get: "Debian: borgbackup; newer at https://github.com/borgbackup/borg/releases",
        version: "borg --version",
        setup: "export BORG_REPO=\"$REPO\" BORG_PASSPHRASE=compare BORG_BASE_DIR=\"$CACHE\"",
        init: "borg init -e repokey",
        backup: "cd \"$SRC\"; borg create \"::$NUMBER\" .",
        restore: "cd \"$DST\"; borg extract \"::$NUMBER\"",
        one: "cd \"$DST\"; borg extract \"::$NUMBER\" \"$ONE\"",
        ..NOTHING
    },
    Adapter {
        name: "bupstash",
        program: "bupstash",
        get: "cargo install bupstash; https://github.com/andrewchambers/bupstash/releases",
        version: "bupstash --version",
        setup: "export BUPSTASH_REPOSITORY=\"$REPO\" BUPSTASH_KEY=\"$CACHE/key\" \
            BUPSTASH_SEND_LOG=\"$CACHE/send.log\" BUPSTASH_QUERY_CACHE=\"$CACHE/q.cache\"",
        init: "rmdir \"$REPO\"; bupstash init; bupstash new-key -o \"$BUPSTASH_KEY\"",
        backup: "bupstash put -q run=\"$NUMBER\" \"$SRC\"",
        restore: "bupstash restore -q --into \"$DST\" run=\"$NUMBER\"",
        one: "bupstash get -q --pick \"$ONE\" run=\"$NUMBER\" > \"$DST/one\"",
        ..NOTHING
    },
    Adapter {
        name: "kopia",
        program: "kopia",
        get: "https://github.com/kopia/kopia/releases",
        version: "kopia --version",
        note: "does not compress by default",
        setup: "export KOPIA_CONFIG_PATH=\"$CACHE/repo.config\" KOPIA_CACHE_DIRECTORY=\"$CACHE/c\" \
            KOPIA_LOG_DIR=\"$CACHE/log\" KOPIA_PASSWORD=compare KOPIA_CHECK_FOR_UPDATES=false\n\
kopia() { command kopia --no-progress --no-auto-maintenance \"$@\"; }\n\
latest() { kopia snapshot list \"$SRC\" --json | tr '[,{}' '\\n\\n\\n\\n' | sed -n \"s/^ \
*\\\"$1\\\": *\\\"\\([^\\\"]*\\)\\\".*/\\1/p\" | tail -1; }",
        init: "kopia repository create filesystem --path \"$REPO\"",
        backup: "kopia snapshot create \"$SRC\"",
        restore: "kopia snapshot restore \"$(latest id)\" \"$DST\"",
        one: "kopia snapshot restore \"$(latest obj)/$ONE\" \"$DST/one\"",
        ..NOTHING
    },
    Adapter {
        name: "rustic",
        program: "rustic",
        get: "cargo install --locked rustic-rs; https://github.com/rustic-rs/rustic/releases",
        version: "rustic --version",
        setup: "export RUSTIC_REPOSITORY=\"$REPO\" RUSTIC_PASSWORD=compare \
            RUSTIC_CACHE_DIR=\"$CACHE\" RUSTIC_NO_PROGRESS=true",
        init: "rustic init",
        backup: "rustic backup \"$SRC\"",
        restore: "rustic restore \"latest:$SRC\" \"$DST\"",
        one: "rustic dump \"latest:$SRC/$ONE\" > \"$DST/one\"",
        ..NOTHING
    },
    Adapter {
        name: "rsync",
        program: "rsync",
        get: "Debian: rsync",
        version: "rsync --version",
        note: "one directory for each backup, unchanged files linked to the one before; neither \
            compressed nor encrypted",
        backup: "rsync -aH --link-dest=\"$REPO/$((NUMBER-1))\" \"$SRC/\" \"$REPO/$NUMBER/\"",
        restore: "rsync -aH \"$REPO/$NUMBER/\" \"$DST/\"",
        one: "rsync -a \"$REPO/$NUMBER/$ONE\" \"$DST/one\"",
        ..NOTHING
    },
    Adapter {
        name: "dump",
        program: "dump",
        needs: Needs::Ext4Device,
        get: "Debian: dump",
        version: "dump 2>&1 | head -1",
        note: "reads the device; a level more for each backup; neither compressed nor encrypted",
        backup: "dump -\"$((NUMBER-1))\" -u -D \"$CACHE/dumpdates\" -f \"$REPO/$NUMBER.dump\" \
            \"$DEV\"",
        restore: "cd \"$DST\"; for n in $(seq \"$NUMBER\"); do restore -r -f \"$REPO/$n.dump\"; \
            done; rm restoresymtable",
        one: "cd \"$DST\"; for n in $(seq \"$NUMBER\" -1 1); do\n  \
            echo n | restore -x -a -f \"$REPO/$n.dump\" \"./$ONE\"\n  \
            if [ -e \"./$ONE\" ]; then break; fi\ndone",
        ..NOTHING
    },
    Adapter {
        name: "xfsdump",
        program: "xfsdump",
        needs: Needs::Xfs,
        get: "Debian: xfsdump",
        version: "xfsdump 2>&1 | head -1",
        note: "without its inventory, which would stay in /var, it makes no incrementals; neither \
            compressed nor encrypted",
        is_incremental: false,
        backup: "xfsdump -J -F -L compare -M compare -f \"$REPO/1.dump\" \"$SRC\"",
        restore: "xfsrestore -J -F -f \"$REPO/1.dump\" \"$DST\"",
        one: "xfsrestore -J -F -s \"$ONE\" -f \"$REPO/1.dump\" \"$DST\"",
        ..NOTHING
    },
    Adapter {
        name: "partclone",
        program: "partclone.ext4",
        needs: Needs::Ext4Device,
        get: "Debian: partclone",
        version: "partclone.ext4 -v",
        note: "an image of the used blocks: no increments, no single files; neither compressed nor \
            encrypted",
        is_incremental: false,
        backup: "partclone.ext4 -c -L /dev/null -s \"$DEV\" -o \"$REPO/image\"",
        restore: "partclone.ext4 -r -L /dev/null -s \"$REPO/image\" -o \"$DST_DEV\"",
        ..NOTHING
    },
    Adapter {
        name: "find",
        kind: ToolKind::Reference,
        program: "find",
        get: "Debian: findutils",
        version: "find --version",
        note: "find -printf %s: asks the kernel for the size of every file",
        scan: "find \"$SRC\" -printf '%s\\n' > /dev/null",
        ..NOTHING
    },
    Adapter {
        name: "dd",
        kind: ToolKind::Reference,
        program: "dd",
        needs: Needs::Device,
        get: "Debian: coreutils",
        version: "dd --version",
        note: "every byte of the device, in order, past the page cache",
        backup: "dd if=\"$DEV\" of=/dev/null bs=4M iflag=direct",
        is_incremental: false,
        ..NOTHING
    },
];

/// The names of all tools that are known.
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    ADAPTERS.iter().map(|adapter| adapter.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_says_where_it_comes_from_and_what_it_is() {
        for adapter in ADAPTERS {
            assert!(
                adapter.kind == ToolKind::Ours
                    || (!adapter.get.is_empty() && !adapter.program.is_empty())
            );
            assert!(!adapter.version.is_empty(), "{}", adapter.name);
            assert_eq!(tool_names().filter(|name| *name == adapter.name).count(), 1);
        }
    }

    #[test]
    fn every_script_is_one_that_a_shell_understands() {
        for adapter in ADAPTERS {
            for script in [
                adapter.setup,
                adapter.init,
                adapter.scan,
                adapter.backup,
                adapter.restore,
                adapter.one,
            ] {
                let status = std::process::Command::new("/bin/sh")
                    .args(["-n", "-c", script])
                    .status();
                assert!(status.unwrap().success(), "{}: {script}", adapter.name);
            }
        }
    }
}
