//! The table of mounts (`/proc/self/mountinfo`).

use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) id: u64,
    /// `major << 32 | minor`.
    pub(super) device: u64,
    /// Which directory of the file system is mounted, from its root.
    pub(super) root: Vec<u8>,
    pub(super) point: Vec<u8>,
    options: String,
    pub(super) kind: String,
    /// What was said to be mounted: often a device.
    pub(super) source: Vec<u8>,
    super_options: String,
}

/// All mounts, in the order in which they were made.
pub(super) struct MountTable(Vec<Mount>);

impl MountTable {
    pub(super) fn read() -> io::Result<MountTable> {
        Ok(MountTable::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    fn parse(table: &[u8]) -> MountTable {
        let lines = table.split(|byte| *byte == b'\n');
        MountTable(lines.filter_map(Mount::parse).collect())
    }

    /// Mounts of one file system, in the order in which they were made.
    pub(super) fn of_device(&self, device: u64) -> impl Iterator<Item = &Mount> {
        self.0.iter().filter(move |mount| mount.device == device)
    }

    pub(super) fn find(&self, id: u64) -> Option<&Mount> {
        self.0.iter().find(|mount| mount.id == id)
    }

    /// Mount points below a directory, sorted, each once.
    pub(super) fn below(&self, directory: &Path) -> Vec<PathBuf> {
        let mut points: Vec<PathBuf> = self
            .0
            .iter()
            .map(|mount| PathBuf::from(std::ffi::OsString::from_vec(mount.point.clone())))
            .filter(|point| point != directory && point.starts_with(directory))
            .collect();
        points.sort();
        points.dedup();
        points
    }
}

impl Mount {
    /// `id parent major:minor root point options [fields] - kind source super-options`
    pub(super) fn parse(line: &[u8]) -> Option<Mount> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut fields = line.split(|byte| *byte == b' ');
        let id = text(fields.next()?).parse().ok()?;
        let device = text(fields.nth(1)?);
        let (major, minor) = device.split_once(':')?;
        let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
        let root = unescape(fields.next()?);
        let point = unescape(fields.next()?);
        let options = text(fields.next()?);
        fields.find(|field| *field == b"-")?;
        Some(Mount {
            id,
            device: u64::from(major) << 32 | u64::from(minor),
            root,
            point,
            options,
            kind: text(fields.next()?),
            source: unescape(fields.next()?),
            super_options: text(fields.next()?),
        })
    }

    /// Of this mount (`ro`, `noatime` ...).
    pub(super) fn has_option(&self, option: &str) -> bool {
        self.options.split(',').any(|each| each == option)
    }

    /// Of the file system, wherever it is mounted.
    pub(super) fn has_super_option(&self, option: &str) -> bool {
        self.super_options.split(',').any(|each| each == option)
    }

    pub(super) fn super_option_value(&self, option: &str) -> Option<&str> {
        let mut options = self.super_options.split(',');
        options.find_map(|each| each.strip_prefix(option)?.strip_prefix('='))
    }

    /// The directory that is mounted exists no more.
    pub(super) fn is_deleted(&self) -> bool {
        self.root.ends_with(b"//deleted")
    }

    /// Path in the file system of a path below the mount point, without leading slash.
    pub(super) fn path_inside(&self, path: &Path) -> Option<PathBuf> {
        let root = Path::new(std::ffi::OsStr::from_bytes(&self.root));
        let point = Path::new(std::ffi::OsStr::from_bytes(&self.point));
        let below = path.strip_prefix(point).ok()?;
        let inside: PathBuf = root.strip_prefix("/").ok()?.iter().chain(below).collect();
        Some(inside)
    }
}

/// Undoes `\040` and the like.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let digits = text.get(at + 1..at + 4).filter(|_| text[at] == b'\\');
        let value = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(value.unwrap_or(text[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] =
        b"27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw,errors=remount-ro\n\
36 27 259:3 / /srv rw,noatime shared:2 master:1 - xfs /dev/nvme0n1p3 rw,logdev=/dev/sdx,attr2\n\
40 36 259:3 /a\\040b /mnt/part\\134x ro,idmapped - xfs /dev/nvme0n1p3 rw,attr2\n\
41 36 0:40 / /srv/tmp rw - tmpfs tmpfs rw\n\
garbage\n";

    fn mount(id: u64) -> Mount {
        MountTable::parse(TABLE).find(id).unwrap().clone()
    }

    #[test]
    fn lines_are_parsed_with_escapes_and_optional_fields() {
        let part = mount(40);
        assert_eq!(part.device, 259 << 32 | 3);
        assert_eq!(part.root, b"/a b");
        assert_eq!(part.point, b"/mnt/part\\x");
        assert_eq!(
            (&part.kind[..], &part.source[..]),
            ("xfs", &b"/dev/nvme0n1p3"[..])
        );
        assert!(part.has_option("idmapped") && !part.has_option("idmap"));
        assert!(part.has_super_option("rw") && !part.has_super_option("ro"));
        assert_eq!(mount(36).super_option_value("logdev"), Some("/dev/sdx"));
        assert_eq!(mount(27).super_option_value("logdev"), None);
        assert_eq!(MountTable::parse(TABLE).0.len(), 4);
    }

    #[test]
    fn a_path_is_found_again_inside_its_file_system() {
        let inside = |id: u64, path: &str| mount(id).path_inside(Path::new(path));
        assert_eq!(inside(27, "/"), Some(PathBuf::new()));
        assert_eq!(inside(27, "/etc/x"), Some(PathBuf::from("etc/x")));
        assert_eq!(inside(36, "/srv"), Some(PathBuf::new()));
        assert_eq!(inside(40, "/mnt/part\\x/y"), Some(PathBuf::from("a b/y")));
        assert_eq!(inside(40, "/elsewhere"), None);
    }

    #[test]
    fn mounts_below_a_directory_are_found_and_only_these() {
        let table = MountTable::parse(TABLE);
        assert_eq!(table.below(Path::new("/srv")), [PathBuf::from("/srv/tmp")]);
        assert_eq!(table.below(Path::new("/sr")), Vec::<PathBuf>::new());
        assert_eq!(table.below(Path::new("/")).len(), 3);
    }
}
