//! How many large files are open at a time: whoever opens one waits for a permit.

use std::sync::{Arc, Condvar, Mutex};

/// Counts files that may be open.
pub struct Permits {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Permits {
    pub fn new(count: usize) -> Arc<Permits> {
        Arc::new(Permits {
            free: Mutex::new(count),
            freed: Condvar::new(),
        })
    }

    pub fn take(self: &Arc<Permits>) -> Permit {
        let mut free = self.free.lock().expect("no holder of this lock panics");
        while *free == 0 {
            free = self
                .freed
                .wait(free)
                .expect("no holder of this lock panics");
        }
        *free -= 1;
        Permit(self.clone())
    }
}

/// One open file; given back when it is dropped.
pub struct Permit(Arc<Permits>);

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.free.lock().expect("no holder of this lock panics") += 1;
        self.0.freed.notify_one();
    }
}
