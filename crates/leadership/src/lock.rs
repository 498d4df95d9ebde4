//! Locks of mutexes.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if another thread panicked while holding it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
