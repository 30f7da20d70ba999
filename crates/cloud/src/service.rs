//! What a store needs of a bucket: seven requests, with errors in the kinds of `io::Error`, and the
//! service of each protocol that makes them. Paths are relative to the repository.

use crate::options::CloudOptions;
use crate::place::{Cloud, CloudPlace};
use crate::s3::{S3Access, S3Service};
use crate::transport::Transport;
use bale_repository::store::ends_early;
use bytes::Bytes;
use std::io::{self, ErrorKind};
use std::time::SystemTime;

/// Length, and when the store made it.
pub struct Stat {
    pub len: u64,
    pub modified: Option<SystemTime>,
}

/// What an object is to be stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredAs {
    /// A pack with bytes of files.
    DataPack,
    /// Another pack.
    Pack,
    /// Anything else.
    Other,
}

/// A repository's place in a bucket. Calls block.
pub trait BucketService: Send + Sync {
    /// One request, but for Google's with a condition. With `if_absent` what is there is
    /// `AlreadyExists`, where the server looks.
    fn put(&self, path: &str, bytes: Bytes, stored: StoredAs, if_absent: bool) -> io::Result<()>;

    /// Refuses what is longer before the first byte is read.
    fn get(&self, path: &str, len_max: u64) -> io::Result<Vec<u8>>;

    /// Fills `buf`, which is not empty, or says that the object ends early.
    fn read_at(&self, path: &str, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// `None` if it is not there.
    fn stat(&self, path: &str) -> io::Result<Option<Stat>>;

    /// Calls `found` with the path of everything below a directory, page by page.
    fn list(&self, dir: &str, found: &mut dyn FnMut(&str, Stat)) -> io::Result<()>;

    /// Whether the bucket is there, by a listing's first page.
    fn look_at_bucket(&self) -> io::Result<()>;

    /// What is not there is no error.
    fn delete(&self, path: &str) -> io::Result<()>;

    /// The error for an object that ends before a range does, with how long it is.
    fn ends_early(&self, path: &str, offset: u64, len: usize) -> io::Result<()> {
        let there = self.stat(path)?;
        let there = there.ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
        Err(ends_early(offset, len, there.len))
    }

    /// The same as a service of S3, which knows classes and locks.
    fn as_s3(&self) -> Option<&S3Service> {
        None
    }
}

/// Makes no request, but for B2, whose host must be asked for.
pub fn open(
    place: &CloudPlace,
    options: &CloudOptions,
    transport: &Transport,
) -> io::Result<Box<dyn BucketService>> {
    let access = match place.cloud {
        Cloud::S3 => S3Access::of(place, &options.environment)?,
        Cloud::B2 => S3Access::of_b2(place, options, transport)?,
        Cloud::Gcs | Cloud::Azure => return open_other(place, options, transport),
    };
    let data_class = options
        .data_class
        .clone()
        .filter(|_| place.cloud == Cloud::S3);
    let service = S3Service::new(place, &access, data_class, transport)?;
    Ok(Box::new(service))
}

#[cfg(feature = "clouds")]
fn open_other(
    place: &CloudPlace,
    options: &CloudOptions,
    transport: &Transport,
) -> io::Result<Box<dyn BucketService>> {
    let service = crate::opendal_service::OpendalService::open(place, options, transport)?;
    Ok(Box::new(service))
}

#[cfg(not(feature = "clouds"))]
fn open_other(
    place: &CloudPlace,
    _: &CloudOptions,
    _: &Transport,
) -> io::Result<Box<dyn BucketService>> {
    Err(not_built(place.cloud))
}

/// Whether this build has stores of a cloud.
#[cfg(feature = "clouds")]
pub fn must_be_built(_: Cloud) -> io::Result<()> {
    Ok(())
}

/// Whether this build has stores of a cloud.
#[cfg(not(feature = "clouds"))]
pub fn must_be_built(cloud: Cloud) -> io::Result<()> {
    match cloud {
        Cloud::S3 | Cloud::B2 => Ok(()),
        Cloud::Gcs | Cloud::Azure => Err(not_built(cloud)),
    }
}

#[cfg(not(feature = "clouds"))]
fn not_built(cloud: Cloud) -> io::Error {
    let text = format!(
        "this build has no stores of Google and Azure ({}:): the packages of Bale have them, and \
         so has a build with `cargo build --release --features clouds`; rclone: reaches them, too",
        cloud.scheme()
    );
    io::Error::new(ErrorKind::Unsupported, text)
}
