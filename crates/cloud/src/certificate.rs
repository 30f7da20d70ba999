//! Why a server's certificate is refused, in words that say what to do.

use rustls::CertificateError;

/// How one is made that is its own authority and no authority's: `openssl req -x509` makes
/// authorities, unless it is told not to.
pub const HOW_TO_MAKE: &str = "openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -keyout \
    key.pem -out cert.pem -subj /CN=HOST -addext basicConstraints=critical,CA:FALSE -addext \
    subjectAltName=DNS:HOST,IP:ADDRESS";

/// The words for it.
pub fn refused_certificate_text(why: &CertificateError) -> String {
    let refused = "the server's certificate is refused";
    let name_it = "--ca-file or BALE_CA_FILE names the file";
    // The library hands it on as another's error, of which nothing but its name is known.
    if format!("{why:?}").contains("CaUsedAsEndEntity") {
        return format!(
            "{refused}: it was made as that of an authority (CA:TRUE), and none of those may stand \
             for a server (CaUsedAsEndEntity). Make it anew, with HOST and ADDRESS as clients name \
             the server: {HOW_TO_MAKE}; {name_it} of that certificate here. Or have the authority \
             sign one for the server, and {name_it} of the authority's"
        );
    }
    match why {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "{refused}: it is not made for the name or the address by which the server is \
                 named here ({why}): they must stand in its subjectAltName"
            )
        }
        why => format!(
            "{refused}: {why:?}. If it is signed by an authority of your own, or by itself, \
             {name_it} of that certificate"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::OtherError;
    use std::sync::Arc;

    #[derive(Debug, thiserror::Error)]
    #[error("of the library")]
    struct CaUsedAsEndEntity;

    #[test]
    fn an_authoritys_certificate_is_refused_with_the_command_that_makes_another() {
        let why = CertificateError::Other(OtherError(Arc::new(CaUsedAsEndEntity)));
        let text = refused_certificate_text(&why);
        for part in [
            "as that of an authority",
            "openssl req -x509",
            "CA:FALSE",
            "--ca-file",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let unknown = refused_certificate_text(&CertificateError::UnknownIssuer);
        assert!(unknown.contains("UnknownIssuer") && unknown.contains("BALE_CA_FILE"));
        assert!(!unknown.contains("openssl"), "{unknown}");
        let other_name = refused_certificate_text(&CertificateError::NotValidForName);
        assert!(other_name.contains("subjectAltName"), "{other_name}");
    }
}
