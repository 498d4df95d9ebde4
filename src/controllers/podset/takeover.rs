//! What a term of leadership begins with: whatever was learnt before it may be old.
//!
//! A standby's watch may have stood still while others led. So before the first write for a set in a term, the PodSets of
//! its namespace and all pods in it are listed once, also those that lost their label. Beside that work all PodSets are
//! listed, once in the term: a set that is not among them is younger than the term, known by its own first event, and
//! needs neither. It only reads.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use tracing::warn;

use super::{
    Context,
    observe::{Pod, Set},
};
use crate::{
    client::{ReadError, in_full},
    controllers::{
        ObjectKey,
        failures::{Failures, Waits},
        meta::Uid,
        queue,
    },
    env::Env,
    listwatch::{self, Scope, Source},
};

/// When more sets than this wait for their reads, everything is read at once.
const MANY: usize = 8;

/// A read that ends well wakes those who wait for it. Should nobody wake them, they look again after so long.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// How long a scope that could not be read is left alone, at first and at most.
const PAUSE: Waits = (SignedDuration::from_secs(1), SignedDuration::from_secs(8));

/// What came of the wish to read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReadFirst {
    /// The set was read.
    Done,
    /// Another read is under way, or this one failed a moment ago: until then there is nothing to do but to wait.
    Wait(Timestamp),
    /// It failed; why, and when to try again.
    Failed(String, Timestamp),
}

/// Which sets still need a read in this term.
#[derive(Debug, Default)]
pub struct TakeOver {
    state: Mutex<State>,
    /// One read at a time.
    lane: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    known: Known,
    /// The sets that wait for a read.
    waiting: BTreeSet<ObjectKey>,
    /// The scopes that could not be read, and until when they are left alone.
    pauses: BTreeMap<Scope, (Failures, Timestamp)>,
}

impl State {
    /// What to read for a set that waits: its namespace, or, where many sets wait, everything.
    ///
    /// # Errors
    ///
    /// When that is to be left alone for a while; until when.
    fn wanted(&self, set: &ObjectKey, all: &[Scope], now: Timestamp) -> Result<Vec<Scope>, Timestamp> {
        let own = [Some(set.namespace.clone())];
        let scopes = if self.waiting.len() > MANY { all } else { &own[..] };
        let unread = scopes.iter().filter(|scope| !self.known.read.contains(*scope));
        let pause = |scope: &Scope| self.pauses.get(scope).map(|(_, until)| *until).filter(|until| now < *until);
        let (paused, wanted): (Vec<&Scope>, Vec<&Scope>) = unread.partition(|scope| pause(scope).is_some());
        match paused.into_iter().filter_map(pause).min() {
            Some(until) if wanted.is_empty() => Err(until),
            _ => Ok(wanted.into_iter().cloned().collect()),
        }
    }

    /// This scope was read.
    fn succeeded(&mut self, scope: &Scope) {
        self.pauses.remove(scope);
        self.known.read.insert(scope.clone());
    }

    /// This scope, which may be much, could not be read for this reason: it is left alone for longer each time. Returns until
    /// when, and whether the reason is news.
    fn failed(&mut self, scope: &Scope, error: &str, env: &Env) -> (Timestamp, bool) {
        let (failures, until) = self.pauses.entry(scope.clone()).or_default();
        let (wait, is_news) = failures.note(error, PAUSE);
        *until = env.now() + env.jittered(wait, 0.1);
        (*until, is_news)
    }

    /// The sets that wait no more, and those that wait for what can be read now: the first of them to look does it.
    fn woken(&mut self, all: &[Scope], now: Timestamp) -> Vec<ObjectKey> {
        let can_go_on = |set: &&ObjectKey| self.known.is_read(set) || self.wanted(set, all, now).is_ok();
        let woken = self.waiting.iter().filter(can_go_on).cloned().collect();
        let known = &self.known;
        self.waiting.retain(|set| !known.is_read(set));
        woken
    }
}

/// What was read in this term.
#[derive(Debug, Default)]
pub struct Known {
    /// The sets that are older than the term; `None` until all were listed: any may be.
    elders: Option<HashSet<Uid>>,
    /// The scopes whose sets and pods were listed.
    read: BTreeSet<Scope>,
}

impl Known {
    /// Whether the set must be read before anything is written for it.
    pub fn is_unread(&self, set: &Set) -> bool {
        let may_be_older = self.elders.as_ref().is_none_or(|elders| elders.contains(&set.uid));
        may_be_older && !self.is_read(&set.key)
    }

    /// Whether the namespace of this set was read.
    fn is_read(&self, set: &ObjectKey) -> bool {
        self.read.contains(&None) || self.read.contains(&Some(set.namespace.clone()))
    }
}

impl TakeOver {
    /// Begins a term: every set needs a read before its first write.
    pub fn begin(&self) {
        *self.lock() = State::default();
    }

    /// Learns which sets are older than the term; the others need no read.
    ///
    /// # Errors
    ///
    /// When the sets cannot be listed.
    pub async fn catch_up(&self, context: &Context) -> Result<(), ReadError> {
        let mut elders = HashSet::new();
        for scope in &context.scopes {
            elders.extend(list_sets(context, scope).await?);
        }
        self.lock().known.elders = Some(elders);
        Ok(())
    }

