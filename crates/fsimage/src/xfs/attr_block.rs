//! Blocks of an attribute fork: leaves with attributes, nodes that lead to leaves. Pure parsing,
//! nothing is copied.

use super::Xfs;
use super::bytes::{SEAL_ATTR, be16, be32};
use super::error::{Result, XfsError};

/// Levels of nodes above the leaves, as the format limits them.
pub(super) const NODE_LEVELS_MAX: u16 = 5;
const ENTRY_BYTES: usize = 8;
const FLAG_LOCAL: u8 = 1;
const FLAG_ROOT: u8 = 1 << 1;
const FLAG_SECURE: u8 = 1 << 2;
const FLAG_PARENT: u8 = 1 << 3;
const FLAG_INCOMPLETE: u8 = 1 << 7;

/// A block of an attribute fork, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttrBlock<'a> {
    /// Leads to other blocks.
    Node(Node<'a>),
    /// Holds attributes.
    Leaf(Leaf<'a>),
}

/// A node: its level (1 is just above the leaves) and its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node<'a> {
    pub level: u16,
    entries: &'a [u8],
}

impl Node<'_> {
    /// Blocks of the fork that the node leads to, in order.
    pub(super) fn children(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.entries
            .chunks_exact(ENTRY_BYTES)
            .map(|entry| be32(entry, 4))
    }
}

/// A leaf: attributes, and the leaf that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf<'a> {
    /// Block of the fork with the next leaf, 0 behind the last.
    pub next: u32,
    bytes: &'a [u8],
    entries: &'a [u8],
}

/// What namespace an attribute is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    User,
    Root,
    Secure,
}

impl Namespace {
    /// From an entry's flags; `None` for what is no attribute to the user: parent pointers, and
    /// attributes that a crash left half made, which the kernel does not show either.
    pub(super) fn from_flags(flags: u8) -> std::result::Result<Option<Namespace>, &'static str> {
        if flags & (FLAG_INCOMPLETE | FLAG_PARENT) != 0 {
            return Ok(None);
        }
        match flags & !FLAG_LOCAL {
            0 => Ok(Some(Namespace::User)),
            FLAG_ROOT => Ok(Some(Namespace::Root)),
            FLAG_SECURE => Ok(Some(Namespace::Secure)),
            _ => Err("attribute in an unknown namespace"),
        }
    }

    /// What full names begin with.
    pub(super) fn prefix(self) -> &'static [u8] {
        match self {
            Namespace::User => b"user.",
            Namespace::Root => b"trusted.",
            Namespace::Secure => b"security.",
        }
    }
}

/// One attribute as a leaf or an inode holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawAttr<'a> {
    pub namespace: Namespace,
    pub name: &'a [u8],
    pub value: RawValue<'a>,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RawValue<'a> {
    /// Beside its name.
    Local(&'a [u8]),
    /// In blocks of its own.
    Remote { first_block: u32, len_bytes: u32 },
}

/// Checks a block of inode `owner`'s attribute fork that was read at `device_offset`.
pub(super) fn parse<'a>(
    xfs: &Xfs,
    bytes: &'a [u8],
    device_offset: u64,
    owner: u64,
) -> Result<AttrBlock<'a>> {
    let damaged = |fault| XfsError::damaged(SEAL_ATTR.structure, device_offset, fault);
    let has_checksums = xfs.superblock().has_checksums;
    if bytes.len() < xfs.superblock().block_bytes as usize {
        return Err(damaged("cut short"));
    }
    let is_leaf = match (be16(bytes, 8), has_checksums) {
        (0x3bee, true) | (0xfbee, false) => true,
        (0x3ebe, true) | (0xfebe, false) => false,
        _ => return Err(damaged("wrong magic")),
    };
    if has_checksums {
        SEAL_ATTR.check(xfs, bytes, device_offset, owner)?;
    }
    let (count_at, entries_at) = match (is_leaf, has_checksums) {
        (true, true) => (56, 80),
        (true, false) => (12, 32),
        (false, true) => (56, 64),
        (false, false) => (12, 16),
    };
    let count = usize::from(be16(bytes, count_at));
    let entries = bytes.get(entries_at..entries_at + count * ENTRY_BYTES);
    let entries = entries.ok_or_else(|| damaged("impossible number of entries"))?;
    if is_leaf {
        return Ok(AttrBlock::Leaf(Leaf {
            next: be32(bytes, 0),
            bytes,
            entries,
        }));
    }
    let level = be16(bytes, count_at + 2);
    if level == 0 || level > NODE_LEVELS_MAX || count == 0 {
        return Err(damaged("impossible node"));
    }
    Ok(AttrBlock::Node(Node { level, entries }))
}

