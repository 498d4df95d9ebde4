//! The command line of the benchmark.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::records::{Contestant, Load, Part};

/// What `--help` says.
pub const HELP: &str = "\
The operator, the ReplicaSet controller, a tuned Go operator and bare requests on one local cluster, one after the other, again and again.

Usage: cargo bench -p e2e -- [PART]... [LOAD]... [OPTION]...
       cargo bench -p e2e -- report FILE... [--write]

Parts; all but short if none is named:
  load         sets are created, scaled, hurt and deleted; LOAD is SETSxPODS (100x10 1x1000 500x4 2000x5 if none is given)
  scale        what 100, 1,000, 10,000 and 50,000 pods cost
  start        from exec to the first reconcile, and from the Lease to the first write, with 0, 1,000 and 10,000 pods
  idle         10,000 sets and 100,000 pods of others, and nothing to do
  short        what CI runs: two small loads; fails on requests, and on pods too many or too few, never on time
  report       no measurement: the page of what was measured before (target/bench/*.jsonl); of the same the last FILE counts

Options:
  --rounds N   how often: 5 of load and start, 1 of scale, if not given
  --only WHO   operator, replicaset, go or floor; several with commas
  --write      put what was measured into docs/benchmarks/loads.jsonl, in the place of what was measured of the same before, and make
               docs/benchmarks.md and its pictures of it
  --help       this

What is measured goes to target/bench/DATE.jsonl as well. Other work on the machine spoils times.";

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Orders {
    /// To say how to ask.
    Help,
    /// To measure.
    Measure(Measure),
    /// To report what was measured before.
    Report {
        /// The records.
        files: Vec<PathBuf>,
        /// Whether the report goes to docs/.
        write: bool,
    },
}

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measure {
    /// Which parts; never none.
    pub parts: BTreeSet<Part>,
    /// Which loads, for the part `load`.
    pub loads: Vec<Load>,
    /// How often, if that was said.
    pub rounds: Option<usize>,
    /// By whom.
    pub contestants: Vec<Contestant>,
    /// Whether the report goes to docs/.
    pub write: bool,
}

impl Orders {
    /// Reads the words after the program's name.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong and what to do.
    pub fn read(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut measure = Measure::default();
        let (mut reports, mut files) = (false, Vec::new());
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} wants a value: see --help"));
            match word.as_str() {
                "--bench" => {} // cargo says it to every benchmark
                "--help" | "-h" => return Ok(Self::Help),
                "--write" => measure.write = true,
                "--rounds" => measure.rounds = Some(rounds(&value()?)?),
                "--only" => measure.contestants = value()?.split(',').map(contestant).collect::<Result<_, _>>()?,
                "report" => reports = true,
                file if reports && !file.starts_with('-') => files.push(file.into()),
                word => measure.take(word)?,
            }
        }
        if reports && files.is_empty() {
            return Err(
                "report wants the files that were written when it was measured: target/bench/*.jsonl".to_owned()
            );
        }
        if reports {
            return Ok(Self::Report { files, write: measure.write });
        }
        measure.complete();
        Ok(Self::Measure(measure))
    }
}

impl Measure {
    fn take(&mut self, word: &str) -> Result<(), String> {
        let part = match word {
            "load" => Part::Load,
            "scale" => Part::Scale,
            "start" => Part::Start,
            "idle" => Part::Idle,
            "short" => Part::Short,
            load if load.starts_with(|first: char| first.is_ascii_digit()) => {
                self.loads.push(load.parse()?);
                Part::Load
            }
            other => return Err(format!("'{other}' is neither a part nor a load nor an option: see --help")),
        };
        self.parts.insert(part);
        Ok(())
    }

    fn complete(&mut self) {
        if self.parts.is_empty() {
            self.parts = [Part::Load, Part::Scale, Part::Start, Part::Idle].into();
        }
        if self.loads.is_empty() {
            self.loads = [(100, 10), (1, 1_000), (500, 4), (2_000, 5)].map(|(sets, pods)| Load { sets, pods }).into();
        }
        if self.contestants.is_empty() {
            self.contestants = Contestant::ALL.into();
        }
    }
}

fn rounds(text: &str) -> Result<usize, String> {
    let rounds = text.parse().ok().filter(|rounds| (1..=1_000).contains(rounds));
    rounds.ok_or_else(|| format!("--rounds is a number from 1 on, not '{text}'"))
}

fn contestant(word: &str) -> Result<Contestant, String> {
    let found = Contestant::ALL.into_iter().find(|contestant| contestant.word() == word);
    let all = Contestant::ALL.map(Contestant::word).join(", ");
    found.ok_or_else(|| format!("--only takes {all}, with commas between them, not '{word}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Orders, String> {
        Orders::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn without_a_word_all_is_measured() {
        let Ok(Orders::Measure(measure)) = read("--bench") else { panic!("nothing to measure") };
        assert_eq!((measure.parts.len(), measure.loads.len(), measure.contestants.len()), (4, 4, 4));
        assert!(!measure.parts.contains(&Part::Short) && !measure.write && measure.rounds.is_none());
    }

    #[test]
    fn a_load_alone_means_that_part() {
        let Ok(Orders::Measure(measure)) = read("20x10 --rounds 3 --only operator,floor --write --bench") else {
            panic!("nothing to measure")
        };
        assert_eq!(measure.parts, [Part::Load].into());
        assert_eq!(measure.loads, [Load { sets: 20, pods: 10 }]);
        assert_eq!(measure.contestants, [Contestant::Operator, Contestant::Floor]);
        assert_eq!((measure.rounds, measure.write), (Some(3), true));
    }

    #[test]
    fn a_report_is_made_of_files() {
        let files = vec!["a.jsonl".into(), "b.jsonl".into()];
        assert_eq!(read("report a.jsonl b.jsonl --write"), Ok(Orders::Report { files, write: true }));
        assert!(read("report").unwrap_err().contains("target/bench"));
        assert_eq!(read("load --help"), Ok(Orders::Help));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_do() {
        for (line, words) in [
            ("laod", "see --help"),
            ("--rounds", "wants a value"),
            ("--rounds 0", "a number from 1 on"),
            ("--only me", "operator, replicaset, go, floor"),
            ("10x", "SETSxPODS"),
        ] {
            assert!(read(line).unwrap_err().contains(words), "{line}");
        }
    }
}
