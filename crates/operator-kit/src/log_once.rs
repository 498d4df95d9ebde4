//! Logs a repeated failure only once.

/// The last failure that was logged.
#[derive(Clone, Debug, Default)]
pub struct LogOnce(Option<String>);

impl LogOnce {
    /// Remembers a failure. Returns whether it differs from the last one and should be logged.
    pub fn note(&mut self, failure: &str) -> bool {
        let is_news = self.0.as_deref() != Some(failure);
        if is_news {
            self.0 = Some(failure.to_owned());
        }
        is_news
    }

    /// The failure is over, so the next one is logged again. Returns whether one had been logged.
    pub fn forget(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// Logs an event as a warning if it is news, and at the level debug if it repeats. The level of an event is fixed where it is written, so
/// this is a macro.
#[macro_export]
macro_rules! warn_once {
    ($is_news:expr, $($event:tt)+) => {
        if $is_news { ::tracing::warn!($($event)+) } else { ::tracing::debug!($($event)+) }
    };
}

pub use warn_once;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_new_message_is_logged_once() {
        let mut log = LogOnce::default();
        assert!(!log.forget());
        assert_eq!(["away", "away", "forbidden", "away"].map(|sentence| log.note(sentence)), [true, false, true, true]);
        assert!(log.forget());
        assert!(log.note("away"), "again");
    }
}
