//! `bale export`

use super::{cold, select};
use crate::args::{Export, Global};
use crate::exit::Usage;
use crate::progress::Console;
use crate::{exit, output, place, sizes};
use anyhow::{Context, Result};
use bale_engine::dump::options_of;
use bale_engine::export::{
    ExportOptions, ExportReport, ImageExport, open_images, open_overlay, serve_images,
};
use bale_nbd::{NbdExport, NbdServerAddress, NbdUri};
use serde_json::json;
use std::ffi::OsStr;
use std::net::ToSocketAddrs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Serves images until it is interrupted; exit 3 if something could not be read.
pub fn run(global: &Global, options: &Export) -> Result<i32> {
    let address = address(&options.nbd, options.allow_network)?;
    let repository = place::open(global)?;
    let (select, json) = (&options.select, global.json);
    let chosen = select::choose_to_restore(&repository, &options.address, select, json)?;
    let console = Console::new(global).naming_whole_paths();
    let scratch = place::scratch(&repository)?;
    if options.cold.plan {
        let reads = options_of(&chosen.path);
        return cold::print_plan(&repository, &chosen.named, &reads, &scratch, &console);
    }
    let warmer = cold::warmer(&repository, &options.cold)?;
    let (snapshot, path) = (&chosen.named, &chosen.path);
    let (images, unreadable) =
        open_images(&repository, snapshot, path, warmer, &scratch, &console)?;
    let is_whole = images.iter().all(|image| is_whole(image, json));
    let overlay = match &options.overlay {
        None => None,
        Some(_) if images.len() > 1 => {
            let text = "--overlay is of one image, and this snapshot holds several: SNAP:/IMAGE";
            return Err(Usage(text.to_owned()).into());
        }
        Some(file) => Some(open_overlay(&repository, snapshot, &images[0], file)?),
    };
    let exports = match &overlay {
        Some(overlay) => vec![overlay.clone() as Arc<dyn NbdExport>],
        None => images
            .iter()
            .map(|image| image.clone() as Arc<dyn NbdExport>)
            .collect(),
    };
    let served = ExportOptions {
        address,
        is_once: options.once,
    };
    let mut started = |uris: &[NbdUri]| started(&images, uris, global);
    let report = serve_images(&images, exports, &served, &console, &mut started);
    console.finish();
    if let Some(overlay) = &overlay {
        overlay.flush().context("make the overlay durable")?;
    }
    let mut report = report?;
    report.problems += unreadable;
    summary(&report, global);
    Ok(match report.problems == 0 && is_whole {
        true => exit::COMPLETE,
        false => exit::INCOMPLETE,
    })
}

/// `unix:SOCKET` or `HOST:PORT`.
fn address(text: &OsStr, allow_network: bool) -> Result<NbdServerAddress> {
    if let Some(path) = text.as_bytes().strip_prefix(b"unix:") {
        let path = Path::new(OsStr::from_bytes(path));
        if path.as_os_str().is_empty() {
            return Err(
                Usage("--nbd unix: names no socket: unix:/run/disk.sock".to_owned()).into(),
            );
        }
        // Clients run elsewhere.
        let path = std::path::absolute(path).with_context(|| output::path(path))?;
        return Ok(NbdServerAddress::Unix(path));
    }
    let shown = output::escape(text.as_bytes());
    let not_understood = || {
        Usage(format!(
            "--nbd {shown}: neither unix:SOCKET nor HOST:PORT (localhost:10809, [::1]:10809)"
        ))
    };
    let text = text.to_str().ok_or_else(not_understood)?;
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(not_understood().into());
    };
    let port: u16 = port.parse().map_err(|_| not_understood())?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let found = (host, port).to_socket_addrs();
    let mut found = found.with_context(|| format!("--nbd {shown}: find the host"))?;
    let found = found.next().ok_or_else(not_understood)?;
    match (found.ip().is_loopback(), allow_network) {
        (true, _) => Ok(NbdServerAddress::Loopback(found)),
        (false, true) => Ok(NbdServerAddress::Anywhere(found)),
        (false, false) => Err(Usage(format!(
            "--nbd {shown}: other machines reach this address, and whoever does could read the \
             images. Name localhost or unix:SOCKET, or say --allow-network if it is meant"
        ))
        .into()),
    }
}

/// Says what the backup did not have; false if anything.
fn is_whole(image: &ImageExport, json: bool) -> bool {
    let path = [b"/", image.path()].concat();
    let shown = output::escape(&path);
    if image.is_fuzzy() {
        note(
            &format!("{shown} is fuzzy: it was in use, and may be of several moments"),
            json,
        );
    }
    if image.is_incomplete() {
        note(
            &format!("{shown} is incomplete: what the backup could not read of it is zeros"),
            json,
        );
    }
    !image.is_incomplete()
}

fn note(text: &str, json: bool) {
    match json {
        true => output::object(&json!({"type": "note", "message": text})),
        false => report!("bale: {text}"),
    }
}

/// Where each image is. Fields: docs/SCRIPTING.md.
fn started(images: &[Arc<ImageExport>], uris: &[NbdUri], global: &Global) {
    for (image, uri) in images.iter().zip(uris) {
        if global.json {
            let mut value = json!({"type": "export", "uri": uri.to_string(), "size": image.size()});
            output::put_path(&mut value, "path", &[b"/", image.path()].concat());
            output::object(&value);
        } else {
            output::line(&uri.to_string());
        }
    }
    if !global.json && !global.quiet {
        report!("bale: serving; Ctrl-C ends it");
    }
}

fn summary(report: &ExportReport, global: &Global) {
    if global.json {
        output::object(&json!({
            "type": "summary", "clients": report.clients, "bytes_read": report.bytes_read,
            "problems": report.problems,
        }));
    } else if !global.quiet {
        report!(
            "served {} to {}{}",
            sizes::bytes(report.bytes_read),
            sizes::counted(report.clients, "client"),
            match report.problems {
                0 => String::new(),
                problems => format!("; {}", sizes::counted(problems, "problem")),
            }
        );
    }
}
