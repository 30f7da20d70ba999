//! Where the repository is: in memory, or in a directory as users have it. Both tell the time by
//! the test's clock, and both can be damaged behind the program's back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bale_pipeline::clock::{Clock, ManualClock};
use bale_repository::store::{
    Area, LocalStore, ObjectInfo, ObjectName, ObjectWriter, PackContent, Result, Store,
};
use bale_testkit::DatedStore;

/// All objects, for comparing.
pub type Objects = BTreeMap<ObjectName, Arc<Vec<u8>>>;

/// A place of objects.
#[derive(Clone)]
pub enum Shelf {
    Memory(DatedStore),
    Disk(Disk),
}

impl Shelf {
    pub fn in_memory(clock: &Arc<ManualClock>) -> Shelf {
        Shelf::Memory(DatedStore::new(clock.clone()))
    }

    pub fn on_disk(clock: &Arc<ManualClock>, root: &Path) -> Shelf {
        let inner = LocalStore::create(root).expect("a new directory");
        Shelf::Disk(Disk {
            inner: Arc::new(inner),
            root: root.to_owned(),
            clock: clock.clone(),
        })
    }

    /// As operations see it.
    fn inner(&self) -> &dyn Store {
        match self {
            Shelf::Memory(store) => store,
            Shelf::Disk(disk) => disk,
        }
    }

    /// As a new process finds it: with nothing open that was removed since.
    pub fn reopened(&self) -> Shelf {
        match self {
            Shelf::Memory(store) => Shelf::Memory(store.clone()),
            Shelf::Disk(disk) => Shelf::Disk(Disk {
                inner: Arc::new(LocalStore::open(&disk.root).expect("a repository")),
                ..disk.clone()
            }),
        }
    }

    pub fn root(&self) -> Option<&Path> {
        match self {
            Shelf::Memory(_) => None,
            Shelf::Disk(disk) => Some(&disk.root),
        }
    }

    pub fn objects(&self) -> Objects {
        match self {
            Shelf::Memory(store) => {
                let objects = store.memory().objects().into_iter();
                objects
                    .map(|(name, bytes)| (name, Arc::new(bytes)))
                    .collect()
            }
            Shelf::Disk(disk) => disk.objects(),
        }
    }

    /// Puts bytes under a name, whatever was there.
    pub fn overwrite(&self, name: &ObjectName, bytes: Vec<u8>) {
        match self {
            Shelf::Memory(store) => store.memory().overwrite(name, bytes),
            Shelf::Disk(disk) => {
                let path = disk.root.join(name.path());
                fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
                // A new file: the old one may be read-only.
                let _absent = fs::remove_file(&path);
                fs::write(&path, bytes).expect("a file");
                disk.stamp(name);
            }
        }
    }

    pub fn remove(&self, name: &ObjectName) {
        match self {
            Shelf::Memory(store) => store.delete(name).expect("memory"),
            Shelf::Disk(disk) => fs::remove_file(disk.root.join(name.path())).expect("a file"),
        }
    }
}

impl Store for Shelf {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.inner().put(name, bytes)
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.begin_pack(PackContent::Metadata)
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        self.inner().begin_pack(content)
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.inner().get(name, len_max)
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner().read_at(name, offset, buf)
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.inner().stat(name)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        self.inner().list(area, found)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.inner().delete(name)
    }

    fn place(&self) -> String {
        self.inner().place()
    }

    fn keeps_the_first(&self) -> bool {
        self.inner().keeps_the_first()
    }
}

/// A local repository whose files are dated by the test's clock.
#[derive(Clone)]
pub struct Disk {
    inner: Arc<LocalStore>,
    root: PathBuf,
    clock: Arc<ManualClock>,
}

impl Disk {
    fn objects(&self) -> Objects {
        let mut objects = Objects::new();
        let mut waiting = vec![self.root.clone()];
        while let Some(path) = waiting.pop() {
            for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    waiting.push(path);
                    continue;
                }
                let below = path.strip_prefix(&self.root).expect("below the root");
                if let Some(name) = below.to_str().and_then(ObjectName::parse) {
                    objects.insert(name, Arc::new(fs::read(&path).expect("a file")));
                }
            }
        }
        objects
    }

    fn stamp(&self, name: &ObjectName) {
        let file = fs::File::open(self.root.join(name.path()));
        if let Ok(file) = file {
            let now = self.clock.now();
            file.set_modified(now).expect("a file of the test's own");
        }
    }
}

impl Store for Disk {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        let is_new = self.inner.stat(name)?.is_none();
        self.inner.put(name, bytes)?;
        if is_new {
            self.stamp(name);
        }
        Ok(())
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.begin_pack(PackContent::Metadata)
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(DiskWriter {
            inner: self.inner.begin_pack(content)?,
            disk: self.clone(),
        }))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.inner.get(name, len_max)
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(name, offset, buf)
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.inner.stat(name)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        self.inner.list(area, found)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.inner.delete(name)
    }

    fn place(&self) -> String {
        self.inner.place()
    }

    fn keeps_the_first(&self) -> bool {
        self.inner.keeps_the_first()
    }
}

struct DiskWriter {
    inner: Box<dyn ObjectWriter>,
    disk: Disk,
}

impl ObjectWriter for DiskWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.inner.append(bytes)
    }

    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()> {
        let DiskWriter { inner, disk } = *self;
        inner.publish(name)?;
        disk.stamp(name);
        Ok(())
    }
}
