//! `bale stats --mode`: what the chosen snapshots would restore, what of the repository is theirs,
//! and whose.

use crate::args::{Global, Stats, StatsMode};
use crate::commands::{select, unmatched, unread_index};
use crate::exit::{self, Usage};
use crate::progress::Console;
use crate::times::{local_time, time_text};
use crate::{output, sizes};
use anyhow::Result;
use bale_engine::used::{ChunkTotals, exclusive_chunks};
use bale_format::snapshot::Totals;
use bale_repository::repository::{Named, Repository};
use bale_repository::snapshots::Address;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

/// Of the snapshot that is named, or of all that the options choose.
pub fn run(
    global: &Global,
    repository: &Repository,
    options: &Stats,
    mode: StatsMode,
) -> Result<i32> {
    if mode != StatsMode::RestoreSize {
        // Chunks are counted by it.
        unread_index::report(repository, global.json)?;
    }
    let (chosen, rest) = choose(global, repository, options, mode)?;
    let count = Count {
        global,
        repository,
        chosen,
        rest,
    };
    match mode {
        StatsMode::RestoreSize => count.restore_size(),
        StatsMode::Stored => count.stored()?,
        StatsMode::Unique => count.unique()?,
        StatsMode::BySource => count.by_source()?,
    }
    Ok(exit::COMPLETE)
}

/// The chosen snapshots, and all others with unfinished runs: what these use stays, too.
fn choose(
    global: &Global,
    repository: &Repository,
    options: &Stats,
    mode: StatsMode,
) -> Result<(Vec<Named>, Vec<Named>)> {
    let listed = select::Listed::of(repository)?;
    if let Some(address) = &options.address {
        if !Address::parse(address.as_bytes()).path.is_empty() {
            let word = mode.word();
            let text = format!(
                "--mode {word} counts whole snapshots: leave out the path, or the mode, to count \
                 what a restore of it would bring"
            );
            return Err(Usage(text).into());
        }
        let (id, _) = listed.choose(address, &options.select, global.json)?.named;
        return Ok(listed
            .all()
            .into_iter()
            .partition(|(other, _)| *other == id));
    }
    let filter = select::filter(&options.select.select);
    let all = listed.all();
    unmatched::report(global, &options.select.select, &all);
    Ok(all
        .into_iter()
        .partition(|(_, snapshot)| filter.passes(snapshot)))
}

struct Count<'a> {
    global: &'a Global,
    repository: &'a Repository,
    chosen: Vec<Named>,
    rest: Vec<Named>,
}

