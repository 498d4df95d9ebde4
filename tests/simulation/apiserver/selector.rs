//! Label selectors, as lists and watches carry them. Pure.

use serde_json::Value;

/// Requirements that a label set must all meet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    Equals(String, String),
    Differs(String, String),
    Exists(String),
    Absent(String),
}

impl Selector {
    /// Reads `a=b,c!=d,e,!f`. Set-based requirements are refused: nothing here may be understood
    /// in half.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let requirements = parts.map(Requirement::parse).collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    /// Whether an object's labels meet every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.requirements.iter().all(|requirement| match requirement {
            Requirement::Equals(key, value) => labels[key] == value.as_str(),
            Requirement::Differs(key, value) => labels[key] != value.as_str(),
            Requirement::Exists(key) => !labels[key].is_null(),
            Requirement::Absent(key) => labels[key].is_null(),
        })
    }
}

impl Requirement {
    fn parse(part: &str) -> Result<Self, String> {
        if part.contains([' ', '(', ')']) {
            return Err(format!("this API server knows no set-based selectors: {part}"));
        }
        let owned = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Ok(if let Some((key, value)) = part.split_once("!=") {
            let (key, value) = owned(key, value);
            Self::Differs(key, value)
        } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            let (key, value) = owned(key, value);
            Self::Equals(key, value)
        } else if let Some(key) = part.strip_prefix('!') {
            Self::Absent(key.to_owned())
        } else {
            Self::Exists(part.to_owned())
        })
    }
}
