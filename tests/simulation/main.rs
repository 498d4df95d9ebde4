//! The operator against an API server in the same process, on virtual time.
//!
//! `apiserver` is that server and `behaviour` holds it to what kube-apiserver does.

mod apiserver;
mod attacks;
mod behaviour;
mod chaos;
mod life;
mod operator;
mod shown;
