//! Local directories served to other machines over HTTP or HTTPS: the server behind `bale serve`.
//!
//! It speaks the protocol of restic's REST servers with the areas of a Bale repository, and keeps
//! every promise of `LocalStore`, through which it stores: an answer that says yes comes after the
//! object is durable. It has no key and reads nothing; what it can check without one is the hash in
//! a name. Names reach the disk only as `target` reads them, and no symbolic link is followed.
//! What clients can make it take is in `limits`.

mod authority;
mod body;
mod download;
mod limits;
mod metrics;
mod quota;
mod range;
mod repositories;
mod request;
mod served;
mod server;
mod stream;
mod target;
mod upload;
mod users;

pub use limits::{CONNECTIONS_MAX, MEMORY_BYTES_MAX, UPLOADS_MAX};
pub use range::WantedPart;
pub use served::Log;
pub use server::{ServeAccess, ServeError, ServeListen, ServeOptions, Server, TlsFiles};
pub use target::{RepositoryName, RequestTarget};
pub use users::{Login, USERS_FILE_BYTES_MAX, Users, UsersError, users_line};
