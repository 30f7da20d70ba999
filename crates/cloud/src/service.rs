//! The services of opendal, made for a place, and the six requests that a store needs of them, with
//! errors in the kinds of `io::Error`.
//!
//! One of three files that know opendal. Paths are relative to the repository.

use crate::connect::{CloudOptions, wait_for};
use crate::credentials::{self, S3Credentials};
use crate::place::{Cloud, CloudPlace};
use crate::refusal::Refusal;
use crate::s3_access::S3Access;
use crate::signed::SignedS3;
use crate::transport::{Transport, system_time};
use crate::variables::Variables;
use bale_repository::store::ends_early;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use opendal::options::WriteOptions;
use opendal::services::{Azblob, Gcs, S3};
use opendal::{BufferStream, EntryMode, ErrorKind as Kind, Operator};
use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::time::SystemTime;

/// Room that an object gets before its first byte came, at most.
const ROOM_BYTES_MAX: u64 = 1 << 20;

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

/// A repository's place behind opendal.
pub struct Service {
    operator: Operator,
    /// The same that stores objects in a class of their own.
    of_class: Option<Operator>,
    signed: Option<SignedS3>,
    transport: Transport,
    cloud: Cloud,
}

impl Service {
    /// Makes no request, but for B2, whose host must be asked for.
    pub fn open(
        place: &CloudPlace,
        options: &CloudOptions,
        client: reqwest::Client,
    ) -> io::Result<Service> {
        let transport = Transport::new(
            client,
            options.idle_timeout,
            options.pace.clone(),
            page_words(place.cloud),
        );
        let environment = &options.environment;
        let access = match place.cloud {
            Cloud::S3 => Some(S3Access::of(place, environment)?),
            Cloud::B2 => Some(S3Access::of_b2(place, options, &transport)?),
            Cloud::Gcs | Cloud::Azure => None,
        };
        let signed = access
            .as_ref()
            .map(|access| SignedS3::new(place, access, &transport));
        let carried = |built: opendal::Result<Operator>| {
            let operator = built.map_err(|error| io::Error::other(error.message().to_owned()))?;
            let context = operator.context().clone();
            let carrier = opendal::HttpTransporter::new(transport.clone());
            Ok::<_, io::Error>(operator.with_context(context.with_http_transport(carrier)))
        };
        let operator = match (&access, place.cloud) {
            (Some(access), _) => Operator::new(s3(place, access)),
            (None, Cloud::Azure) => Operator::new(azure(place, environment)?),
            (None, _) => Operator::new(gcs(place, environment)),
        };
        let of_class = match (&access, &options.data_class) {
            (Some(access), Some(class)) if place.cloud == Cloud::S3 => {
                let service = s3(place, access).default_storage_class(class);
                Some(carried(Operator::new(service))?)
            }
            _ => None,
        };
        Ok(Service {
            operator: carried(operator)?,
            of_class,
            signed: signed.transpose()?,
            transport,
            cloud: place.cloud,
        })
    }

    /// One request, but for Google's with a condition. With `if_absent` what is there is
    /// `AlreadyExists`, where the server looks.
    pub fn put(
        &self,
        path: &str,
        bytes: Bytes,
        stored: StoredAs,
        if_absent: bool,
    ) -> io::Result<()> {
        let options = WriteOptions {
            if_not_exists: if_absent,
            ..WriteOptions::default()
        };
        let operator = match stored {
            StoredAs::DataPack => self.of_class.as_ref().unwrap_or(&self.operator),
            StoredAs::Pack | StoredAs::Other => &self.operator,
        };
        let put = operator.write_options(path, bytes, options);
        wait_for(async { put.await.map_err(|error| self.error(&error)) })?;
        Ok(())
    }

    /// Requests that opendal does not make, where the cloud speaks S3.
    pub fn signed(&self) -> Option<&SignedS3> {
        self.signed.as_ref()
    }

    /// Refuses what is longer before the first byte is read.
    pub fn get(&self, path: &str, len_max: u64) -> io::Result<Vec<u8>> {
        wait_for(async {
            let reader = self.operator.reader(path).await;
            let stream = reader.map_err(|error| self.error(&error))?.into_stream(..);
            let mut stream = stream.await.map_err(|error| self.error(&error))?;
            let head = stream
                .metadata()
                .await
                .map_err(|error| self.error(&error))?;
            let len = head.content_length();
            if len > len_max {
                return Err(ErrorKind::FileTooLarge.into());
            }
            let mut bytes = Vec::with_capacity(len.min(ROOM_BYTES_MAX) as usize);
            self.read_stream(&mut stream, len, &mut |piece| {
                bytes.extend_from_slice(piece)
            })
            .await?;
            Ok(bytes)
        })
    }

