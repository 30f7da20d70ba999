//! Reading XFS from a byte source.
