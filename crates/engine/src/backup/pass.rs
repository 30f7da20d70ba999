//! One pass over the stream of a scan: compare, read, pack.

use super::checkpoint::Checkpoints;
use super::commit::Written;
use super::compare::Comparer;
use super::parent::Parent;
use super::queue::ItemSender;
use super::rows::{Finished, RowWriter, Segments};
use super::run::Run;
use super::tally::Tally;
use crate::catalog::{CatalogReader, CatalogWriter};
use crate::error::{Error, Result};
use crate::pack::ChunkWriter;
use crate::read::{Arranged, GroupHasher, SmallReader};
use crate::scan::{Guard, ScanItem};
use std::sync::Arc;
use std::time::Duration;

/// What a pass works with.
pub(super) struct Pass<'a> {
    pub(super) run: &'a Run,
    pub(super) parent: &'a Parent,
    pub(super) store: &'a Arc<ChunkWriter>,
    pub(super) tally: &'a Tally<'a>,
    /// What inodes were is remembered after it.
    pub(super) remembers: bool,
    /// Notices when what is read is written to.
    pub(super) guard: Option<&'a Guard>,
    /// Of a second pass: the catalog that is compared with, as the first one had it.
    pub(super) original: Option<&'a CatalogReader>,
    /// Between two records of the unfinished run; `None`: no records.
    pub(super) checkpoint_every: Option<Option<Duration>>,
}

impl Pass<'_> {
    /// Runs to the end of the stream.
    pub(super) fn run(
        &self,
        items: Box<dyn Iterator<Item = ScanItem> + Send>,
        arranged: Option<Arranged>,
    ) -> Result<Written> {
        let Pass {
            run,
            parent,
            store,
            tally,
            ..
        } = self;
        let repository = run.repository.clone();
        let hasher: GroupHasher = Arc::new(move |contents, hashes| {
            bale_sys::lanes::keyed_hashes(repository.keys().content_key(), contents, hashes);
        });
        let arranged = arranged.map(|arranged| arranged.hashing(hasher));
        let reader = SmallReader::start(None).with_arranged(arranged);
        let (sender, queue) = ItemSender::pair();
        let comparer = Comparer::new(parent, store, &reader, tally)?.telling_asked(self.remembers);
        let segments = Segments((*store).clone());
        let catalog = CatalogWriter::new(parent.catalog.clone(), segments);
        let mut rows =
            RowWriter::new(store, catalog, &reader, tally, run.sources()).recounting(self.original);
        let every = self.checkpoint_every;
        let mut checkpoints = every.map(|every| {
            Checkpoints::new(run, store, tally, self.guard, &parent.index_objects, every)
        });

        let (compared, written) = std::thread::scope(|scope| {
            let comparing = scope.spawn(|| comparer.compare(items, sender));
            let written = rows.write_all(queue, |rows| match &mut checkpoints {
                None => Ok(()),
                Some(checkpoints) => checkpoints.when_due(rows),
            });
            reader.stop();
            let compared = comparing
                .join()
                .map_err(|_| Error::Other("comparing ended by a defect".to_owned()));
            (compared.and_then(|compared| compared), written)
        });
        let interrupted = matches!(written, Err(Error::Interrupted))
            || matches!(compared, Err(Error::Interrupted));
        if interrupted {
            if let Some(checkpoints) = &mut checkpoints {
                // What is finished is kept, so that the next run need not begin anew.
                checkpoints.write_last(&mut rows)?;
            }
            return Err(Error::Interrupted);
        }
        written?;
        let scanned = compared?;
        let Finished { layers, changes } = rows.finish()?;
        Ok(Written {
            scanned,
            layers,
            changes,
        })
    }
}