    /// Fills `buf`, which is not empty, or says that the object ends early.
    pub fn read_at(&self, path: &str, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let len = buf.len() as u64;
        let end = offset.checked_add(len);
        let Some(end) = end else {
            return self.ends_early(path, offset, buf.len());
        };
        let read = wait_for(async {
            let reader = self.operator.reader(path).await;
            let reader = reader.map_err(|error| self.error(&error))?;
            let stream = reader.into_stream(offset..end).await;
            let mut stream = stream.map_err(|error| self.error(&error))?;
            let head = stream
                .metadata()
                .await
                .map_err(|error| self.error(&error))?;
            let there = head.content_length();
            if there < end {
                return Err(ends_early(offset, buf.len(), there));
            }
            let mut filled = 0;
            self.read_stream(&mut stream, len, &mut |piece| {
                buf[filled..filled + piece.len()].copy_from_slice(piece);
                filled += piece.len();
            })
            .await
        });
        match read {
            // Of an object that ends before the range, most servers do not say how long it is.
            Err(error) if is_out_of_range(&error) => self.ends_early(path, offset, buf.len()),
            read => read,
        }
    }

    fn ends_early(&self, path: &str, offset: u64, len: usize) -> io::Result<()> {
        let there = self.stat(path)?;
        let there = there.ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
        Err(ends_early(offset, len, there.len))
    }

    /// Hands out exactly `len` bytes.
    async fn read_stream(
        &self,
        stream: &mut BufferStream,
        len: u64,
        take: &mut (dyn FnMut(&[u8]) + Send),
    ) -> io::Result<()> {
        let mut left = len;
        while let Some(buffer) = stream.next().await {
            for piece in buffer.map_err(|error| self.error(&error))? {
                left = left.checked_sub(piece.len() as u64).ok_or_else(|| {
                    let why = "the server sends more than it promised";
                    io::Error::new(ErrorKind::ConnectionAborted, why)
                })?;
                take(&piece);
            }
        }
        match left {
            0 => Ok(()),
            left => Err(io::Error::new(
                ErrorKind::ConnectionAborted,
                format!("{len} bytes were promised, and {left} of them did not come"),
            )),
        }
    }

