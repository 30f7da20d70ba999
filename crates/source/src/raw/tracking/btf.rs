//! Types of the running kernel, as it describes them itself (BTF, `/sys/kernel/btf/vmlinux`): where
//! a field is in a structure, and which arguments a tracepoint has.
//!
//! So one program of Bale serves all kernels, and none is guessed at: a field that is not there, or
//! of another size than expected, is an error. Pure, with bounds; a fuzz target has it.

/// Bytes of such a description at most; that of a kernel with everything has 10 MB.
pub const KERNEL_TYPES_BYTES_MAX: usize = 64 << 20;

/// Types at most: four bytes each in memory.
const TYPES_MAX: usize = 1 << 20;
/// Typedefs and qualifiers before a type, and structures without a name in each other.
const DEPTH_MAX: usize = 16;

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;

const INT: u32 = 1;
const POINTER: u32 = 2;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const PROTOTYPE: u32 = 13;
const TYPE_TAG: u32 = 18;

/// Why a description is of no use.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KernelTypesError {
    #[error("it is no description of types")]
    Format,
    #[error("it is cut short or contradicts itself")]
    Damaged,
    #[error("it has more than {TYPES_MAX} types")]
    TooMany,
    #[error("this kernel has no {0}")]
    Missing(String),
    #[error("{0} is not of the expected size in this kernel")]
    Size(String),
}

/// A description of types.
pub struct KernelTypes<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins; the first, number 0, is void and nowhere.
    starts: Vec<u32>,
}

/// One type.
#[derive(Clone, Copy)]
struct KernelType {
    name: u32,
    kind: u32,
    count: usize,
    /// Offsets of members have sizes of bit fields in them.
    has_bit_fields: bool,
    /// Bytes, or the type that it refers to.
    size_or_type: u32,
    /// Where what follows its head begins.
    rest: usize,
}