impl Count<'_> {
    fn restore_size(&self) {
        let mut totals = Totals::default();
        for (_, snapshot) in &self.chosen {
            totals.files += snapshot.totals.files;
            totals.dirs += snapshot.totals.dirs;
            totals.others += snapshot.totals.others;
            totals.bytes += snapshot.totals.bytes;
            totals.hard_links += snapshot.totals.hard_links;
        }
        if self.global.json {
            return output::object(&json!({
                "type": "summary", "mode": StatsMode::RestoreSize.word(),
                "snapshots": self.chosen.len(), "files": totals.files, "dirs": totals.dirs,
                "others": totals.others, "bytes": totals.bytes, "hard_links": totals.hard_links,
            }));
        }
        super::print_line("snapshots", &sizes::count(self.chosen.len() as u64));
        super::print_totals(&totals);
    }

    fn stored(&self) -> Result<()> {
        let [of_chosen] = self.exclusive([self.chosen.clone()])?;
        if self.global.json {
            let mut value = json!({
                "type": "summary", "mode": StatsMode::Stored.word(),
                "snapshots": self.chosen.len(),
            });
            put(&mut value, "", &of_chosen);
            output::object(&value);
            return Ok(());
        }
        super::print_line("snapshots", &sizes::count(self.chosen.len() as u64));
        super::print_line("chunks", &sizes::count(of_chosen.chunks));
        super::print_line("stored", &of_plain(&of_chosen));
        Ok(())
    }

    fn unique(&self) -> Result<()> {
        let mut groups: Vec<Vec<Named>> = self.chosen.iter().map(|one| vec![one.clone()]).collect();
        groups.push(self.rest.clone());
        let each = exclusive_chunks(self.repository, &groups, &self.console())?;
        let [together, _] = self.exclusive([self.chosen.clone(), self.rest.clone()])?;
        let is_table = !self.global.json && !self.global.quiet && !self.chosen.is_empty();
        if is_table {
            output::line(&format!(
                "{:<8}  {:<19}  {:>10}  Host, paths",
                "ID", "Time", "Unique"
            ));
        }
        for ((id, snapshot), own) in self.chosen.iter().zip(&each) {
            if self.global.json {
                let mut value = json!({
                    "type": "unique", "snapshot": id.to_string(),
                    "time": time_text(snapshot.time), "host": snapshot.host,
                });
                put_paths(&mut value, snapshot.paths.iter().map(|path| &path.0[..]));
                put(&mut value, "", own);
                output::object(&value);
                continue;
            }
            let source = Source::of(snapshot);
            output::line(&format!(
                "{:<8}  {}  {:>10}  {}",
                id.short(),
                local_time(snapshot.time),
                sizes::bytes(own.bytes_stored),
                source.text()
            ));
        }
        if self.global.json {
            let mut value = json!({
                "type": "summary", "mode": StatsMode::Unique.word(),
                "snapshots": self.chosen.len(),
            });
            put(&mut value, "", &together);
            output::object(&value);
        } else if !self.global.quiet {
            report!(
                "forgetting {} would free {}, once a prune has deleted it",
                match self.chosen.len() {
                    1 => "it".to_owned(),
                    count => format!("all {count}"),
                },
                sizes::bytes(together.bytes_stored)
            );
        }
        Ok(())
    }

    fn by_source(&self) -> Result<()> {
        let mut sources: BTreeMap<Source, Vec<Named>> = BTreeMap::new();
        for named in &self.chosen {
            let group = sources.entry(Source::of(&named.1)).or_default();
            group.push(named.clone());
        }
        let mut groups: Vec<Vec<Named>> = sources.values().cloned().collect();
        groups.push(self.rest.clone());
        let unique = exclusive_chunks(self.repository, &groups, &self.console())?;
        if !self.global.json && !self.global.quiet && !sources.is_empty() {
            output::line(&format!(
                "{:>9}  {:<19}  {:>10}  {:>10}  {:>10}  Host, paths",
                "Snapshots", "Newest", "Restores", "Stored", "Unique"
            ));
        }
        for ((source, snapshots), unique) in sources.iter().zip(&unique) {
            let [stored] = self.exclusive([snapshots.clone()])?;
            self.print_source(source, snapshots, &stored, unique);
        }
        let [all] = self.exclusive([self.chosen.clone()])?;
        if self.global.json {
            let mut value = json!({
                "type": "summary", "mode": StatsMode::BySource.word(), "sources": sources.len(),
                "snapshots": self.chosen.len(),
            });
            put(&mut value, "", &all);
            output::object(&value);
        } else if !self.global.quiet {
            report!(
                "{}, {}, {} stored",
                sizes::counted(sources.len() as u64, "source"),
                sizes::counted(self.chosen.len() as u64, "snapshot"),
                of_plain(&all)
            );
        }
        Ok(())
    }

    fn print_source(
        &self,
        source: &Source,
        snapshots: &[Named],
        stored: &ChunkTotals,
        unique: &ChunkTotals,
    ) {
        let newest = snapshots.iter().max_by_key(|(_, snapshot)| snapshot.time);
        let (_, newest) = newest.expect("a source is one of a snapshot");
        if self.global.json {
            let mut value = json!({
                "type": "source", "host": source.host, "snapshots": snapshots.len(),
                "newest": time_text(newest.time), "files": newest.totals.files,
                "bytes": newest.totals.bytes,
            });
            put_paths(&mut value, source.paths.iter().map(Vec::as_slice));
            put(&mut value, "", stored);
            put(&mut value, "unique_", unique);
            return output::object(&value);
        }
        output::line(&format!(
            "{:>9}  {}  {:>10}  {:>10}  {:>10}  {}",
            sizes::count(snapshots.len() as u64),
            local_time(newest.time),
            sizes::bytes(newest.totals.bytes),
            sizes::bytes(stored.bytes_stored),
            sizes::bytes(unique.bytes_stored),
            source.text()
        ));
    }

    fn exclusive<const N: usize>(&self, groups: [Vec<Named>; N]) -> Result<[ChunkTotals; N]> {
        let totals = exclusive_chunks(self.repository, &groups, &self.console())?;
        Ok(totals.try_into().expect("one for each group"))
    }

    fn console(&self) -> Console {
        Console::new(self.global)
    }
}

/// Whose snapshots belong together.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    host: String,
    paths: Vec<Vec<u8>>,
}

impl Source {
    fn of(snapshot: &bale_format::Snapshot) -> Source {
        Source {
            host: snapshot.host.clone(),
            paths: snapshot.paths.iter().map(|path| path.0.to_vec()).collect(),
        }
    }

    fn text(&self) -> String {
        let paths = self.paths.iter().map(|path| output::escape(path));
        let words = std::iter::once(output::escape(self.host.as_bytes())).chain(paths);
        words.collect::<Vec<_>>().join(" ")
    }
}

fn of_plain(totals: &ChunkTotals) -> String {
    format!(
        "{} of {}",
        sizes::bytes(totals.bytes_stored),
        sizes::bytes(totals.bytes_plain)
    )
}

fn put(value: &mut Value, prefix: &str, totals: &ChunkTotals) {
    value[format!("{prefix}chunks")] = json!(totals.chunks);
    value[format!("{prefix}bytes_plain")] = json!(totals.bytes_plain);
    value[format!("{prefix}bytes_stored")] = json!(totals.bytes_stored);
}

fn put_paths<'p>(value: &mut Value, paths: impl Iterator<Item = &'p [u8]> + Clone) {
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    value["paths"] = json!(paths.clone().map(text).collect::<Vec<_>>());
    let exact =
        paths.map(|path| serde_json::to_value(bale_format::snapshot::PathText(path.to_vec())));
    value["paths_b64"] = exact.map(Result::unwrap_or_default).collect();
}
