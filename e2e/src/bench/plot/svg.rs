//! A picture as SVG that reads well on a light page and on a dark one: what it is drawn with.

use std::fmt::Write;

/// Colours by the reader's own choice of light or dark.
const STYLE: &str = "\
text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
.page{fill:#fff}.title{font-weight:600;font-size:13px}.small{font-size:10px}.tiny{font-size:9px}.faint{fill:#59636e}\
.grid{stroke:#d1d9e0;stroke-width:1}.whisker{stroke:#1f2328;stroke-width:1}.curve{fill:none;stroke-width:2}\
.a{fill:#0969da;stroke:#0969da}.b{fill:#bc4c00;stroke:#bc4c00}.c{fill:#818b98;stroke:#818b98}.d{fill:#1a7f37;stroke:#1a7f37}\
.bar{stroke:none}.pale{opacity:.38}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}.faint{fill:#9198a1}.grid{stroke:#30363d}\
.whisker{stroke:#e6edf3}.a{fill:#4493f8;stroke:#4493f8}.b{fill:#f0883e;stroke:#f0883e}.c{fill:#9198a1;stroke:#9198a1}.d{fill:#3fb950;stroke:#3fb950}}";

/// Where a text begins, or ends, at its place.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// A picture that is being drawn. All lengths are in pixels, from the upper left corner.
pub struct Svg {
    body: String,
    width: f64,
    height: f64,
}

impl Svg {
    /// An empty one of this size, with what it shows in words.
    pub fn new(width: f64, height: f64, shows: &str) -> Self {
        let body = format!("<title>{}</title><style>{STYLE}</style>", escaped(shows));
        let mut svg = Self { body, width, height };
        svg.rect(0.0, 0.0, width, height, "page");
        svg
    }

    /// A filled rectangle.
    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        let height = height.max(0.0);
        self.put(&format!(r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" class="{class}"/>"#));
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(&format!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#));
    }

    /// A line through these points, with a dot at each.
    pub fn curve(&mut self, points: &[(f64, f64)], class: &str) {
        let mut path = String::new();
        for (x, y) in points {
            // Writing to a string does not fail.
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        // A style of its own, for the class fills what is drawn.
        self.put(&format!(r#"<polyline points="{}" class="{class} curve" style="fill:none"/>"#, path.trim_end()));
        for (x, y) in points {
            self.put(&format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" class="{class} bar"/>"#));
        }
    }

    /// A line of text, whose foot is at `y`.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.put(&format!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#));
    }

    /// The whole file.
    pub fn finish(self) -> String {
        let Self { body, width, height } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\">{body}\n</svg>\n"
        )
    }

    fn put(&mut self, element: &str) {
        self.body.push('\n');
        self.body.push_str(element);
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_in_the_file_in_order() {
        let mut svg = Svg::new(100.0, 50.0, "a < b");
        svg.curve(&[(0.0, 1.0), (2.0, 3.0)], "a");
        svg.text((1.0, 2.0), Anchor::End, "small", "1 & 2");
        let file = svg.finish();
        assert!(file.starts_with("<svg ") && file.ends_with("</svg>\n"));
        assert!(file.contains("<title>a &lt; b</title>") && file.contains("1 &amp; 2</text>"));
        assert!(file.find("0.0,1.0 2.0,3.0").unwrap() < file.find("1 &amp; 2").unwrap());
    }
}