    pub fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
        let stat = wait_for(async {
            let stat = self.operator.stat(path).await;
            stat.map_err(|error| self.error(&error))
        });
        match stat {
            Ok(stat) => Ok(Some(Stat {
                len: stat.content_length(),
                modified: stat.last_modified().map(system_time),
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Calls `found` with the path of everything below a directory, page by page.
    pub fn list(&self, dir: &str, found: &mut dyn FnMut(&str, Stat)) -> io::Result<()> {
        wait_for(async {
            let lister = self.operator.lister_with(dir).recursive(true).await;
            let mut lister = lister.map_err(|error| self.error(&error))?;
            let mut first = None;
            while let Some(entry) = lister
                .try_next()
                .await
                .map_err(|error| self.error(&error))?
            {
                let there = entry.metadata();
                if first.as_deref() == Some(entry.path()) {
                    let why = "the server lists in circles";
                    return Err(io::Error::new(ErrorKind::InvalidData, why));
                }
                first.get_or_insert_with(|| entry.path().to_owned());
                if there.mode() == EntryMode::FILE {
                    let stat = Stat {
                        len: there.content_length(),
                        modified: there.last_modified().map(system_time),
                    };
                    found(entry.path(), stat);
                }
            }
            Ok(())
        })
    }

    /// Whether the bucket is there, by a listing's first page.
    pub fn look_at_bucket(&self) -> io::Result<()> {
        wait_for(async {
            let lister = self.operator.lister_with("keys/").limit(1).await;
            let mut lister = lister.map_err(|error| self.error(&error))?;
            let first = lister.try_next().await;
            first.map_err(|error| self.error(&error))?;
            Ok(())
        })
    }

    /// What is not there is no error.
    pub fn delete(&self, path: &str) -> io::Result<()> {
        let deleted = wait_for(async {
            let deleted = self.operator.delete(path).await;
            deleted.map_err(|error| self.error(&error))
        });
        match deleted {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        }
    }

    /// What opendal found out, or was told by the transport.
    fn error(&self, error: &opendal::Error) -> io::Error {
        let mut next = error.source();
        let mut texts = vec![error.message().to_owned()];
        while let Some(cause) = next {
            if let Some(refusal) = cause.downcast_ref::<Refusal>() {
                return refusal.clone().into_error();
            }
            texts.push(cause.to_string());
            next = cause.source();
        }
        // opendal looks for credentials when it signs, and says no more than this.
        if error.message() == "signing http request" {
            return credentials::not_found(self.cloud, &self.transport);
        }
        let kind = match error.kind() {
            Kind::NotFound => return ErrorKind::NotFound.into(),
            Kind::PermissionDenied => ErrorKind::PermissionDenied,
            Kind::ConditionNotMatch | Kind::AlreadyExists => ErrorKind::AlreadyExists,
            Kind::RangeNotSatisfied => ErrorKind::UnexpectedEof,
            Kind::RateLimited => ErrorKind::ResourceBusy,
            _ if error.is_temporary() => ErrorKind::ConnectionAborted,
            // A body that is not as long as the range, of an object that is long enough.
            _ if OTHER_LENGTHS
                .iter()
                .any(|words| error.message().contains(words)) =>
            {
                ErrorKind::ConnectionAborted
            }
            _ => ErrorKind::Other,
        };
        io::Error::new(kind, texts.join(": "))
    }
}

/// opendal has no kind for it.
const OTHER_LENGTHS: [&str; 2] = ["got too little data", "got too much data"];

fn is_out_of_range(error: &io::Error) -> bool {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Refusal>());
    inner.is_some_and(|refusal| refusal.status == 416)
}

/// What stands in each page of a listing, also in an empty one. Without the second of S3 opendal
/// begins again.
fn page_words(cloud: Cloud) -> &'static [&'static str] {
    match cloud {
        Cloud::S3 | Cloud::B2 => &["<ListBucketResult", "<IsTruncated>", "</ListBucketResult>"],
        Cloud::Azure => &["<EnumerationResults", "</EnumerationResults>"],
        Cloud::Gcs => &["\"storage#objects\""],
    }
}

/// opendal wants slashes at both ends.
fn root(place: &CloudPlace) -> String {
    match place.prefix.is_empty() {
        true => "/".to_owned(),
        false => format!("/{}/", place.prefix),
    }
}

fn s3(place: &CloudPlace, access: &S3Access) -> S3 {
    let mut service = S3::default()
        .root(&root(place))
        .bucket(&access.bucket)
        .endpoint(&access.endpoint)
        .region(&access.region)
        .profile(access.profile.as_deref().unwrap_or_default());
    if access.has_checksums {
        service = service.checksum_algorithm("crc32c");
    }
    if access.is_virtual {
        service = service.enable_virtual_host_style();
    }
    match &access.credentials {
        S3Credentials::Anonymous => service.skip_signature(),
        S3Credentials::Found => service,
        S3Credentials::Keys {
            id,
            secret,
            session,
        } => service
            .access_key_id(id)
            .secret_access_key(secret)
            .session_token(session.as_deref().unwrap_or_default()),
    }
}

fn gcs(place: &CloudPlace, environment: &Variables) -> Gcs {
    let mut service = Gcs::default()
        .root(&root(place))
        .bucket(&place.bucket)
        .credential_path(
            &environment
                .get("GOOGLE_APPLICATION_CREDENTIALS")
                .unwrap_or_default(),
        );
    if let Some(token) = environment.get("GOOGLE_ACCESS_TOKEN") {
        service = service.token(token);
    }
    let emulator = environment.get("STORAGE_EMULATOR_HOST");
    if let Some(host) = &emulator {
        service = service.endpoint(host);
    }
    match emulator.is_some() || credentials::is_anonymous(environment) {
        true => service.skip_signature(),
        false => service,
    }
}

fn azure(place: &CloudPlace, environment: &Variables) -> io::Result<Azblob> {
    let account = environment.first(&["AZURE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"]);
    let account = account.ok_or_else(|| credentials::missing(Cloud::Azure))?;
    let suffix = environment.get("AZURE_ENDPOINT_SUFFIX");
    let suffix = suffix.as_deref().unwrap_or("core.windows.net");
    let endpoint = environment.get("AZURE_STORAGE_SERVICE_ENDPOINT");
    let endpoint = endpoint.unwrap_or_else(|| format!("https://{account}.blob.{suffix}"));
    let mut service = Azblob::default()
        .root(&root(place))
        .container(&place.bucket)
        .endpoint(&endpoint)
        .account_name(&account);
    if let Some(key) = environment.first(&["AZURE_ACCOUNT_KEY", "AZURE_STORAGE_KEY"]) {
        service = service.account_key(&key);
    }
    if let Some(token) = environment.first(&["AZURE_ACCOUNT_SAS", "AZURE_STORAGE_SAS_TOKEN"]) {
        service = service.sas_token(&token);
    }
    match credentials::is_anonymous(environment) {
        true => Ok(service.skip_signature()),
        false => Ok(service),
    }
}
