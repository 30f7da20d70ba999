//! `bale serve`

use crate::args::{Global, Serve};
use crate::exit::{self, Usage};
use crate::named_paths::NamedPath;
use crate::{interrupt, output, secrets, sizes};
use anyhow::{Context, Result};
use bale_serve::{
    ServeAccess, ServeError, ServeListen, ServeOptions, Server, TlsFiles, USERS_FILE_BYTES_MAX,
    Users, users_line,
};
use serde_json::json;
use std::io::{BufRead, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// Where this machine alone reaches us.
const USUAL_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8000);

/// Bytes of a password at most.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// Serves a directory until it is told to end, or prints the line of a password file.
pub fn run(global: &Global, options: &Serve) -> Result<i32> {
    if let Some(user) = &options.hash_password {
        let line = users_line(user, &new_password()?);
        output::line(&line.map_err(|error| Usage(error.to_string()))?);
        return Ok(exit::COMPLETE);
    }
    let dir = options.dir.clone();
    let dir = dir.ok_or_else(|| Usage("name the directory to serve".to_owned()))?;
    let bytes_max = options
        .max_size
        .as_deref()
        .map(sizes::parse_bytes)
        .transpose()?;
    let tls = options.tls_cert.clone().zip(options.tls_key.clone());
    let scheme = if tls.is_some() { "https" } else { "http" };
    let serve_options = ServeOptions {
        access: access(options)?,
        dir,
        listen: listen(options)?,
        is_append_only: options.append_only,
        is_private: options.private,
        tls: tls.map(|(certificates, key)| TlsFiles { certificates, key }),
        bytes_max,
        checks_hashes: true,
    };
    let log = Arc::new(|line: &str| report!("bale: {}", output::escape(line.as_bytes())));
    let server = Server::bind(serve_options, log).map_err(|error| match error {
        error @ (ServeError::OpenToAll(_) | ServeError::PrivateWithoutUsers) => {
            anyhow::Error::from(Usage(error.to_string()))
        }
        error => error.into(),
    })?;
    let address = server.address();
    let url = format!("{scheme}://{address}/");
    if global.json {
        output::object(&json!({ "type": "serving", "url": url, "address": address.to_string() }));
    } else if !global.quiet {
        report!("Serving at {url} (bale -r rest:{url}NAME). Ctrl-C or SIGTERM ends it");
    }
    if options.tls_cert.is_none() && !address.ip().is_loopback() {
        report!(
            "bale: passwords travel without encryption: give --tls-cert and --tls-key, or put a \
             proxy with https in front"
        );
    }
    server.run(interrupt::is_requested)?;
    Ok(exit::COMPLETE)
}

/// The socket that systemd holds for us, if it does.
fn listen(options: &Serve) -> Result<ServeListen> {
    let inherited = listenfd::ListenFd::from_env().take_tcp_listener(0);
    match (
        inherited.context("take the socket that we were started with")?,
        options.listen,
    ) {
        (Some(_), Some(_)) => Err(Usage(
            "--listen contradicts the socket that this was started with (LISTEN_FDS): name the \
             address in the socket unit alone"
                .to_owned(),
        )
        .into()),
        (Some(listener), None) => Ok(ServeListen::Inherited(listener)),
        (None, given) => Ok(ServeListen::Address(given.unwrap_or(USUAL_ADDRESS))),
    }
}

fn access(options: &Serve) -> Result<ServeAccess> {
    match &options.password_file {
        Some(path) => Ok(ServeAccess::Users(users(path)?)),
        None if options.no_auth => Ok(ServeAccess::Anybody),
        None => Err(Usage(
            "say who may come in: --password-file FILE with lines of bale serve --hash-password \
             USER, or --no-auth for everybody on this machine"
                .to_owned(),
        )
        .into()),
    }
}

fn users(path: &Path) -> Result<Users> {
    let file = NamedPath {
        by: "--password-file",
        attempt: "read users from",
        path,
        advice: "Name a file with lines of USER:HASH, as bale serve --hash-password USER prints \
            them",
    };
    let mut text = String::new();
    let opened = std::fs::File::open(path).map_err(|error| file.trouble(error))?;
    (opened
        .take(USERS_FILE_BYTES_MAX + 1)
        .read_to_string(&mut text))
    .map_err(|error| file.trouble(error))?;
    if text.len() as u64 > USERS_FILE_BYTES_MAX {
        return Err(file.trouble("it is too long"));
    }
    Users::parse(&text).map_err(|error| file.trouble(error))
}

fn new_password() -> Result<String> {
    if secrets::can_prompt() {
        return secrets::new_password(None, "");
    }
    let mut line = String::new();
    let input = std::io::stdin().lock().take(PASSWORD_BYTES_MAX);
    let mut input = std::io::BufReader::new(input);
    input
        .read_line(&mut line)
        .context("read the password from standard input")?;
    let password = line.trim_end_matches(['\n', '\r']);
    match password.is_empty() {
        true => Err(Usage("an empty password protects nothing".to_owned()).into()),
        false => Ok(password.to_owned()),
    }
}
