//! The scenarios. `cargo test -p e2e` runs all of them, `cargo test -p e2e -- leader` those with that word in their name.

mod autoscaler;
mod budget;
mod churn;
mod control_plane;
mod deletion;
mod drain;
mod faults;
mod friend;
mod guard;
mod kubectl;
mod leader;
mod leadership;
mod memory;
mod mission;
mod policy;
mod rejections;
mod restart;
mod rights;
mod rollouts;
mod terminations;
mod traces;
mod versions;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let files = [
        // The three scenarios that the operator exists for.
        mission::scenarios,
        // The longest, so that they are not the last to finish.
        budget::scenarios,
        faults::scenarios,
        memory::scenarios,
        control_plane::scenarios,
        traces::scenarios,
        terminations::scenarios,
        guard::scenarios,
        policy::scenarios,
        restart::scenarios,
        deletion::scenarios,
        friend::scenarios,
        rollouts::scenarios,
        autoscaler::scenarios,
        drain::scenarios,
        kubectl::scenarios,
        rejections::scenarios,
        rights::scenarios,
        versions::scenarios,
        // Last, because they check times, or wait until no other scenario does.
        leader::scenarios,
        leadership::scenarios,
    ];
    let scenarios = files.into_iter().flat_map(|scenarios| scenarios()).collect();
    e2e::suite::run(Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("e2e"), scenarios)
}
