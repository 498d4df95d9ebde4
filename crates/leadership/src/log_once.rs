//! Logs a failure that repeats only once.

/// The last failure of one matter that was logged.
#[derive(Clone, Debug, Default)]
pub struct LogOnce(Option<String>);

impl LogOnce {
    /// Remembers a sentence. Returns whether it differs from the last one, so that it should be logged.
    pub fn note(&mut self, sentence: &str) -> bool {
        let is_news = self.0.as_deref() != Some(sentence);
        if is_news {
            self.0 = Some(sentence.to_owned());
        }
        is_news
    }

    /// The matter is well again: the next sentence is news. Returns whether a failure had been logged.
    pub fn forget(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// Logs an event as a warning if it is news, and for debugging if it repeats. The level of an event is fixed where it is written,
/// so this is a macro.
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
    fn what_goes_wrong_is_news_once() {
        let mut said = LogOnce::default();
        assert!(!said.forget());
        assert_eq!(
            ["away", "away", "forbidden", "away"].map(|sentence| said.note(sentence)),
            [true, false, true, true]
        );
        assert!(said.forget());
        assert!(said.note("away"), "again");
    }
}
