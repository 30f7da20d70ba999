//! Feature bits of ext2, ext3 and ext4: their names, and which of them this reader understands.

/// The three feature sets of a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// A reader may ignore these.
    pub compat: u32,
    /// A reader must understand all of these.
    pub incompat: u32,
    /// Only a writer must understand these.
    pub ro_compat: u32,
}

pub(super) const COMPAT_HAS_JOURNAL: u32 = 0x4;
pub(super) const COMPAT_SPARSE_SUPER2: u32 = 0x200;
pub(super) const COMPAT_ORPHAN_FILE: u32 = 0x1000;

pub(super) const INCOMPAT_FILETYPE: u32 = 0x2;
pub(super) const INCOMPAT_RECOVER: u32 = 0x4;
pub(super) const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_EXTENTS: u32 = 0x40;
pub(super) const INCOMPAT_64BIT: u32 = 0x80;
pub(super) const INCOMPAT_MMP: u32 = 0x100;
const INCOMPAT_FLEX_BG: u32 = 0x200;
pub(super) const INCOMPAT_EA_INODE: u32 = 0x400;
pub(super) const INCOMPAT_CSUM_SEED: u32 = 0x2000;
pub(super) const INCOMPAT_LARGEDIR: u32 = 0x4000;
pub(super) const INCOMPAT_INLINE_DATA: u32 = 0x8000;
const INCOMPAT_ENCRYPT: u32 = 0x1_0000;
const INCOMPAT_CASEFOLD: u32 = 0x2_0000;

/// Compression, journal devices and dirdata are known but refused.
const INCOMPAT_SUPPORTED: u32 = INCOMPAT_FILETYPE
    | INCOMPAT_RECOVER
    | INCOMPAT_META_BG
    | INCOMPAT_EXTENTS
    | INCOMPAT_64BIT
    | INCOMPAT_MMP
    | INCOMPAT_FLEX_BG
    | INCOMPAT_EA_INODE
    | INCOMPAT_CSUM_SEED
    | INCOMPAT_LARGEDIR
    | INCOMPAT_INLINE_DATA
    | INCOMPAT_ENCRYPT
    | INCOMPAT_CASEFOLD;

pub(super) const RO_SPARSE_SUPER: u32 = 0x1;
pub(super) const RO_HUGE_FILE: u32 = 0x8;
pub(super) const RO_GDT_CSUM: u32 = 0x10;
pub(super) const RO_HAS_SNAPSHOT: u32 = 0x80;
pub(super) const RO_QUOTA: u32 = 0x100;
pub(super) const RO_BIGALLOC: u32 = 0x200;
pub(super) const RO_METADATA_CSUM: u32 = 0x400;
pub(super) const RO_PROJECT: u32 = 0x2000;
/// Set while files without names are listed in the orphan file: from a mount to its end.
pub(super) const RO_ORPHAN_PRESENT: u32 = 0x1_0000;

const COMPAT_NAMES: [(u32, &str); 13] = [
    (0x1, "dir_prealloc"),
    (0x2, "imagic_inodes"),
    (0x4, "has_journal"),
    (0x8, "ext_attr"),
    (0x10, "resize_inode"),
    (0x20, "dir_index"),
    (0x40, "lazy_bg"),
    (0x80, "exclude_inode"),
    (0x100, "exclude_bitmap"),
    (0x200, "sparse_super2"),
    (0x400, "fast_commit"),
    (0x800, "stable_inodes"),
    (0x1000, "orphan_file"),
];

const INCOMPAT_NAMES: [(u32, &str); 16] = [
    (0x1, "compression"),
    (0x2, "filetype"),
    (0x4, "needs_recovery"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x40, "extent"),
    (0x80, "64bit"),
    (0x100, "mmp"),
    (0x200, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x1_0000, "encrypt"),
    (0x2_0000, "casefold"),
];

const RO_COMPAT_NAMES: [(u32, &str); 17] = [
    (0x1, "sparse_super"),
    (0x2, "large_file"),
    (0x4, "btree_dir"),
    (0x8, "huge_file"),
    (0x10, "uninit_bg"),
    (0x20, "dir_nlink"),
    (0x40, "extra_isize"),
    (0x80, "has_snapshot"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x400, "metadata_csum"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (0x1_0000, "orphan_present"),
];

impl Features {
    /// Incompatible features that this reader must refuse.
    pub fn unsupported_incompat(self) -> u32 {
        self.incompat & !INCOMPAT_SUPPORTED
    }

    /// All features as text, in the words of mke2fs, separated by spaces.
    pub fn names(self) -> String {
        let sets = [
            (self.compat, &COMPAT_NAMES[..], "compat"),
            (self.incompat, &INCOMPAT_NAMES[..], "incompat"),
            (self.ro_compat, &RO_COMPAT_NAMES[..], "ro_compat"),
        ];
        sets.iter()
            .flat_map(|(bits, names, set)| set_names(*bits, names, set))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Names of a set of incompatible bits.
    pub(super) fn incompat_names(bits: u32) -> String {
        set_names(bits, &INCOMPAT_NAMES, "incompat").join(" ")
    }
}

fn set_names(bits: u32, names: &[(u32, &str)], set: &str) -> Vec<String> {
    let name_of = |bit: u32| {
        names
            .iter()
            .find(|(known, _)| *known == bit)
            .map(|(_, name)| (*name).to_owned())
    };
    let set_bits = (0..u32::BITS)
        .map(|shift| 1 << shift)
        .filter(|bit| bits & bit != 0);
    set_bits
        .map(|bit| name_of(bit).unwrap_or_else(|| format!("{set}_{bit:#x}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_refused_incompatible_features_are_named() {
        let features = Features {
            incompat: 0x1 | 0x2 | 0x8 | 0x1000 | 0x8000_0000,
            ..Features::default()
        };
        let refused = features.unsupported_incompat();
        assert_eq!(refused, 0x8000_1009);
        assert_eq!(
            Features::incompat_names(refused),
            "compression journal_dev dirdata incompat_0x80000000"
        );
    }
}
