//! The text in a VMDK image that names the files which it is made of.
//!
//! Pure. QEMU reads the names of extents itself, so all of them are found here that it could find,
//! and a descriptor that is not understood to its end is refused.

use super::image_header::{ImageHeaderError, checked_name};

/// The start of an image with a text in it, and of one that is a text.
const SPARSE_MAGIC: &[u8] = b"KDMV";
const OLD_MAGIC: &[u8] = b"COWD";
const TEXT_START: &str = "# Disk DescriptorFile";

/// Bytes of a text at most; QEMU looks for a parent in the first ten kilobytes, and they are looked
/// at in any case.
const TEXT_BYTES_MAX: usize = 1 << 20;
const TEXT_BYTES_MIN: usize = 20 * 512;

/// Files that one is made of at most.
const EXTENTS_MAX: usize = 4096;

const SECTOR_BYTES: u64 = 512;
/// Sectors of the disk that are in the file itself.
const CAPACITY_AT: usize = 12;
const TEXT_OFFSET_AT: usize = 28;
const TEXT_SECTORS_AT: usize = 36;

const PARENT_KEY: &str = "parentFileNameHint";

/// Files that a VMDK image names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmdkFiles {
    pub extents: Vec<String>,
    /// What it is based on.
    pub parent: Option<String>,
}

/// Reads the first bytes of an image.
pub fn read_vmdk(head: &[u8]) -> Result<VmdkFiles, ImageHeaderError> {
    if head.starts_with(OLD_MAGIC) {
        return Err(ImageHeaderError::OldVmdk);
    }
    if head.starts_with(SPARSE_MAGIC) {
        let number = |at: usize| {
            let bytes = head.get(at..).and_then(|rest| rest.first_chunk::<8>());
            let bytes = bytes.ok_or(ImageHeaderError::EndsEarly)?;
            Ok(u64::from_le_bytes(*bytes))
        };
        let (offset, sectors) = (number(TEXT_OFFSET_AT)?, number(TEXT_SECTORS_AT)?);
        if offset == 0 {
            return Ok(VmdkFiles::default());
        }
        let bytes = |sectors: u64| {
            let bytes = sectors.checked_mul(SECTOR_BYTES);
            let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
            bytes.ok_or(ImageHeaderError::Outside)
        };
        let (offset, len) = (bytes(offset)?, bytes(sectors)?.max(TEXT_BYTES_MIN));
        let rest = head.get(offset..).ok_or(ImageHeaderError::Outside)?;
        if len > TEXT_BYTES_MAX {
            return Err(ImageHeaderError::Outside);
        }
        // The image may end behind its text.
        let mut files = read_text(to_zero(&rest[..rest.len().min(len)]))?;
        if number(CAPACITY_AT)? > 0 {
            // It names itself, by the name that it had when it was made, which nobody reads.
            files.extents.clear();
        }
        return Ok(files);
    }
    if !head.starts_with(TEXT_START.as_bytes()) {
        return Err(ImageHeaderError::Magic("vmdk"));
    }
    match head.len() > TEXT_BYTES_MAX {
        true => Err(ImageHeaderError::Outside),
        false => read_text(to_zero(head)),
    }
}

/// What is behind a zero QEMU does not see.
fn to_zero(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == 0);
    &text[..end.unwrap_or(text.len())]
}

fn read_text(text: &[u8]) -> Result<VmdkFiles, ImageHeaderError> {
    let text = std::str::from_utf8(text).map_err(|_| ImageHeaderError::Name)?;
    let mut files = VmdkFiles::default();
    for line in text.split(['\n', '\r']).map(str::trim) {
        if line.contains(PARENT_KEY) {
            if files.parent.is_some() {
                return Err(ImageHeaderError::Name);
            }
            let name = quoted(line)?;
            // Some write it empty where there is none.
            if !name.is_empty() {
                files.parent = Some(checked_name(name.as_bytes())?);
            }
            continue;
        }
        let first = line.split_whitespace().next().unwrap_or_default();
        let is_extent = ["RW", "RDONLY", "NOACCESS"].contains(&first);
        // Extents of zeroes have no file.
        if is_extent && line.contains('"') {
            if files.extents.len() == EXTENTS_MAX {
                return Err(ImageHeaderError::Outside);
            }
            files.extents.push(checked_name(quoted(line)?.as_bytes())?);
        }
    }
    Ok(files)
}

/// What is between the first two quotes.
fn quoted(line: &str) -> Result<&str, ImageHeaderError> {
    let rest = line.split_once('"').ok_or(ImageHeaderError::Name)?.1;
    Ok(rest.split_once('"').ok_or(ImageHeaderError::Name)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Disk DescriptorFile\nversion=1\nparentCID=ffffffff\n\
                        RW 4192256 SPARSE \"disk-s001.vmdk\"\r\n  RW 1 FLAT \"/etc/shadow\" 0\n\
                        RW 1 ZERO\nRDONLY 5 FLAT \"x y\" 0\nddb.adapterType = \"ide\"\n";

    fn sparse(text: &[u8]) -> Vec<u8> {
        let mut head = vec![0; 512];
        head[..4].copy_from_slice(SPARSE_MAGIC);
        head[28] = 1;
        head[36] = 20;
        [&head, text].concat()
    }

    #[test]
    fn all_files_that_a_descriptor_names_are_found() {
        let extents = ["disk-s001.vmdk", "/etc/shadow", "x y"]
            .map(str::to_owned)
            .to_vec();
        let expected = VmdkFiles {
            extents,
            parent: None,
        };
        assert_eq!(read_vmdk(TEXT.as_bytes()), Ok(expected.clone()));
        assert_eq!(read_vmdk(&sparse(TEXT.as_bytes())), Ok(expected));
        let mut itself = sparse(TEXT.as_bytes());
        itself[12] = 1;
        assert_eq!(read_vmdk(&itself), Ok(VmdkFiles::default()));
        let based = format!("{TEXT}parentFileNameHint=\"../other.vmdk\"\n");
        let found = read_vmdk(&sparse(based.as_bytes())).unwrap();
        assert_eq!(found.parent.as_deref(), Some("../other.vmdk"));
    }

    #[test]
    fn descriptors_that_lie_are_refused() {
        assert_eq!(read_vmdk(b"MZ"), Err(ImageHeaderError::Magic("vmdk")));
        assert_eq!(read_vmdk(b"COWD"), Err(ImageHeaderError::OldVmdk));
        assert_eq!(read_vmdk(b"KDMV"), Err(ImageHeaderError::EndsEarly));
        let mut far = sparse(b"");
        far[28..36].fill(0xff);
        assert_eq!(read_vmdk(&far), Err(ImageHeaderError::Outside));
        let twice = "parentFileNameHint=\"a\"\n".repeat(2);
        assert_eq!(
            read_vmdk(&sparse(twice.as_bytes())),
            Err(ImageHeaderError::Name)
        );
        let open = format!("{TEXT}RW 1 FLAT \"no end\n");
        assert_eq!(read_vmdk(open.as_bytes()), Err(ImageHeaderError::Name));
        let long = TEXT.to_owned() + &" ".repeat(1 << 20);
        assert_eq!(read_vmdk(long.as_bytes()), Err(ImageHeaderError::Outside));
    }
}
