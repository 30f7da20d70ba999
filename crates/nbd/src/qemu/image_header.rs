//! Headers of images, as far as they name other files.
//!
//! Pure: the first bytes of a file to names, nothing believed. What they say is used to tell QEMU
//! which files to open, and QEMU reads the rest.

/// Bytes at the front of a file in which everything is that is read here: the largest cluster of
/// qcow2.
pub const HEAD_BYTES_MAX: usize = 2 << 20;

/// Bytes of a name at most; QEMU has the same.
const NAME_BYTES_MAX: usize = 1023;

/// Extensions of a header at most.
const EXTENSIONS_MAX: usize = 1024;

const QCOW2_MAGIC: [u8; 4] = *b"QFI\xfb";
const QCOW2_HEADER_BYTES: usize = 72;
const QCOW2_HEADER_BYTES_V3: usize = 104;
const EXTENSION_BACKING_FORMAT: u32 = 0xe279_2aca;
const EXTENSION_DATA_FILE: u32 = 0x4441_5441;
/// Feature: the data is in another file.
const HAS_DATA_FILE: u64 = 1 << 2;

/// Why the first bytes of a file are not those of an image that can be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageHeaderError {
    #[error("it is no {0} image")]
    Magic(&'static str),
    #[error("its header ends early")]
    EndsEarly,
    #[error("its header leads out of its first cluster, or is too long")]
    Outside,
    #[error("qcow2 of version {0}, which is not known")]
    Version(u32),
    #[error("a file that it names is no UTF-8, empty, or longer than {NAME_BYTES_MAX} bytes")]
    Name,
    #[error("it is encrypted, and there is nowhere to name the secret")]
    Encrypted,
    #[error("its data is in a file that it does not name")]
    NoDataFile,
    #[error(
        "it does not say of which format the image is that it is based on; say it with `qemu-img \
         rebase -u -F FORMAT`"
    )]
    BackingFormat,
    #[error("it is based on an image of the format {0}, which is not followed")]
    OtherBackingFormat(String),
    #[error("it is a difference to another image, which QEMU does not read")]
    Difference,
    #[error("it is of the old kind COWD; convert it with qemu-img")]
    OldVmdk,
}

/// What an image is based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingFile {
    pub name: String,
    pub format: Option<String>,
}

/// Files that a qcow2 image names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qcow2Header {
    pub backing: Option<BackingFile>,
    pub data_file: Option<String>,
}

fn at<const LEN: usize>(head: &[u8], offset: usize) -> Result<[u8; LEN], ImageHeaderError> {
    let bytes = head
        .get(offset..)
        .and_then(|rest| rest.first_chunk::<LEN>());
    bytes.copied().ok_or(ImageHeaderError::EndsEarly)
}

fn u32_at(head: &[u8], offset: usize) -> Result<u32, ImageHeaderError> {
    at(head, offset).map(u32::from_be_bytes)
}

fn u64_at(head: &[u8], offset: usize) -> Result<u64, ImageHeaderError> {
    at(head, offset).map(u64::from_be_bytes)
}

pub(super) fn checked_name(bytes: &[u8]) -> Result<String, ImageHeaderError> {
    let is_good = !bytes.is_empty() && bytes.len() <= NAME_BYTES_MAX && !bytes.contains(&0);
    let name = std::str::from_utf8(bytes).ok().filter(|_| is_good);
    name.map(str::to_owned).ok_or(ImageHeaderError::Name)
}

/// Reads the header of a qcow2 image.
pub fn read_qcow2(head: &[u8]) -> Result<Qcow2Header, ImageHeaderError> {
    if !head.starts_with(&QCOW2_MAGIC) {
        return Err(ImageHeaderError::Magic("qcow2"));
    }
    let version = u32_at(head, 4)?;
    let (backing_offset, backing_len) = (u64_at(head, 8)?, u32_at(head, 16)?);
    let cluster_bits = u32_at(head, 20)?;
    if !(9..=21).contains(&cluster_bits) {
        return Err(ImageHeaderError::Outside);
    }
    let cluster = &head[..head.len().min(1 << cluster_bits)];
    if u32_at(head, 32)? != 0 {
        return Err(ImageHeaderError::Encrypted);
    }
    let (features, header_len) = match version {
        2 => (0, QCOW2_HEADER_BYTES),
        3 => (u64_at(head, 72)?, u32_at(head, 100)? as usize),
        version => return Err(ImageHeaderError::Version(version)),
    };
    if version == 3 && header_len < QCOW2_HEADER_BYTES_V3 {
        return Err(ImageHeaderError::Outside);
    }
    let backing = match backing_offset {
        0 => None,
        offset => {
            let start = usize::try_from(offset).map_err(|_| ImageHeaderError::Outside)?;
            let end = start.checked_add(backing_len as usize);
            let bytes = end.and_then(|end| cluster.get(start..end));
            Some(checked_name(bytes.ok_or(ImageHeaderError::Outside)?)?)
        }
    };
    let extensions = read_extensions(cluster, header_len)?;
    let data_file = match features & HAS_DATA_FILE {
        0 => None,
        _ => Some(extensions.data_file.ok_or(ImageHeaderError::NoDataFile)?),
    };
    Ok(Qcow2Header {
        backing: backing.map(|name| BackingFile {
            name,
            format: extensions.backing_format,
        }),
        data_file,
    })
}

