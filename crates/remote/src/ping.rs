//! A ping: one request to an address that a user named, so that somebody elsewhere learns that
//! something happened here, or notices that nothing did.

use crate::http::url::HttpUrl;
use crate::http::{HttpClient, HttpOptions, HttpTransport};
use http::Method;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Until a connection stands, and between two bytes.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Sends `body` to the address, with `suffix` behind its path (`start`, `fail`, or nothing). An
/// answer that is no success is an error.
pub fn ping(address: &str, suffix: &str, body: &[u8], ca_file: Option<PathBuf>) -> io::Result<()> {
    let (path, query) = match address.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (address, None),
    };
    let url = HttpUrl::parse_escaped(path).map_err(io::Error::other)?;
    let options = HttpOptions {
        ca_file,
        connect_timeout: SILENCE_MAX,
        idle_timeout: SILENCE_MAX,
        ..HttpOptions::default()
    };
    let client = HttpClient::new(&url, &options)?.without_private_places();
    let mut text = url.of(suffix).trim_end_matches('/').to_owned();
    if let Some(query) = query {
        text.push('?');
        text.push_str(query);
    }
    let answer = client.request(&Method::POST, &text, &[], Some(body))?;
    match answer.status().is_success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "the server answers {}",
            answer.status()
        ))),
    }
}