impl<'a> Leaf<'a> {
    /// Every attribute that a user can see.
    pub(super) fn attrs(
        &self,
    ) -> impl Iterator<Item = std::result::Result<RawAttr<'a>, &'static str>> + use<'a> {
        let bytes = self.bytes;
        self.entries
            .chunks_exact(ENTRY_BYTES)
            .filter_map(move |entry| parse_entry(bytes, entry).transpose())
    }
}

fn parse_entry<'a>(
    bytes: &'a [u8],
    entry: &[u8],
) -> std::result::Result<Option<RawAttr<'a>>, &'static str> {
    const CUT_SHORT: &str = "attribute cut short";
    let at = usize::from(be16(entry, 4));
    let flags = entry[6];
    let Some(namespace) = Namespace::from_flags(flags)? else {
        return Ok(None);
    };
    let rest = bytes.get(at..).ok_or(CUT_SHORT)?;
    let (name, value) = if flags & FLAG_LOCAL != 0 {
        let [high, low, name_len, rest @ ..] = rest else {
            return Err(CUT_SHORT);
        };
        let value_len = usize::from(u16::from_be_bytes([*high, *low]));
        let (name, rest) = rest
            .split_at_checked(usize::from(*name_len))
            .ok_or(CUT_SHORT)?;
        (
            name,
            RawValue::Local(rest.get(..value_len).ok_or(CUT_SHORT)?),
        )
    } else {
        let name_len = usize::from(*rest.get(8).ok_or(CUT_SHORT)?);
        let name = rest.get(9..9 + name_len).ok_or(CUT_SHORT)?;
        (
            name,
            RawValue::Remote {
                first_block: be32(rest, 0),
                len_bytes: be32(rest, 4),
            },
        )
    };
    check_name(name)?;
    Ok(Some(RawAttr {
        namespace,
        name,
        value,
    }))
}

/// The attributes of an attribute fork that lies in the inode.
pub(super) fn short_form<'a>(
    bytes: &'a [u8],
    mut visit: impl FnMut(RawAttr<'a>) -> std::result::Result<(), &'static str>,
) -> std::result::Result<(), &'static str> {
    const CUT_SHORT: &str = "attribute cut short";
    if bytes.len() < 4 {
        return Err(CUT_SHORT);
    }
    let (total, count) = (usize::from(be16(bytes, 0)), bytes[2]);
    let bytes = bytes.get(..total).ok_or(CUT_SHORT)?;
    let mut rest = bytes.get(4..).ok_or(CUT_SHORT)?;
    for _ in 0..count {
        let [name_len, value_len, flags, tail @ ..] = rest else {
            return Err(CUT_SHORT);
        };
        let (name, tail) = tail
            .split_at_checked(usize::from(*name_len))
            .ok_or(CUT_SHORT)?;
        let (value, tail) = tail
            .split_at_checked(usize::from(*value_len))
            .ok_or(CUT_SHORT)?;
        rest = tail;
        let Some(namespace) = Namespace::from_flags(*flags)? else {
            continue;
        };
        check_name(name)?;
        visit(RawAttr {
            namespace,
            name,
            value: RawValue::Local(value),
        })?;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err("more than the attributes it counts")
    }
}

fn check_name(name: &[u8]) -> std::result::Result<(), &'static str> {
    if name.is_empty() || name.contains(&0) {
        Err("impossible attribute name")
    } else {
        Ok(())
    }
}
