//! What the API server said of tokens, for a while, and how often it may be asked. Pure.
//!
//! Two books: one of those that were let through, which junk cannot fill, and one of all others.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use ring::digest;

use super::Verdict;

/// How long an answer that lets through holds: so long may a token be used after it was revoked.
const ALLOWED: SignedDuration = SignedDuration::from_secs(60);

/// How long any other answer holds: so long may it take until a right that was given is noticed.
const REFUSED: SignedDuration = SignedDuration::from_secs(10);

/// How long it is remembered that a token was good.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(10);

/// How many tokens each book holds.
const TOKENS: usize = 512;

/// How many questions about strangers may be asked at once, and how many a second in the long run.
const QUESTIONS: (i64, i64) = (20, 2);

/// What stands for a token.
pub type TokenHash = [u8; digest::SHA256_OUTPUT_LEN];

/// What stands for this token: the token cannot be told from it.
pub fn hash(token: &str) -> TokenHash {
    let mut hash = TokenHash::default();
    hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    hash
}

/// What is known of tokens.
#[derive(Debug)]
pub struct Answers {
    /// When a token was good, and whose it is.
    allowed: HashMap<TokenHash, (Timestamp, String)>,
    others: HashMap<TokenHash, (Timestamp, Verdict)>,
    /// Until when the questions that were asked are paid for.
    paid: Timestamp,
}

impl Answers {
    /// Nothing is known, and nothing was asked.
    pub fn new(now: Timestamp) -> Self {
        Answers { allowed: HashMap::new(), others: HashMap::new(), paid: now }
    }

    /// What was said of a token, if that still holds.
    pub fn get(&self, hash: &TokenHash, now: Timestamp) -> Option<Verdict> {
        if let Some((_, user)) = self.allowed.get(hash).filter(|(when, _)| now.duration_since(*when) < ALLOWED) {
            return Some(Verdict::Allowed(user.clone()));
        }
        let (when, verdict) = self.others.get(hash)?;
        (now.duration_since(*when) < REFUSED).then(|| verdict.clone())
    }

    /// Whether a token was good lately, whatever it is now.
    pub fn was_allowed(&self, hash: &TokenHash) -> bool {
        self.allowed.contains_key(hash)
    }

    /// Takes note of what was said of a token.
    pub fn insert(&mut self, hash: TokenHash, verdict: Verdict, now: Timestamp) {
        self.allowed.remove(&hash);
        self.others.remove(&hash);
        self.allowed.retain(|_, (when, _)| now.duration_since(*when) < REMEMBERED);
        self.others.retain(|_, (when, _)| now.duration_since(*when) < REFUSED);
        if let Verdict::Allowed(user) = verdict {
            make_room(&mut self.allowed, |(when, _)| *when);
            self.allowed.insert(hash, (now, user));
        } else {
            make_room(&mut self.others, |(when, _)| *when);
            self.others.insert(hash, (now, verdict));
        }
    }

    /// Whether a question about a stranger may be asked now; if so, it counts as asked.
    pub fn may_ask(&mut self, now: Timestamp) -> bool {
        let (at_once, a_second) = QUESTIONS;
        let price = SignedDuration::from_millis(1000 / a_second);
        let paid = self.paid.max(now) + price;
        let may_ask = paid.duration_since(now) <= SignedDuration::from_millis(at_once * 1000 / a_second);
        if may_ask {
            self.paid = paid;
        }
        may_ask
    }
}

/// Drops the oldest entry of a full book.
fn make_room<V>(book: &mut HashMap<TokenHash, V>, when: impl Fn(&V) -> Timestamp) {
    if book.len() < TOKENS {
        return;
    }
    let oldest = book.iter().min_by_key(|(_, value)| when(value)).map(|(hash, _)| *hash);
    if let Some(oldest) = oldest {
        book.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn alice() -> Verdict {
        Verdict::Allowed("alice".to_owned())
    }

    #[test]
    fn an_answer_holds_for_a_while() {
        let mut answers = Answers::new(at(0));
        let (good, bad) = (hash("good"), hash("bad"));
        answers.insert(good, alice(), at(0));
        answers.insert(bad, Verdict::Unknown, at(0));
        assert_eq!(answers.get(&good, at(59)), Some(alice()));
        assert_eq!(answers.get(&good, at(60)), None);
        assert_eq!(answers.get(&bad, at(9)), Some(Verdict::Unknown));
        assert_eq!(answers.get(&bad, at(10)), None);
        assert!(answers.was_allowed(&good) && !answers.was_allowed(&bad));
        answers.insert(good, Verdict::Unknown, at(61));
        assert!(!answers.was_allowed(&good), "it was revoked");
    }

    #[test]
    fn the_last_answer_counts() {
        let mut answers = Answers::new(at(0));
        answers.insert(hash("a"), Verdict::Forbidden("a".to_owned()), at(0));
        answers.insert(hash("a"), alice(), at(1));
        assert_eq!(answers.get(&hash("a"), at(2)), Some(alice()));
    }

    #[test]
    fn junk_does_not_fill_the_memory_nor_push_out_the_good() {
        let mut answers = Answers::new(at(0));
        answers.insert(hash("good"), alice(), at(0));
        for junk in 0..5000 {
            answers.insert(hash(&junk.to_string()), Verdict::Unknown, at(1));
        }
        assert_eq!(answers.others.len(), TOKENS);
        assert_eq!(answers.get(&hash("good"), at(2)), Some(alice()));
        answers.insert(hash("late"), Verdict::Unknown, at(20));
        assert_eq!(answers.others.len(), 1, "what no longer holds is dropped");
    }

    #[test]
    fn questions_about_strangers_are_rationed() {
        let mut answers = Answers::new(at(0));
        let asked = (0..1000).filter(|_| answers.may_ask(at(100))).count();
        assert_eq!(asked, 20);
        let asked = (0..1000).filter(|_| answers.may_ask(at(103))).count();
        assert_eq!(asked, 6, "two a second");
    }
}
