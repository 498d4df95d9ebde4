//! Shrinks a failing seed: leaves out actions, many at a time and then fewer, while the world still fails.

use std::collections::BTreeSet;

use super::{Outcome, Seed, play::play};
use crate::replica::Model;

/// How many worlds to try: about ten seconds.
const TRIES: usize = 150;

/// How many lines at the end of the history are shown. Before them, only the actions are.
const SHOWN: usize = 40;

/// The history of the shrunken seed, as text.
pub fn history(number: u64, broken: Outcome, variant: Model) -> String {
    let before = broken.actions;
    let (left_out, outcome) = shrink(number, broken, variant);
    let needed: Vec<_> = (0..before).filter(|action| !left_out.contains(action)).collect();
    let what = outcome.broken.unwrap_or_default();
    let end = outcome.chronicle.len().saturating_sub(SHOWN);
    let lines = outcome.chronicle.iter().enumerate();
    let shown = lines.filter(|(place, line)| *place >= end || line.contains(" -- ")).map(|(_, line)| line.as_str());
    let shown = shown.collect::<Vec<_>>().join("\n");
    format!("needs {} of {before} actions: {needed:?}: {what}\nwhat happened before:\n{shown}\n", needed.len())
}

/// Returns the actions to leave out, and the result of the world without them.
fn shrink(number: u64, mut broken: Outcome, variant: Model) -> (BTreeSet<u64>, Outcome) {
    let mut seed = Seed::from(number);
    let (mut at_once, mut tries) = (broken.actions.div_ceil(2), 0);
    while at_once > 0 {
        let kept: Vec<_> = (0..broken.actions).filter(|action| !seed.left_out.contains(action)).collect();
        for some in kept.chunks(usize::try_from(at_once).unwrap_or(usize::MAX)) {
            tries += 1;
            if tries > TRIES {
                return (seed.left_out, broken);
            }
            let mut less = seed.clone();
            less.left_out.extend(some);
            let outcome = play(&less, variant, false);
            if outcome.broken.is_some() {
                (seed, broken) = (less, outcome);
            }
        }
        at_once /= 2;
    }
    (seed.left_out, broken)
}

#[test]
fn shrinking_leaves_out_most_actions_of_a_failing_seed() {
    let variant = Model::default();
    let unbounded = Model { is_bounded: false, ..variant };
    let broken = (0..300).map(|seed| (seed, play(&Seed::from(seed), unbounded, false)));
    let (number, outcome) = broken.into_iter().find(|(_, outcome)| outcome.broken.is_some()).expect("a failing seed");
    let before = outcome.actions;
    let (left_out, shrunken) = shrink(number, outcome, unbounded);
    assert!(shrunken.broken.is_some());
    assert!(2 * left_out.len() as u64 > before, "{} of {before} actions left out", left_out.len());
}
