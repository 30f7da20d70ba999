//! Telling the others when a thread panics, so that nobody waits for it for ever.

/// Calls when it is dropped by a panic of its thread.
pub struct OnPanic<F: Fn()>(pub F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}
