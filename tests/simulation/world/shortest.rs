//! Of a seed that went wrong, the least that must happen for it: deeds are left out, many at once and then fewer, for as long
//! as something still goes wrong.

use std::collections::BTreeSet;

use super::{Outcome, Seed, Variant, play::play};

/// How many worlds may be tried: some ten seconds.
const TRIES: usize = 150;

/// How many lines of the end are shown; before it, what was done.
const SHOWN: usize = 40;

/// That history, in text.
pub fn history(number: u64, broken: Outcome, variant: Variant) -> String {
    let before = broken.deeds;
    let (left_out, outcome) = shortened(number, broken, variant);
    let needed: Vec<_> = (0..before).filter(|deed| !left_out.contains(deed)).collect();
    let what = outcome.broken.unwrap_or_default();
    let end = outcome.chronicle.len().saturating_sub(SHOWN);
    let lines = outcome.chronicle.iter().enumerate();
    let shown = lines.filter(|(place, line)| *place >= end || line.contains(" -- ")).map(|(_, line)| line.as_str());
    let shown = shown.collect::<Vec<_>>().join("\n");
    format!("of {before} deeds it needs {}: {needed:?}: {what}\nwhat happened before:\n{shown}\n", needed.len())
}

/// Which deeds it does not need, and what becomes of the world without them.
fn shortened(number: u64, mut broken: Outcome, variant: Variant) -> (BTreeSet<u64>, Outcome) {
    let mut seed = Seed::from(number);
    let (mut at_once, mut tries) = (broken.deeds.div_ceil(2), 0);
    while at_once > 0 {
        let kept: Vec<_> = (0..broken.deeds).filter(|deed| !seed.left_out.contains(deed)).collect();
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
fn a_history_is_cut_to_what_matters() {
    let variant = Variant::default();
    let careless = Variant { is_bounded: false, ..variant };
    let broken = (0..300).map(|seed| (seed, play(&Seed::from(seed), careless, false)));
    let (number, outcome) = broken.into_iter().find(|(_, outcome)| outcome.broken.is_some()).expect("one that breaks");
    let before = outcome.deeds;
    let (left_out, shorter) = shortened(number, outcome, careless);
    assert!(shorter.broken.is_some());
    assert!(2 * left_out.len() as u64 > before, "{} of {before} deeds left out", left_out.len());
}
