//! What goes wrong again and again, and is said once.

/// What was last said of one matter.
#[derive(Clone, Debug, Default)]
pub struct Said(Option<String>);

impl Said {
    /// Whether this sentence is news: another one than the last, in whose place it comes.
    pub fn is_news(&mut self, sentence: &str) -> bool {
        let is_news = self.0.as_deref() != Some(sentence);
        if is_news {
            self.0 = Some(sentence.to_owned());
        }
        is_news
    }

    /// All is well: what is said next is news. Returns whether anything had been said.
    pub fn is_over(&mut self) -> bool {
        self.0.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_wrong_is_news_once() {
        let mut said = Said::default();
        assert!(!said.is_over());
        assert_eq!(
            ["away", "away", "forbidden", "away"].map(|sentence| said.is_news(sentence)),
            [true, false, true, true]
        );
        assert!(said.is_over());
        assert!(said.is_news("away"), "again");
    }
}
