//! What the lines of the log look like.
