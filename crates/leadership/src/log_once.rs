//! What goes wrong again and again, and is said once.

/// What was last said of one matter.
#[derive(Clone, Debug, Default)]
pub struct LogOnce(Option<String>);

impl LogOnce {
    /// Takes note of a sentence. Returns whether it is news: another one than the last.
    pub fn note(&mut self, sentence: &str) -> bool {
        let is_news = self.0.as_deref() != Some(sentence);
        if is_news {
            self.0 = Some(sentence.to_owned());
        }
        is_news
    }

    /// All is well: what is said next is news. Returns whether anything had been said.
    pub fn forget(&mut self) -> bool {
        self.0.take().is_some()
    }
}

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
