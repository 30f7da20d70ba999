//! Counters, and their text for Prometheus. They name no repository and no user.

use crate::quota::Quota;
use hyper::{Method, StatusCode};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

const METHODS: [&str; 5] = ["GET", "HEAD", "POST", "DELETE", "other"];
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// What the server did since it started.
#[derive(Default)]
pub struct Metrics {
    requests: [[AtomicU64; CLASSES.len()]; METHODS.len()],
    /// Bytes of objects that were stored.
    pub stored_bytes: AtomicU64,
    /// Bytes of objects that were read to be sent.
    pub sent_bytes: AtomicU64,
    /// Connections that stand.
    pub connections: AtomicU64,
    /// Requests with a wrong password, or with none.
    pub refused_logins: AtomicU64,
    /// Bodies that had another hash than their name.
    pub refused_hashes: AtomicU64,
    /// What listings have met that is no object.
    pub foreign_entries: AtomicU64,
}

impl Metrics {
    /// A request was answered.
    pub fn count(&self, method: &Method, status: StatusCode) {
        let name = METHODS.iter().position(|name| *name == method.as_str());
        let class = usize::from(status.as_u16() / 100).saturating_sub(2);
        let counter = &self.requests[name.unwrap_or(METHODS.len() - 1)];
        counter[class.min(CLASSES.len() - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// The text format of Prometheus.
    pub fn text(&self, quota: &Quota) -> String {
        let mut text = String::new();
        text.push_str(&head("requests_total", "counter", "Requests answered."));
        for (method, classes) in METHODS.iter().zip(&self.requests) {
            for (class, count) in CLASSES.iter().zip(classes) {
                let count = count.load(Ordering::Relaxed);
                let labels = format!("method=\"{method}\",status=\"{class}\"");
                let _ = writeln!(text, "bale_serve_requests_total{{{labels}}} {count}");
            }
        }
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (used, max) = quota.state().unzip();
        let stored = Some(load(&self.stored_bytes));
        let sent = Some(load(&self.sent_bytes));
        let connections = Some(load(&self.connections));
        let logins = Some(load(&self.refused_logins));
        let hashes = Some(load(&self.refused_hashes));
        let foreign = Some(load(&self.foreign_entries));
        for (name, kind, help, value) in [
            (
                "stored_bytes_total",
                "counter",
                "Bytes of objects stored.",
                stored,
            ),
            (
                "sent_bytes_total",
                "counter",
                "Bytes of objects sent.",
                sent,
            ),
            (
                "connections",
                "gauge",
                "Connections that stand.",
                connections,
            ),
            (
                "refused_logins_total",
                "counter",
                "Requests without a right password.",
                logins,
            ),
            (
                "refused_hashes_total",
                "counter",
                "Uploads with another hash than their name.",
                hashes,
            ),
            (
                "foreign_entries_total",
                "counter",
                "Links and other things in listings that are no objects.",
                foreign,
            ),
            ("used_bytes", "gauge", "Bytes of all repositories.", used),
            (
                "max_bytes",
                "gauge",
                "Bytes that repositories may have.",
                max,
            ),
        ] {
            if let Some(value) = value {
                text.push_str(&head(name, kind, help));
                let _ = writeln!(text, "bale_serve_{name} {value}");
            }
        }
        text
    }
}

fn head(name: &str, kind: &str, help: &str) -> String {
    format!("# HELP bale_serve_{name} {help}\n# TYPE bale_serve_{name} {kind}\n")
}
