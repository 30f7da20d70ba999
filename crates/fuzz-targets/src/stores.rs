//! What servers of stores answer, what clients ask `bale serve`, and where a user says a store is.

use crate::input::{split_text, text};
use bale_cloud::{Answer, Cloud, CloudPlace, refusal};
use bale_remote::HttpUrl;
use bale_remote::ftp::facts::{read_facts, read_listing as read_ftp_listing};
use bale_remote::rest::read_listing as read_rest_listing;
use bale_remote::sftp::wire::{
    PACKET_BYTES_MAX, SftpReply, decode_file_system, decode_len, decode_limits, decode_reply,
    decode_version, shown,
};
use bale_remote::webdav::read_multistatus;
use bale_serve::{Login, RequestTarget, WantedPart};
use std::time::UNIX_EPOCH;

/// A URL as a user writes it: what is accepted keeps its host and path, and shows no password.
pub fn rest_url(data: &[u8]) {
    let text = text(data);
    if let Ok(url) = HttpUrl::parse(text) {
        let base = url.to_string();
        assert!(base.ends_with('/') && !base.contains('@') && !base.contains("/../"));
        assert_eq!(
            HttpUrl::parse(&base).map(|again| again.to_string()),
            Ok(base)
        );
    }
}

/// A listing as a REST server sends it: an error or names, in bounded memory.
pub fn rest_listing(bytes: &[u8]) {
    let mut listed = 0;
    let _ = read_rest_listing(bytes, &mut |name, _| {
        assert!(name.len() <= bytes.len());
        listed += 1;
    });
    // The shortest entry, and what stands between two.
    assert!(listed <= bytes.len() / 20 + 1);
}

/// A listing as a WebDAV server sends it: an error or resources, in bounded memory.
pub fn dav_multistatus(bytes: &[u8]) {
    let mut found = 0;
    let _ = read_multistatus(bytes, &mut |resource| {
        // A reference is at least as long as the letter that it stands for.
        assert!(!resource.href.is_empty() && resource.href.len() <= bytes.len());
        found += 1;
    });
    assert!(found <= bytes.len() / 20);
}

/// Lines of an FTP server's listing: an error or names, each a part of what came.
pub fn ftp_listing(bytes: &[u8]) {
    let mut found = 0;
    let _ = read_ftp_listing(bytes, &mut |entry| {
        assert!(!entry.name.is_empty() && !entry.name.contains('/'));
        found += 1;
    });
    assert!(found <= bytes.len());
    let _ = str::from_utf8(bytes).map(read_facts);
}

/// What an SFTP server sends: the length of a packet, then the packet in every way that it is read.
pub fn sftp_packet(data: &[u8]) {
    if let Some((prefix, packet)) = data.split_first_chunk::<4>() {
        if let Ok(len) = decode_len(*prefix) {
            assert!(len <= PACKET_BYTES_MAX);
        }
        let _ = decode_version(packet);
        if let Ok((_, SftpReply::Extended(bytes))) = decode_reply(packet) {
            let _ = (decode_limits(&bytes), decode_file_system(&bytes));
        }
    }
    assert!(!shown(data).contains(char::is_control));
}

/// The name of a place in a cloud, as a user writes it: what is accepted is written in one way, and
/// leads nowhere else.
pub fn cloud_place(data: &[u8]) {
    let text = text(data);
    for cloud in Cloud::ALL {
        match CloudPlace::parse(cloud, text) {
            Ok(place) => {
                let shown = place.to_string();
                assert!(!shown.contains("/../") && !shown.contains('@'));
                let rest = shown.split_once(':').expect("a scheme").1;
                assert_eq!(CloudPlace::parse(cloud, rest), Ok(place));
            }
            Err(error) => drop(error.to_string()),
        }
    }
}

/// What a server of a cloud answers instead of an object: its kind is one of those that are meant,
/// and its text is short and harmless. The first byte says whether a code and a region come before
/// the body.
pub fn cloud_refusal(data: &[u8]) {
    let Some(([given, status @ ..], rest)) = data.split_first_chunk::<3>() else {
        return;
    };
    let status = u16::from_le_bytes(*status);
    let mut body = rest;
    let mut next_text = |is_given: bool| {
        is_given.then(|| {
            let (text, rest) = split_text(body);
            body = rest;
            text
        })
    };
    let code = next_text(given & 1 != 0);
    let region = next_text(given & 2 != 0);
    let answer = Answer {
        status,
        body,
        code,
        region,
        date: None,
    };
    let refusal = refusal(&answer, UNIX_EPOCH);
    assert!(refusal.text.chars().count() < 1_000);
    assert!(!refusal.text.chars().any(char::is_control));
}

/// What a client sends to `bale serve` and we read ourselves: the path, the range, the login. A
/// path that is accepted is written the same and stays in its directory. A length comes first.
pub fn serve_request(data: &[u8]) {
    let Some((len, rest)) = data.split_first_chunk() else {
        return;
    };
    let len = u64::from_le_bytes(*len);
    let (path, rest) = split_text(rest);
    let header = text(rest);
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
}