#[derive(Default)]
struct Extensions {
    backing_format: Option<String>,
    data_file: Option<String>,
}

fn read_extensions(cluster: &[u8], header_len: usize) -> Result<Extensions, ImageHeaderError> {
    let mut found = Extensions::default();
    let mut offset = header_len;
    for _ in 0..EXTENSIONS_MAX {
        let (kind, len) = (
            u32_at(cluster, offset)?,
            u32_at(cluster, offset + 4)? as usize,
        );
        if kind == 0 {
            return Ok(found);
        }
        let start = offset + 8;
        let end = start.checked_add(len).ok_or(ImageHeaderError::Outside)?;
        let bytes = cluster.get(start..end).ok_or(ImageHeaderError::Outside)?;
        match kind {
            EXTENSION_BACKING_FORMAT => found.backing_format = Some(checked_name(bytes)?),
            EXTENSION_DATA_FILE => found.data_file = Some(checked_name(bytes)?),
            _ => {}
        }
        // Each begins at a multiple of eight bytes.
        offset = start + len.next_multiple_of(8);
    }
    Err(ImageHeaderError::Outside)
}

/// Is it an image of VirtualBox that is whole?
pub fn check_vdi(head: &[u8]) -> Result<(), ImageHeaderError> {
    const MAGIC_OFFSET: usize = 0x40;
    const MAGIC: u32 = 0xbeda_107f;
    const KIND_OFFSET: usize = 0x4c;
    const KIND_DIFFERENCE: u32 = 4;
    if at(head, MAGIC_OFFSET).map(u32::from_le_bytes) != Ok(MAGIC) {
        return Err(ImageHeaderError::Magic("vdi"));
    }
    match u32::from_le_bytes(at(head, KIND_OFFSET)?) {
        KIND_DIFFERENCE => Err(ImageHeaderError::Difference),
        _ => Ok(()),
    }
}

/// Is it an image of Hyper-V? QEMU itself refuses those that are differences.
pub fn check_vhdx(head: &[u8]) -> Result<(), ImageHeaderError> {
    match head.starts_with(b"vhdxfile") {
        true => Ok(()),
        false => Err(ImageHeaderError::Magic("vhdx")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qcow2(backing: &[u8], extensions: &[(u32, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; 104];
        head[..4].copy_from_slice(&QCOW2_MAGIC);
        head[4..8].copy_from_slice(&3u32.to_be_bytes());
        head[20..24].copy_from_slice(&16u32.to_be_bytes());
        head[100..104].copy_from_slice(&104u32.to_be_bytes());
        for (kind, bytes) in extensions {
            head.extend_from_slice(&kind.to_be_bytes());
            head.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            head.extend_from_slice(bytes);
            head.resize(head.len().next_multiple_of(8), 0);
        }
        head.extend_from_slice(&[0; 8]);
        if !backing.is_empty() {
            let offset = head.len() as u64;
            head[8..16].copy_from_slice(&offset.to_be_bytes());
            head[16..20].copy_from_slice(&(backing.len() as u32).to_be_bytes());
            head.extend_from_slice(backing);
        }
        head
    }

    #[test]
    fn what_an_image_is_made_of_is_in_its_header() {
        let head = qcow2(
            b"base.img",
            &[(EXTENSION_BACKING_FORMAT, b"raw"), (7, b"x")],
        );
        let backing = Some(BackingFile {
            name: "base.img".to_owned(),
            format: Some("raw".to_owned()),
        });
        let expected = Qcow2Header {
            backing,
            data_file: None,
        };
        assert_eq!(read_qcow2(&head), Ok(expected));
        let mut head = qcow2(b"", &[(EXTENSION_DATA_FILE, b"data.raw")]);
        assert_eq!(read_qcow2(&head), Ok(Qcow2Header::default()));
        head[79] = 4;
        let data_file = Some("data.raw".to_owned());
        assert_eq!(
            read_qcow2(&head).map(|found| found.data_file),
            Ok(data_file)
        );
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let good = qcow2(b"base", &[(EXTENSION_BACKING_FORMAT, b"qcow2")]);
        for len in 0..good.len() {
            assert!(read_qcow2(&good[..len]).is_err(), "{len}");
        }
        let with = |offset: usize, bytes: &[u8]| {
            let mut head = good.clone();
            head[offset..offset + bytes.len()].copy_from_slice(bytes);
            read_qcow2(&head)
        };
        assert_eq!(with(4, &[0, 0, 0, 9]), Err(ImageHeaderError::Version(9)));
        assert_eq!(with(8, &[0xff; 8]), Err(ImageHeaderError::Outside));
        assert_eq!(with(16, &[0xff; 4]), Err(ImageHeaderError::Outside));
        assert_eq!(with(16, &[0; 4]), Err(ImageHeaderError::Name));
        assert_eq!(with(20, &[0, 0, 0, 63]), Err(ImageHeaderError::Outside));
        assert_eq!(with(32, &[0, 0, 0, 2]), Err(ImageHeaderError::Encrypted));
        assert_eq!(with(79, &[4]), Err(ImageHeaderError::NoDataFile));
        assert_eq!(with(108, &[0xff; 4]), Err(ImageHeaderError::Outside));
        let endless = [
            &qcow2(b"", &[])[..104],
            &[0, 0, 0, 7, 0, 0, 0, 0].repeat(2000),
        ]
        .concat();
        assert_eq!(read_qcow2(&endless), Err(ImageHeaderError::Outside));
    }
}
