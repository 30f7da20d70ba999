//! The services of opendal, made for a place in the cloud of Google or Azure, and the requests that
//! a store needs of them, with errors in the kinds of `io::Error`.
//!
//! One of two files that know opendal; builds without the feature `clouds` have neither. Paths are
//! relative to the repository.

use crate::credentials;
use crate::opendal_transport::{OpendalTransport, system_time};
use crate::options::CloudOptions;
use crate::place::{Cloud, CloudPlace};
use crate::refusal::{Refusal, is_out_of_range};
use crate::service::{BucketService, Stat, StoredAs};
use crate::transport::{Transport, more_than_promised, too_little};
use crate::variables::Variables;
use bale_repository::store::ends_early;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use opendal::options::WriteOptions;
use opendal::services::{Azblob, Gcs};
use opendal::{BufferStream, EntryMode, ErrorKind as Kind, Operator};
use std::error::Error as _;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::sync::OnceLock;
use tokio::runtime::{Builder, Runtime};

/// Room that an object gets before its first byte came, at most.
const ROOM_BYTES_MAX: u64 = 1 << 20;

/// Threads behind opendal: nothing of ours runs on them, requests are made by who waits for them.
const THREADS: usize = 1;

/// Threads for files with keys.
const BLOCKING_THREADS_MAX: usize = 4;

/// A repository's place behind opendal.
pub struct OpendalService {
    operator: Operator,
    transport: Transport,
    cloud: Cloud,
}

impl OpendalService {
    /// Makes no request.
    pub fn open(
        place: &CloudPlace,
        options: &CloudOptions,
        transport: &Transport,
    ) -> io::Result<OpendalService> {
        let environment = &options.environment;
        let built = match place.cloud {
            Cloud::Azure => Operator::new(azure(place, environment)?),
            _ => Operator::new(gcs(place, environment)),
        };
        let operator = built.map_err(|error| io::Error::other(error.message().to_owned()))?;
        let context = operator.context().clone();
        let carrier = OpendalTransport::new(transport.clone(), page_words(place.cloud));
        let carrier = opendal::HttpTransporter::new(carrier);
        Ok(OpendalService {
            operator: operator.with_context(context.with_http_transport(carrier)),
            transport: transport.clone(),
            cloud: place.cloud,
        })
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
                let rest = left.checked_sub(piece.len() as u64);
                left = rest.ok_or_else(more_than_promised)?;
                take(&piece);
            }
        }
        match left {
            0 => Ok(()),
            left => Err(too_little(len, left)),
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

impl BucketService for OpendalService {
    fn put(&self, path: &str, bytes: Bytes, _: StoredAs, if_absent: bool) -> io::Result<()> {
        let options = WriteOptions {
            if_not_exists: if_absent,
            ..WriteOptions::default()
        };
        let put = self.operator.write_options(path, bytes, options);
        wait_for(async { put.await.map_err(|error| self.error(&error)) })?;
        Ok(())
    }

    fn get(&self, path: &str, len_max: u64) -> io::Result<Vec<u8>> {
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

    fn read_at(&self, path: &str, offset: u64, buf: &mut [u8]) -> io::Result<()> {
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

    fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
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

    fn list(&self, dir: &str, found: &mut dyn FnMut(&str, Stat)) -> io::Result<()> {
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

    fn look_at_bucket(&self) -> io::Result<()> {
        wait_for(async {
            let lister = self.operator.lister_with("keys/").limit(1).await;
            let mut lister = lister.map_err(|error| self.error(&error))?;
            let first = lister.try_next().await;
            first.map_err(|error| self.error(&error))?;
            Ok(())
        })
    }

    fn delete(&self, path: &str) -> io::Result<()> {
        let deleted = wait_for(async {
            let deleted = self.operator.delete(path).await;
            deleted.map_err(|error| self.error(&error))
        });
        match deleted {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        }
    }
}

/// opendal has no kind for it.
const OTHER_LENGTHS: [&str; 2] = ["got too little data", "got too much data"];

/// What stands in each page of a listing, also in an empty one.
fn page_words(cloud: Cloud) -> &'static [&'static str] {
    match cloud {
        Cloud::Azure => &["<EnumerationResults", "</EnumerationResults>"],
        _ => &["\"storage#objects\""],
    }
}

/// opendal wants slashes at both ends.
fn root(place: &CloudPlace) -> String {
    match place.prefix.is_empty() {
        true => "/".to_owned(),
        false => format!("/{}/", place.prefix),
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

/// Waits for `work` on this thread.
fn wait_for<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    runtime()?.block_on(work)
}

/// opendal reads files with keys on threads of tokio.
fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("bale-cloud")
        .enable_all()
        .build()?;
    // Another thread may have been first; then this one ends without waiting.
    Ok(RUNTIME.get_or_init(|| made))
}
