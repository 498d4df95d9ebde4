//! Prometheus' two text formats. Pure.

/// A text format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// OpenMetrics, with exemplars.
    OpenMetrics,
    /// The older format, and the default. Its parsers fail on exemplars.
    Classic,
}

impl Format {
    /// The format for the `Accept` header of a request.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Format::OpenMetrics } else { Format::Classic }
    }

    /// The `Content-Type` of this format.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Converts a text from OpenMetrics to the classic format: removes exemplars, units and the end marker. HELP and TYPE of counters and infos
/// get the suffix that their samples have.
pub(super) fn classic(text: &str) -> String {
    let mut classic = String::with_capacity(text.len());
    // A HELP comes right before the TYPE of its metric.
    let mut help = "";
    for line in text.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|typed| typed.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            let help = help.strip_prefix(name).unwrap_or_default();
            classic.extend(["# HELP ", name, suffix, help, "\n# TYPE ", name, suffix, " ", kind, "\n"]);
        } else {
            let sample = line.split_once(" # {").map_or(line, |(sample, _)| sample);
            classic.extend([sample, "\n"]);
        }
    }
    classic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_served_only_if_accepted() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        for accept in ["", "*/*", "text/plain"] {
            assert_eq!(Format::accepted(accept), Format::Classic, "{accept}");
        }
    }

    #[test]
    fn the_classic_text_has_no_exemplars_and_describes_sample_names() {
        let text = "# HELP requests Requests.\n# TYPE requests counter\n# UNIT requests pods\nrequests_total{code=\"200\"} 3\n\
                    # HELP build The version.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n\
                    # HELP time Times.\n# TYPE time histogram\ntime_bucket{le=\"1.0\"} 2 # {trace_id=\"ab\"} 0.5\n# EOF\n";
        let expected = "# HELP requests_total Requests.\n# TYPE requests_total counter\nrequests_total{code=\"200\"} 3\n\
                       # HELP build_info The version.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n\
                       # HELP time Times.\n# TYPE time histogram\ntime_bucket{le=\"1.0\"} 2\n";
        assert_eq!(classic(text), expected);
    }
}
