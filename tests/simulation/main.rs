//! The operator against an API server in the same process, on virtual time.
//!
//! `apiserver` is that server and `behaviour` holds it to what kube-apiserver does. `operator` and `replica` are instances
//! of the operator, led by a test and by themselves, and `line` is what carries their writes; the other modules are what
//! happens to them.

mod apiserver;
mod attacks;
mod behaviour;
mod elections;
mod life;
mod line;
mod operator;
mod replica;
mod shown;
mod world;

/// A world is a million small objects: of its time a quarter went to the allocator of the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