impl<'a> KernelTypes<'a> {
    /// Reads the order of types; what they are is read when it is needed.
    pub fn parse(bytes: &'a [u8]) -> Result<KernelTypes<'a>, KernelTypesError> {
        let head = bytes.get(..HEADER_BYTES).ok_or(KernelTypesError::Format)?;
        let magic = u16::from_le_bytes([head[0], head[1]]);
        if magic != MAGIC || bytes.len() > KERNEL_TYPES_BYTES_MAX {
            return Err(KernelTypesError::Format);
        }
        let part = |at: usize| {
            let header = number(head, 4)? as usize;
            let (offset, len) = (number(head, at)? as usize, number(head, at + 4)? as usize);
            let start = header.checked_add(offset)?;
            bytes.get(start..start.checked_add(len)?)
        };
        let types = part(8).ok_or(KernelTypesError::Damaged)?;
        let strings = part(16).ok_or(KernelTypesError::Damaged)?;
        let mut found = KernelTypes {
            types,
            strings,
            starts: vec![0],
        };
        let mut at = 0;
        while at < types.len() {
            if found.starts.len() > TYPES_MAX {
                return Err(KernelTypesError::TooMany);
            }
            found.starts.push(at as u32);
            let of = found.type_at(at).ok_or(KernelTypesError::Damaged)?;
            let bytes = rest_bytes(&of).ok_or(KernelTypesError::Damaged)?;
            at = of.rest + bytes;
        }
        match at == types.len() {
            true => Ok(found),
            false => Err(KernelTypesError::Damaged),
        }
    }

    /// The bytes of a field of a structure: `path` names members of members, with dots between.
    /// It has exactly `bytes` bytes.
    pub fn field(&self, of: &str, path: &str, bytes: u64) -> Result<u64, KernelTypesError> {
        let shown = || format!("{of}.{path}");
        let missing = || KernelTypesError::Missing(shown());
        let mut within = self.named(STRUCT, of).ok_or_else(missing)?.1;
        let mut bits = 0u64;
        for name in path.split('.') {
            let (offset, member) = self.member(within, name, DEPTH_MAX).ok_or_else(missing)?;
            bits = bits.checked_add(offset).ok_or(KernelTypesError::Damaged)?;
            within = self.resolve(member).ok_or(KernelTypesError::Damaged)?;
        }
        let size = match within.kind {
            POINTER => 8,
            INT | ENUM | STRUCT | UNION => u64::from(within.size_or_type),
            _ => 0,
        };
        let offset = bits / 8;
        // What a load can reach.
        let reaches = offset + bytes <= i16::MAX as u64;
        match size == bytes && bits.is_multiple_of(8) && reaches {
            true => Ok(offset),
            false => Err(KernelTypesError::Size(shown())),
        }
    }

    /// The type of a tracepoint that programs attach to by it, and the places of `arguments`: of
    /// each the first that is such a one.
    pub fn tracepoint(
        &self,
        name: &str,
        arguments: &[Argument],
    ) -> Result<Tracepoint, KernelTypesError> {
        let missing = || KernelTypesError::Missing(format!("tracepoint {name}"));
        let typedef = format!("btf_trace_{name}");
        let (id, typedef) = self.named(TYPEDEF, &typedef).ok_or_else(missing)?;
        let pointer = self.resolve(typedef.size_or_type).ok_or_else(missing)?;
        let prototype = self.resolve(pointer.size_or_type).ok_or_else(missing)?;
        if pointer.kind != POINTER || prototype.kind != PROTOTYPE {
            return Err(missing());
        }
        let place = |argument: &Argument| {
            // The first is not for programs.
            (1..prototype.count).find(|at| self.is_argument(&prototype, *at, argument))
        };
        let places = arguments
            .iter()
            .map(|argument| place(argument).map(|at| at - 1).ok_or_else(missing));
        Ok(Tracepoint {
            id,
            arguments: places.collect::<Result<_, _>>()?,
        })
    }

    fn is_argument(&self, prototype: &KernelType, at: usize, argument: &Argument) -> bool {
        let head = prototype.rest + at * 8;
        // They have no names there.
        let of = number(self.types, head + 4).and_then(|of| self.resolve(of));
        let Some(of) = of else {
            return false;
        };
        match argument {
            Argument::PointerTo(structure) => {
                let to = self.resolve(of.size_or_type);
                of.kind == POINTER
                    && to.is_some_and(|to| to.kind == STRUCT && self.is_named(to.name, structure))
            }
            Argument::Unsigned4 => {
                let encoding = number(self.types, of.rest).map(|encoding| encoding >> 24);
                (of.kind, of.size_or_type, encoding) == (INT, 4, Some(0))
            }
        }
    }

    /// Where a member of a structure is, in bits, and its type. Structures without a name are
    /// looked into.
    fn member(&self, of: KernelType, name: &str, depth: usize) -> Option<(u64, u32)> {
        if !matches!(of.kind, STRUCT | UNION) || depth == 0 {
            return None;
        }
        for at in 0..of.count {
            let head = of.rest + at * 12;
            let (member, type_) = (number(self.types, head)?, number(self.types, head + 4)?);
            let offset = number(self.types, head + 8)?;
            let (offset, bit_field) = match of.has_bit_fields {
                true => (offset & 0x00ff_ffff, offset >> 24),
                false => (offset, 0),
            };
            if self.is_named(member, name) {
                return (bit_field == 0).then_some((u64::from(offset), type_));
            }
            if member == 0
                && let Some(within) = self.resolve(type_)
                && let Some((further, type_)) = self.member(within, name, depth - 1)
            {
                return Some((u64::from(offset) + further, type_));
            }
        }
        None
    }

    /// The type of a number, without typedefs and qualifiers.
    fn resolve(&self, number: u32) -> Option<KernelType> {
        let mut number = number;
        for _ in 0..DEPTH_MAX {
            let of = self.type_of(number)?;
            match of.kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => number = of.size_or_type,
                _ => return Some(of),
            }
        }
        None
    }

    fn named(&self, kind: u32, name: &str) -> Option<(u32, KernelType)> {
        let types = (1..self.starts.len() as u32).filter_map(|id| Some((id, self.type_of(id)?)));
        let mut types = types.filter(|(_, of)| of.kind == kind);
        types.find(|(_, of)| self.is_named(of.name, name))
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        let rest = rest.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    fn type_of(&self, number: u32) -> Option<KernelType> {
        let start = self.starts.get(number as usize).filter(|_| number > 0)?;
        self.type_at(*start as usize)
    }

    fn type_at(&self, start: usize) -> Option<KernelType> {
        let info = number(self.types, start + 4)?;
        Some(KernelType {
            name: number(self.types, start)?,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            has_bit_fields: info >> 31 == 1,
            size_or_type: number(self.types, start + 8)?,
            rest: start + TYPE_BYTES,
        })
    }
}

/// An argument of a tracepoint.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// To the structure of this name.
    PointerTo(&'static str),
    /// A number of four bytes without a sign.
    Unsigned4,
}

/// A tracepoint, for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its type.
    pub id: u32,
    /// Places of its arguments.
    pub arguments: Vec<usize>,
}

