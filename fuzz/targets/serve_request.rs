//! What a client sends to `bale serve` and we read ourselves: the path, the range, the login. A
//! path that is accepted is written the same and stays in its directory.

#![no_main]

use bale_serve::{Login, RequestTarget, WantedPart};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str, u64)| {
    let (path, header, len) = input;
    if let Some(target) = RequestTarget::parse(path) {
        let base = target.repository().map_or(String::new(), |name| {
            assert!(
                name.parts()
                    .all(|part| !part.contains('.') && !part.is_empty())
            );
            let slash = if name.as_str().is_empty() { "" } else { "/" };
            format!("/{}{slash}", name.as_str())
        });
        let written = match &target {
            RequestTarget::Metrics => "/metrics".to_owned(),
            RequestTarget::Repository(_) => base,
            RequestTarget::Area(_, area) => format!("{base}{area}/"),
            RequestTarget::Object(_, name) => format!("{base}{name}"),
        };
        assert_eq!(written, path);
    }
    if let WantedPart::Part { offset, len: part } = WantedPart::parse(Some(header), len) {
        assert!(part > 0 && offset.checked_add(part).is_some_and(|end| end <= len));
    }
    let _ = Login::parse(header);
});
