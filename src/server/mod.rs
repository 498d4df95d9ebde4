//! What the process serves.