    /// Whether the set must be read before anything is written for it.
    pub fn is_unread(&self, context: &Context, set: &Set) -> bool {
        (context.locks.is_unread)(&self.lock().known, set)
    }

    /// Reads the PodSets and all pods of the set's namespace, or, where many sets wait, of all. Unless that is done, nothing must be
    /// written for the set.
    pub async fn read(&self, context: &Context, set: &Set) -> ReadFirst {
        let env = &context.env;
        let wanted = {
            let mut state = self.lock();
            state.waiting.insert(set.key.clone());
            state.wanted(&set.key, &context.scopes, env.now())
        };
        let scopes = match wanted {
            Ok(scopes) => scopes,
            Err(until) => return ReadFirst::Wait(until),
        };
        let Ok(turn) = self.lane.try_lock() else {
            return ReadFirst::Wait(env.now() + env.jittered(PATIENCE, 0.1));
        };
        let mut failed = None;
        for scope in &scopes {
            match read_scope(context, scope).await {
                Ok(()) => self.lock().succeeded(scope),
                Err(error) => {
                    let error = in_full(&error);
                    let (again, is_news) = self.lock().failed(scope, &error, env);
                    if is_news {
                        let namespace = scope.as_deref().unwrap_or("all");
                        warn!(namespace, error, "cannot read what must be known before the first write, trying again");
                    }
                    failed = Some((error, again));
                }
            }
        }
        drop(turn);
        let (woken, is_read) = {
            let mut state = self.lock();
            (state.woken(&context.scopes, env.now()), state.known.is_read(&set.key))
        };
        for key in woken.into_iter().filter(|key| *key != set.key) {
            context.queue.add(key, queue::READ);
        }
        match failed {
            Some((error, again)) if !is_read => ReadFirst::Failed(error, again),
            _ => ReadFirst::Done,
        }
    }

    /// A set is gone: it waits for no read any more.
    pub fn forget(&self, set: &ObjectKey) {
        self.lock().waiting.remove(set);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes in consistent lists of the sets and of all pods of a scope.
async fn read_scope(context: &Context, scope: &Scope) -> Result<(), ReadError> {
    list_sets(context, scope).await?;
    let source = Source { labels: None, ..super::pod_source(scope, &context.locks) };
    let ours = |pod: &Pod| pod.owner.is_some() || pod.is_labelled;
    let (pods, version) = listwatch::list(&context.clients.read, &source, ours).await?;
    context.pods_listed(scope, pods, version);
    Ok(())
}

/// Takes in a consistent list of the sets of a scope. Returns their UIDs.
async fn list_sets(context: &Context, scope: &Scope) -> Result<Vec<Uid>, ReadError> {
    let source = super::set_source(scope, &context.locks);
    let (sets, version) = listwatch::list(&context.clients.read, &source, |_: &Set| true).await?;
    let uids = sets.iter().map(|set| set.uid.clone()).collect();
    context.sets_listed(scope, sets, version);
    Ok(uids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::podset::testing;

    #[test]
    fn any_set_may_be_older_than_the_term_until_all_were_listed() {
        let set = testing::set(3);
        let mut known = Known::default();
        assert!(known.is_unread(&set));
        known.elders = Some(HashSet::from([set.uid.clone()]));
        assert!(known.is_unread(&set));
        known.elders = Some(HashSet::from(["another".into()]));
        assert!(!known.is_unread(&set), "it is younger");
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_read_is_left_alone_for_longer_each_time_and_holds_up_nothing_else() {
        let (mut state, env) = (State::default(), crate::env::testing::virtual_env());
        let (key, now) = (testing::set(3).key, env.now());
        let scope = Some(key.namespace.clone());
        let waits: Vec<i64> =
            (0..5).map(|_| state.failed(&scope, "no", &env).0.duration_since(now).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 8]);
        let elsewhere = ObjectKey::new("elsewhere", "web");
        state.waiting.extend([key.clone(), elsewhere.clone()]);
        assert_eq!(state.wanted(&key, &[None], now), Err(now + PAUSE.1));
        assert_eq!(state.wanted(&elsewhere, &[None], now), Ok(vec![Some("elsewhere".into())]));
        assert_eq!(state.woken(&[None], now), std::slice::from_ref(&elsewhere));
        assert_eq!(state.wanted(&key, &[None], now + PAUSE.1), Ok(vec![scope.clone()]));
        state.succeeded(&scope);
        assert!(state.known.is_read(&key) && state.pauses.is_empty());
        assert_eq!(state.woken(&[None], now), [key, elsewhere.clone()]);
        assert_eq!(state.waiting, BTreeSet::from([elsewhere]));
    }

    #[test]
    fn a_set_that_is_gone_waits_no_more() {
        let take_over = TakeOver::default();
        take_over.lock().waiting.extend([ObjectKey::new("a", "web"), ObjectKey::new("b", "web")]);
        take_over.forget(&ObjectKey::new("a", "web"));
        assert_eq!(take_over.lock().waiting, BTreeSet::from([ObjectKey::new("b", "web")]));
    }

    #[test]
    fn a_set_was_read_when_its_namespace_was_or_all_were() {
        let set = testing::set(3);
        for (scope, is_unread) in
            [(Some("another".into()), true), (Some(set.key.namespace.clone()), false), (None, false)]
        {
            let known = Known { elders: None, read: BTreeSet::from([scope]) };
            assert_eq!(known.is_unread(&set), is_unread, "{known:?}");
        }
    }
}
