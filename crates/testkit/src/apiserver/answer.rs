//! The answer to a request.

use serde_json::Value;

use super::{status::Status, watcher::Opened};

pub enum Answer {
    /// An object, a list or a Status, with its code.
    Json(u16, Value),
    Watch(Opened),
    NoSuchPath,
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Self::Json(status.code, status.to_value())
    }
}

impl Answer {
    pub fn code(&self) -> u16 {
        match self {
            Self::Json(code, _) => *code,
            Self::Watch(_) => 200,
            Self::NoSuchPath => 404,
        }
    }
}
