//! Extracts the metrics and labels of a PromQL expression. Not a full parser: `make test-alerts` checks the syntax with
//! promtool. Unknown syntax is an error. (The crate promql-parser brings 20 more crates, and does not know Grafana's variables.)

use std::collections::{BTreeMap, BTreeSet};

/// The metrics and labels of an expression.
#[derive(Debug, Default, PartialEq)]
pub struct Uses {
    /// Metrics, each with the labels in its selectors.
    pub metrics: BTreeMap<String, BTreeSet<String>>,
    /// Labels in groupings and joins.
    pub grouping: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A metric, a function, a label or a keyword.
    Word(String),
    Text,
    Sign(char),
}

/// Keywords before a list of labels.
const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Keywords between expressions.
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];
/// Aggregations: their grouping may come before their argument.
const AGGREGATIONS: [&str; 7] = ["sum", "max", "min", "avg", "count", "topk", "quantile"];

/// Parses an expression.
pub fn uses(expression: &str) -> Result<Uses, String> {
    let tokens = tokens(expression)?;
    let mut uses = Uses::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        let next = tokens.get(at);
        match token {
            Token::Word(word) if GROUPING.contains(&word.as_str()) => {
                if next == Some(&Token::Sign('(')) {
                    uses.grouping.extend(labels(&tokens, &mut at, ')')?);
                }
            }
            Token::Word(word) if OPERATORS.contains(&word.as_str()) || AGGREGATIONS.contains(&word.as_str()) => {}
            // A function.
            Token::Word(_) if next == Some(&Token::Sign('(')) => {}
            Token::Word(metric) => {
                let selects = uses.metrics.entry(metric.clone()).or_default();
                if next == Some(&Token::Sign('{')) {
                    selects.extend(labels(&tokens, &mut at, '}')?);
                }
            }
            Token::Sign('{') => return Err(format!("a selector without a metric: {expression}")),
            Token::Text | Token::Sign(_) => {}
        }
    }
    Ok(uses)
}

/// The words of the bracketed list that opens at `at`. Moves `at` behind its end.
fn labels(tokens: &[Token], at: &mut usize, close: char) -> Result<Vec<String>, String> {
    let length =
        tokens[*at..].iter().position(|token| *token == Token::Sign(close)).ok_or("a bracket is not closed")?;
    let list = &tokens[*at..*at + length];
    *at += length + 1;
    let word = |token: &Token| if let Token::Word(word) = token { Some(word.clone()) } else { None };
    Ok(list.iter().filter_map(word).collect())
}

/// The tokens, without numbers and ranges (in square brackets).
fn tokens(expression: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' | '\'' => 1 + text_length(&rest[1..], first).ok_or(format!("a text is not closed: {rest}"))?,
            '[' => 1 + rest.find(']').ok_or(format!("a range is not closed: {rest}"))?,
            'a'..='z' | 'A'..='Z' | '_' => rest.find(|c: char| !is_in_word(c)).unwrap_or(rest.len()),
            '0'..='9' => rest.find(|c: char| !is_in_word(c) && c != '.').unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let token = match first {
            '"' | '\'' => Some(Token::Text),
            'a'..='z' | 'A'..='Z' | '_' => Some(Token::Word(rest[..length].to_owned())),
            '[' | '0'..='9' | '.' => None,
            _ if first.is_whitespace() => None,
            _ if "(){},=!~<>+-*/%^".contains(first) => Some(Token::Sign(first)),
            _ => return Err(format!("unknown syntax: {rest}")),
        };
        tokens.extend(token);
        rest = &rest[length..];
    }
    Ok(tokens)
}

fn is_in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// The length of the text, with its closing quote.
fn text_length(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c == quote && !escaped {
            return Some(at + 1);
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

#[test]
fn metrics_and_labels_are_extracted() {
    let read = |expression: &str| {
        let Uses { metrics, grouping } = uses(expression).unwrap();
        let metric = |(name, labels): (&String, &BTreeSet<String>)| {
            format!("{name}{{{}}}", labels.iter().cloned().collect::<Vec<_>>().join(","))
        };
        let metrics: Vec<_> = metrics.iter().map(metric).collect();
        (metrics.join(" "), grouping.into_iter().collect::<Vec<_>>().join(","))
    };
    let is = |metrics: &str, grouping: &str| (metrics.to_owned(), grouping.to_owned());
    assert_eq!(read("up"), is("up{}", ""));
    assert_eq!(read(r#"rate(a_total{x="{b\"}", y!~"c"}[5m]) * 100"#), is("a_total{x,y}", ""));
    assert_eq!(read("sum by (le, z) (rate(a{}[$__rate_interval])) / 1e3"), is("a{}", "le,z"));
    assert_eq!(read("sum(a) by (z) or absent(b{c='d'}) > 0.5"), is("a{} b{c}", "z"));
    assert_eq!(read("(time() - a) * on (pod) group_left (version) b"), is("a{} b{}", "pod,version"));
    assert_eq!(read("a unless b offset 5m"), is("a{} b{}", ""));
    for wrong in [r#"{job="x"}"#, "a{b", "a[5m", r#"a{b="c}"#, "a ; b"] {
        assert!(uses(wrong).is_err(), "{wrong}");
    }
}
