//! Files that stay open for the next read, or are opened before the first one: who reads several
//! parts of one at a time waits for one answer, and who reads the next file for none.

use super::connection::Sent;
use super::request::Request;
use super::session::{OpenHandle, Session};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// As many stay open.
const OPEN_FILES_MAX: usize = 16;

/// Least recently used first.
#[derive(Default)]
pub(super) struct OpenFiles {
    files: Mutex<Vec<(String, Arc<OpenFile>)>>,
}

/// A file that is open, or will be with the server's answer.
#[derive(Default)]
struct OpenFile {
    state: Mutex<OpenState>,
}

#[derive(Default)]
enum OpenState {
    Opening(Sent),
    Open(Arc<OpenHandle>),
    /// Nothing is asked of the server.
    #[default]
    Closed,
}

impl OpenFiles {
    /// The file, which is the one used last from now on, and the one that makes room for it.
    fn take_up(&self, path: &str) -> (Arc<OpenFile>, Option<Arc<OpenFile>>) {
        let mut files = self.lock();
        let (file, oldest) = match files.iter().position(|(open, _)| open == path) {
            Some(at) => (files.remove(at).1, None),
            None => {
                let is_full = files.len() >= OPEN_FILES_MAX;
                let oldest = is_full.then(|| files.remove(0).1);
                (Arc::default(), oldest)
            }
        };
        files.push((path.to_owned(), Arc::clone(&file)));
        (file, oldest)
    }

    fn remove(&self, path: &str) -> Option<Arc<OpenFile>> {
        let mut files = self.lock();
        let at = files.iter().position(|(open, _)| open == path)?;
        Some(files.remove(at).1)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, Arc<OpenFile>)>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenFile {
    fn lock(&self) -> MutexGuard<'_, OpenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// A file that stays open for the next read.
    pub(super) fn open_cached(&self, path: &str) -> io::Result<Arc<OpenHandle>> {
        let file = self.open_file(path);
        let mut state = file.lock();
        let opened = match std::mem::take(&mut *state) {
            OpenState::Open(handle) => Ok(handle),
            // What was asked too early says nothing about now.
            OpenState::Opening(sent) => {
                let opened = self.opened(sent).map(Arc::new);
                opened.or_else(|_| self.open_now(path))
            }
            OpenState::Closed => self.open_now(path),
        };
        match opened {
            Ok(handle) => {
                *state = OpenState::Open(Arc::clone(&handle));
                Ok(handle)
            }
            Err(error) => {
                drop(state);
                self.forget_open(path);
                Err(error)
            }
        }
    }

    /// A file that will be read soon is opened, and nobody waits for it.
    pub(super) fn open_soon(&self, path: &str) -> io::Result<()> {
        let file = self.open_file(path);
        // Whoever has it locked has asked already.
        if let Ok(mut state) = file.state.try_lock()
            && matches!(*state, OpenState::Closed)
        {
            *state = OpenState::Opening(self.send(&Request::Open(path))?);
        }
        Ok(())
    }

    pub(super) fn forget_open(&self, path: &str) {
        if let Some(file) = self.open_files.remove(path) {
            self.close_file(&file);
        }
    }

    fn open_file(&self, path: &str) -> Arc<OpenFile> {
        let (file, oldest) = self.open_files.take_up(path);
        if let Some(oldest) = oldest {
            self.close_file(&oldest);
        }
        file
    }

    fn open_now(&self, path: &str) -> io::Result<Arc<OpenHandle>> {
        self.opened(self.send(&Request::Open(path))?).map(Arc::new)
    }

    /// Whoever reads it still has its handle. The server is waited for if it was never read: it
    /// would stay open there.
    fn close_file(&self, file: &OpenFile) {
        if let OpenState::Opening(sent) = std::mem::take(&mut *file.lock()) {
            let _is_closed_with_it = self.opened(sent);
        }
    }
}
