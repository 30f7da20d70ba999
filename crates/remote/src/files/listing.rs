//! Listings: several directories at once, each streamed, what is foreign told from objects, and
//! nothing taken for empty that is only missing.

use super::{Core, FileInfo, RemoteFiles, object_info};
use crate::areas::is_own_name;
use bale_format::id::{from_hex, hex};
use bale_repository::store::{Area, ForeignEntry, ForeignKind, ObjectInfo, ObjectName};
use crossbeam_channel::{Sender, bounded};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Directories of unfinished runs: few.
const RUNS_MAX: usize = 1 << 16;

/// What was met and is not handed on yet.
const MET_AHEAD_MAX: usize = 1 << 10;

/// Of what stands in the place of objects in one directory, so much is looked at more closely.
const IN_THE_WAY_MAX: usize = 1 << 10;

/// Something in a directory of objects.
pub(super) enum Met {
    Object(ObjectInfo),
    Foreign(ForeignEntry),
}

/// What a listing is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListedFor {
    Objects,
    /// A look at what stands in the place of objects.
    Foreign,
}

impl<F: RemoteFiles> Core<F> {
    pub(super) fn list_area(
        &self,
        area: Area,
        aim: ListedFor,
        met: &mut dyn FnMut(Met),
    ) -> io::Result<()> {
        match area {
            // Nobody removes these: one that is not found is an error.
            Area::Packs => {
                let dirs = self.child_dirs::<1>(area, met)?;
                self.list_dirs(&dirs, false, aim, met)
            }
            // A run that ends meanwhile takes its directory with it.
            area if area.is_by_run() => {
                let dirs = self.child_dirs::<16>(area, met)?;
                self.list_dirs(&dirs, true, aim, met)
            }
            area => match self.list_dir(area.text(), aim, met) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.check_may_be_missing(area)
                }
                listed => listed,
            },
        }
    }

    /// What stands in the place of `config` or its copy.
    pub(super) fn foreign_single(&self, name: &ObjectName) -> io::Result<Option<ForeignEntry>> {
        let path = name.path();
        match self.files.stat(&path)? {
            Some(FileInfo { len: None, .. }) => self.in_the_way(path).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    /// What has the name of an object and is no file.
    fn in_the_way(&self, path: String) -> io::Result<ForeignEntry> {
        let kind = match self.files.is_dir(&path)? {
            true => ForeignKind::Directory,
            false => ForeignKind::Link,
        };
        Ok(ForeignEntry { path, kind })
    }

    fn list_dir(&self, dir: &str, aim: ListedFor, met: &mut dyn FnMut(Met)) -> io::Result<()> {
        let mut in_the_way = Vec::new();
        self.files.list(dir, &mut |name: &str, there: FileInfo| {
            let path = format!("{dir}/{name}");
            match ObjectName::parse(&path) {
                Some(name) => match object_info(name, there) {
                    Some(info) => met(Met::Object(info)),
                    None if in_the_way.len() < IN_THE_WAY_MAX => in_the_way.push(path),
                    None => met(Met::Foreign(ForeignEntry {
                        path,
                        kind: ForeignKind::Link,
                    })),
                },
                None if is_own_name(dir, name) => {}
                None => met(Met::Foreign(ForeignEntry {
                    path,
                    kind: ForeignKind::Name,
                })),
            }
        })?;
        for path in in_the_way.into_iter().filter(|_| aim == ListedFor::Foreign) {
            met(Met::Foreign(self.in_the_way(path)?));
        }
        Ok(())
    }

    fn list_dirs(
        &self,
        dirs: &[String],
        may_be_gone: bool,
        aim: ListedFor,
        met: &mut dyn FnMut(Met),
    ) -> io::Result<()> {
        let (sender, all_met) = bounded::<Met>(MET_AHEAD_MAX);
        let next = AtomicUsize::new(0);
        let threads = self.files.dirs_at_once().clamp(1, dirs.len().max(1));
        let work = |sender: &Sender<Met>| {
            while let Some(dir) = dirs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut send = |met| drop(sender.send(met));
                match self.list_dir(dir, aim, &mut send) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    Err(_) if !may_be_gone => {
                        let text = format!("{dir} is listed, and not found");
                        return Err(io::Error::other(text));
                    }
                    Ok(()) | Err(_) => {}
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    let (sender, work, next) = (sender.clone(), &work, &next);
                    scope.spawn(move || {
                        let done = work(&sender);
                        if done.is_err() {
                            // The others need not go on.
                            next.store(dirs.len(), Ordering::Relaxed);
                        }
                        done
                    })
                })
                .collect();
            drop(sender);
            all_met.iter().for_each(met);
            // The first error of any.
            let mut listed = Ok(());
            for worker in workers {
                let ended = worker.join();
                let ended = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                listed = listed.and(ended);
            }
            listed
        })
    }

    /// Directories of `N` bytes in hexadecimal digits.
    fn child_dirs<const N: usize>(
        &self,
        area: Area,
        met: &mut dyn FnMut(Met),
    ) -> io::Result<Vec<String>> {
        let mut dirs = BTreeSet::new();
        let mut too_many = false;
        let listed = self.files.list(area.text(), &mut |name, there| {
            let kind = match (from_hex::<N>(name), there.len) {
                (Ok(id), None) => {
                    too_many |= dirs.len() >= RUNS_MAX;
                    if !too_many {
                        dirs.insert(format!("{}/{}", area.text(), hex(&id)));
                    }
                    return;
                }
                (Ok(_), Some(_)) => ForeignKind::File,
                (Err(_), _) if is_own_name(area.text(), name) => return,
                (Err(_), _) => ForeignKind::Name,
            };
            let path = format!("{}/{name}", area.text());
            met(Met::Foreign(ForeignEntry { path, kind }));
        });
        match listed {
            Err(error) if error.kind() == ErrorKind::NotFound => self.check_may_be_missing(area)?,
            listed => listed?,
        }
        match too_many {
            true => Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("the server lists more than {RUNS_MAX} directories in {area}"),
            )),
            false => Ok(dirs.into_iter().collect()),
        }
    }
}
