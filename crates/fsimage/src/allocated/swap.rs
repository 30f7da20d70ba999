//! Swap space: its header is read, its pages are not.

use crate::ByteSource;
use crate::in_use::{InUse, UsePortion};

const HEADER_AT: u64 = 1024;
const VERSION: u32 = 1;

/// Swap space whose header agrees with its size.
pub(super) struct SwapSpace {
    page_bytes: u64,
    /// Behind the last page.
    end: u64,
    len_bytes: u64,
}

impl SwapSpace {
    /// `None` if the header contradicts itself.
    pub(super) fn open(source: &dyn ByteSource, page_bytes: u32) -> Option<SwapSpace> {
        let mut header = [0; 8];
        source.read_exact_at(HEADER_AT, &mut header).ok()?;
        let (version, last) = header.split_at(4);
        let number = |bytes: &[u8]| bytes.first_chunk().map(|it| u32::from_le_bytes(*it));
        let pages = u64::from(number(last)?).checked_add(1)?;
        let end = pages.checked_mul(page_bytes.into())?;
        let is_good = number(version)? == VERSION && pages > 1 && end <= source.len_bytes();
        is_good.then_some(SwapSpace {
            page_bytes: page_bytes.into(),
            end,
            len_bytes: source.len_bytes(),
        })
    }
}

impl InUse for SwapSpace {
    fn portion(&mut self, at: u64) -> UsePortion {
        if at < self.page_bytes {
            return UsePortion::whole(at..self.page_bytes, None);
        }
        if at < self.end {
            return UsePortion {
                end: self.end,
                used: Vec::new(),
                doubt: None,
            };
        }
        UsePortion::whole(at..self.len_bytes, None)
    }
}
