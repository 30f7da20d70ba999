//! What can be wrong with NTFS. Damage names the record, the structure in it and the fault.

use std::io;

/// Why something of NTFS could not be read or believed.
#[derive(Debug, thiserror::Error)]
pub enum NtfsError {
    #[error("read {what} at byte {offset}")]
    Read {
        what: &'static str,
        offset: u64,
        source: io::Error,
    },
    #[error("not an NTFS file system")]
    NotNtfs,
    #[error("boot sector of NTFS: {0}")]
    Boot(&'static str),
    #[error("MFT record {record}: {fault}")]
    Record { record: u64, fault: NtfsFault },
}

/// What is wrong with a record, or with what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NtfsFault {
    #[error("there is no such record")]
    Outside,
    #[error("it does not begin as a record does")]
    Magic,
    #[error("a sector of it is of another moment, or damaged")]
    Fixup,
    #[error("its header contradicts itself")]
    Header,
    #[error("it says that it is another one")]
    Number,
    #[error("it is not in use")]
    Unused,
    #[error("an attribute leads out of it")]
    Attribute,
    #[error("attribute {0:#x} is not there")]
    Missing(u32),
    #[error("attribute {0:#x} is in pieces that do not follow each other")]
    Pieces(u32),
    #[error("the runs of attribute {0:#x} contradict themselves or lead out of the volume")]
    Runs(u32),
    #[error("attribute {0:#x} has a size that cannot be")]
    Size(u32),
    #[error("its list of attributes is damaged")]
    List,
    #[error("attribute {0:#x} is encrypted")]
    Encrypted(u32),
    #[error("compressed data is damaged")]
    Compressed,
    #[error("a value of attribute {0:#x} is damaged")]
    Value(u32),
    #[error("more is wanted at once than is read at once")]
    TooLong,
    #[error("a stream of {0} bytes is too long for an extended attribute")]
    Unattributable(u64),
}

impl NtfsError {
    pub(super) fn record(record: u64) -> impl Fn(NtfsFault) -> NtfsError {
        move |fault| NtfsError::Record { record, fault }
    }
}
