//! A broken template takes no more pods than `maxUnavailable`.

use std::ops::RangeInclusive;

use super::*;

/// What happened to one set so far.
#[derive(Default)]
struct Watched {
    /// `maxUnavailable` in pods, by generation.
    max_unavailable: BTreeMap<i64, u64>,
    /// The generations that may be in force, according to the status.
    generations: Option<RangeInclusive<i64>>,
    /// Whether the status has a current revision, so a template worked.
    has_current: bool,
    /// Whether a user changed the status or deleted a revision, so the operator may have lost that template.
    is_tampered: bool,
    /// The live pods of each broken revision.
    broken: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Default)]
pub struct Rollouts {
    sets: BTreeMap<String, Watched>,
}

impl Observer for Rollouts {
    fn changed(&mut self, change: &Change) -> Checked {
        if *change.kind == PODSETS {
            self.sets.entry(object::uid(&change.object).to_owned()).or_default().set(change);
        } else if *change.kind == REVISIONS && change.event == EventType::Deleted && change.by == "user" {
            let owner = object::controller_uid(&change.object).unwrap_or_default();
            self.sets.entry(owner.to_owned()).or_default().is_tampered = true;
        } else if *change.kind == PODS {
            return self.pod(change);
        }
        Ok(())
    }
}

impl Rollouts {
    fn pod(&mut self, change: &Change) -> Checked {
        let pod = &change.object;
        let Some(revision) = pod["metadata"]["labels"]["controller-revision-hash"].as_str() else { return Ok(()) };
        let former = change.before.as_ref().and_then(|pod| object::controller_uid(pod));
        if let Some(live) = former.and_then(|owner| self.sets.get_mut(owner)?.broken.get_mut(revision)) {
            live.remove(object::uid(pod));
        }
        let counts = object::has_broken_image(pod) && object::is_live(pod) && change.event != EventType::Deleted;
        let Some(owner) = object::controller_uid(pod).filter(|_| counts) else { return Ok(()) };
        let watched = self.sets.entry(owner.to_owned()).or_default();
        let live = watched.broken.entry(revision.to_owned()).or_default();
        live.insert(object::uid(pod).to_owned());
        let live = live.len() as u64;
        let is_checked = change.event == EventType::Added && watched.has_current && !watched.is_tampered;
        match watched.most_broken().filter(|most| is_checked && live > *most) {
            Some(most) => Err(format!("{live} pods have a broken template, but at most {most} may have one: {change}")),
            None => Ok(()),
        }
    }
}

impl Watched {
    fn set(&mut self, change: &Change) {
        let set = &change.object;
        let generation = object::generation(set);
        let is_rolling = set["spec"]["updateStrategy"]["type"] != "OnDelete";
        self.max_unavailable.insert(generation, if is_rolling { object::max_unavailable(set) } else { u64::MAX });
        let observed = set["status"]["observedGeneration"].as_i64().unwrap_or_default();
        self.generations = Some(observed.min(generation)..=generation);
        self.has_current = set["status"]["currentRevision"].is_string();
        self.is_tampered |=
            change.by == "user" && change.before.as_ref().is_some_and(|before| before["status"] != set["status"]);
    }

    fn most_broken(&self) -> Option<u64> {
        self.max_unavailable.range(self.generations.clone()?).map(|(_, most)| *most).max()
    }
}
