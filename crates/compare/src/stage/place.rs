//! Where a run works: caches cold, file systems mounted or not as the work needs them.

use std::fs;
use std::path::PathBuf;

use super::super::adapters::Adapter;
use super::super::circumstances;
use super::super::error::{Result, at_path};
use super::super::options::Case;
use super::super::source::make_ext4;
use super::super::volume::{Volume, drop_caches, make_sparse, sync};
use super::{Stage, script_of};

/// Restores go into a file system that is this much larger than the tree's.
const TARGET_PERCENT: u64 = 150;
const TARGET_EXTRA_BYTES: u64 = 256 << 20;

/// Where a run works.
pub(super) struct Place {
    pub destination: PathBuf,
    /// Device whose operations are counted.
    pub counted: Option<PathBuf>,
    pub script: String,
}

impl Stage<'_> {
    /// Cold caches, and the file systems as this work needs them.
    pub(super) fn prepare(&mut self, case: Case, adapter: &Adapter, script: &str) -> Result<Place> {
        let mut script = script_of(adapter, script);
        if case == Case::Restore {
            return self.prepare_restore(adapter, script);
        }
        let destination = self.workspace.fresh_directory("one")?;
        let Some(volume) = self
            .source
            .as_ref()
            .and_then(|source| source.volume.as_ref())
        else {
            sync();
            return Ok(Place {
                destination,
                counted: None,
                script,
            });
        };
        volume.unmount()?;
        drop_caches()?;
        if case == Case::OneFile {
            script.push_str("\nsync -f \"$DST\"");
            return Ok(Place {
                destination,
                counted: None,
                script,
            });
        }
        if !adapter.reads_device(case) {
            volume.mount()?;
            drop_caches()?;
        }
        Ok(Place {
            destination,
            counted: Some(volume.device.clone()),
            script,
        })
    }

    /// A fresh file system; the time to write everything out is part of the run.
    fn prepare_restore(&mut self, adapter: &Adapter, mut script: String) -> Result<Place> {
        let source = self
            .source
            .as_ref()
            .and_then(|source| source.volume.as_ref());
        let Some(source) = source else {
            script.push_str("\nsync -f \"$DST\"");
            let destination = self.workspace.fresh_directory("target")?;
            sync();
            return Ok(Place {
                destination,
                counted: None,
                script,
            });
        };
        source.unmount()?;
        let source_bytes = fs::metadata(&source.image)
            .map_err(at_path("stat", &source.image))?
            .len();
        self.target = None;
        let image = self.workspace.path("target.img");
        let _ = fs::remove_file(&image);
        make_sparse(
            &image,
            source_bytes / 100 * TARGET_PERCENT + TARGET_EXTRA_BYTES,
        )?;
        if !adapter.writes_device() {
            make_ext4(&self.workspace, &image, self.options.files)?;
        }
        let point = self.workspace.path("target");
        let volume = Volume::attach(
            self.workspace.programs(),
            image,
            point,
            "noatime,noinit_itable",
        )?;
        let (device, mut destination) = (volume.device.clone(), volume.point.clone());
        if adapter.writes_device() {
            script.push_str("\nsync \"$DST_DEV\"");
        } else {
            script.push_str("\nsync -f \"$DST\"");
            volume.mount()?;
            circumstances::add_target(&mut self.circumstances, &volume);
            destination.push("out");
            fs::create_dir(&destination).map_err(at_path("create", &destination))?;
        }
        self.target = Some(volume);
        drop_caches()?;
        Ok(Place {
            destination,
            counted: Some(device),
            script,
        })
    }
}
