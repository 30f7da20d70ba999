//! Whom a server's certificate must be signed by: the authorities of this system, or those in a
//! file that the user named.

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Certificates in `ca_file` (PEM) in place of the system's.
pub fn trusted(ca_file: Option<&Path>) -> io::Result<Vec<CertificateDer<'static>>> {
    let Some(path) = ca_file else {
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            let why = "this system has no certificates of authorities (package ca-certificates), \
                       and no file of them is named";
            return Err(io::Error::other(why));
        }
        return Ok(found.certs);
    };
    let at_file =
        |why: String| io::Error::other(format!("read certificates from {}: {why}", path.display()));
    let read = CertificateDer::pem_file_iter(path);
    let read = read.and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>());
    let certificates = read.map_err(|error| at_file(error.to_string()))?;
    match certificates.is_empty() {
        true => Err(at_file("there is none in it".to_owned())),
        false => Ok(certificates),
    }
}

/// TLS to a server whose certificate one of them signed. Sessions are resumed where the server can.
pub fn client_config(ca_file: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    // A system has a few that nobody can read; a server signed by one of them is refused.
    let (_good, _bad) = roots.add_parsable_certificates(trusted(ca_file)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
