//! Listings: several directories at once, each streamed, what is foreign skipped, and nothing taken
//! for empty that is only missing.

use super::{Core, FileInfo, RemoteFiles, object_info};
use bale_format::id::{from_hex, hex};
use bale_repository::store::{Area, ObjectInfo, ObjectName};
use crossbeam_channel::{Sender, bounded};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Directories of unfinished runs: few.
const RUNS_MAX: usize = 1 << 16;

/// Objects that are found and not handed on yet.
const FOUND_AHEAD_MAX: usize = 1 << 10;

impl<F: RemoteFiles> Core<F> {
    pub(super) fn list_area(
        &self,
        area: Area,
        found: &mut dyn FnMut(ObjectInfo),
    ) -> io::Result<()> {
        match area {
            // Nobody removes these: one that is not found is an error.
            Area::Packs => {
                let dirs = self.child_dirs::<1>(area)?;
                self.list_dirs(&dirs, false, found)
            }
            // A run that ends meanwhile takes its directory with it.
            area if area.is_by_run() => {
                let dirs = self.child_dirs::<16>(area)?;
                self.list_dirs(&dirs, true, found)
            }
            area => match self.list_dir(area.text(), found) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.check_may_be_missing(area)
                }
                listed => listed,
            },
        }
    }

    fn list_dir(&self, dir: &str, found: &mut dyn FnMut(ObjectInfo)) -> io::Result<()> {
        self.files.list(dir, &mut |name: &str, there: FileInfo| {
            if let Some(name) = ObjectName::parse(&format!("{dir}/{name}"))
                && let Some(info) = object_info(name, there)
            {
                found(info);
            }
        })
    }

    fn list_dirs(
        &self,
        dirs: &[String],
        may_be_gone: bool,
        found: &mut dyn FnMut(ObjectInfo),
    ) -> io::Result<()> {
        let (sender, objects) = bounded::<ObjectInfo>(FOUND_AHEAD_MAX);
        let next = AtomicUsize::new(0);
        let threads = self.files.dirs_at_once().clamp(1, dirs.len().max(1));
        let work = |sender: &Sender<ObjectInfo>| {
            while let Some(dir) = dirs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut send = |info| drop(sender.send(info));
                match self.list_dir(dir, &mut send) {
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
            objects.iter().for_each(found);
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
    fn child_dirs<const N: usize>(&self, area: Area) -> io::Result<Vec<String>> {
        let mut dirs = BTreeSet::new();
        let mut too_many = false;
        let listed = self.files.list(area.text(), &mut |name, there| {
            if let Ok(id) = from_hex::<N>(name)
                && there.len.is_none()
            {
                too_many |= dirs.len() >= RUNS_MAX;
                if !too_many {
                    dirs.insert(format!("{}/{}", area.text(), hex(&id)));
                }
            }
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