/// How much follows the head of a type; `None`: a kind that is not known, and so all behind it.
fn rest_bytes(of: &KernelType) -> Option<usize> {
    const NOTHING: [u32; 9] = [
        POINTER, 7, TYPEDEF, VOLATILE, CONST, RESTRICT, 12, 16, TYPE_TAG,
    ];
    match of.kind {
        kind if NOTHING.contains(&kind) => Some(0),
        INT | 14 | 17 => Some(4),
        3 => Some(12),
        STRUCT | UNION | 15 | 19 => Some(12 * of.count),
        ENUM | PROTOTYPE => Some(8 * of.count),
        _ => None,
    }
}

fn number(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset.checked_add(4)?)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As small as a kernel can be: a `bio` with a part without a name, and a tracepoint.
    fn description() -> Vec<u8> {
        let mut strings = vec![0];
        let mut name = |text: &str| {
            let at = strings.len() as u32;
            strings.extend(text.bytes().chain([0]));
            at
        };
        let info = |kind: u32, count: u32| kind << 24 | count;
        let words = [
            // 1: unsigned int, 2: u32 by a typedef, 3: unsigned long
            vec![name("unsigned int"), info(INT, 0), 4, 32],
            vec![name("u32"), info(TYPEDEF, 0), 1],
            vec![name("long"), info(INT, 0), 8, 64],
            // 4: a union without a name, 5: bio, 6: to it
            vec![0, info(UNION, 1), 4, name("size"), 2, 0],
            vec![
                name("bio"),
                info(STRUCT, 2),
                16,
                name("sector"),
                3,
                0,
                0,
                4,
                64,
            ],
            vec![0, info(POINTER, 0), 5],
            // 7: bits
            vec![
                name("bits"),
                info(STRUCT, 1) | 1 << 31,
                4,
                name("bit"),
                1,
                3 << 24,
            ],
            // 8: void *, 9: void (void *, struct bio *, u32), 10: to it, 11: the tracepoint
            vec![0, info(POINTER, 0), 0],
            vec![0, info(PROTOTYPE, 3), 0, 0, 8, 0, 6, 0, 2],
            vec![0, info(POINTER, 0), 9],
            vec![name("btf_trace_queue"), info(TYPEDEF, 0), 10],
            // 12: a typedef of itself
            vec![name("btf_trace_circle"), info(TYPEDEF, 0), 12],
        ];
        let types: Vec<u8> = words
            .concat()
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let head = [
            24,
            0,
            types.len() as u32,
            types.len() as u32,
            strings.len() as u32,
        ];
        let head = head.iter().flat_map(|word| word.to_le_bytes());
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        bytes.extend(head.chain(types).chain(strings));
        bytes
    }

    #[test]
    fn fields_and_arguments_are_where_the_description_has_them() {
        let bytes = description();
        let types = KernelTypes::parse(&bytes).unwrap();
        assert_eq!(types.field("bio", "sector", 8), Ok(0));
        assert_eq!(types.field("bio", "size", 4), Ok(8));
        let found = types.tracepoint("queue", &[Argument::Unsigned4, Argument::PointerTo("bio")]);
        let arguments = vec![1, 0];
        assert_eq!(found, Ok(Tracepoint { id: 11, arguments }));
        for (of, path, bytes) in [("bio", "sector", 4), ("bits", "bit", 4)] {
            assert!(types.field(of, path, bytes).is_err(), "{of}.{path}");
        }
        let missing = KernelTypesError::Missing("bio.none".to_owned());
        assert_eq!(types.field("bio", "none", 8), Err(missing));
        assert!(types.tracepoint("none", &[]).is_err());
        assert!(types.tracepoint("circle", &[]).is_err());
        let another = [Argument::PointerTo("request")];
        assert!(types.tracepoint("queue", &another).is_err());
    }

    #[test]
    fn a_description_that_is_cut_or_damaged_anywhere_is_an_error_or_another_one() {
        let whole = description();
        let look = |bytes: &[u8]| {
            if let Ok(types) = KernelTypes::parse(bytes) {
                let _found = types.field("bio", "size", 4);
                let _found = types.tracepoint("queue", &[Argument::PointerTo("bio")]);
            }
        };
        for at in 0..whole.len() {
            assert!(KernelTypes::parse(&whole[..at]).is_err(), "{at}");
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                look(&bytes);
            }
        }
    }
}
