//! Turns a page of the Prometheus text format into samples that can be asked for by name and labels.

/// One line of the page.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The metric's name, with `_count`, `_sum` or `_bucket` where it is a histogram.
    pub name: String,
    /// Its labels, in the page's order, unescaped.
    pub labels: Vec<(String, String)>,
    /// Its value; seconds where the name says so.
    pub value: f64,
}

impl Sample {
    /// The value of the label `name`.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

/// A parsed page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    samples: Vec<Sample>,
}

impl Page {
    /// Parses a page. Comments and lines that are not samples are dropped; the timestamps of samples too.
    #[must_use]
    pub fn parse(text: &str) -> Page {
        Page { samples: text.lines().filter_map(sample).collect() }
    }

    /// All samples, in the page's order.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The samples called `name` that carry every one of `labels` (others may be there).
    pub fn find<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            sample.name == name && labels.iter().all(|(label, value)| sample.label(label) == Some(value))
        })
    }

    /// The value of the first such sample.
    #[must_use]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.find(name, labels).next().map(|sample| sample.value)
    }

    /// The sum over all such samples; 0 when there is none, which is what a counter that never counted is.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels).map(|sample| sample.value).sum()
    }
}

fn sample(line: &str) -> Option<Sample> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inner) => labels(inner)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?; // "NaN", "+Inf" and exponents are f64's syntax too.
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Parses `name="value",…}` and gives what follows the brace.
fn labels(mut text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let (value, rest) = quoted(rest)?;
        labels.push((name.trim().to_owned(), value));
        text = rest;
    }
}

/// Reads a label value up to its closing quote: `\\`, `\"` and `\n` are its escapes.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            _ => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP x y\n# TYPE h histogram\n\
        h_bucket{op=\"list\",le=\"0.005\"} 3\n\
        h_bucket{op=\"list\",le=\"+Inf\"} 4\n\
        h_sum{op=\"list\"} 1.5e-02\n\
        h_count{op=\"list\"} 4 1700000000000\n\
        h_count{op=\"exec\",} 2\n\
        plain 7\n\
        odd{path=\"a\\\\b\\\"c}\\n\"} NaN\n\
        broken{a=\"b 1\n";

    #[test]
    fn samples_are_found_by_name_and_labels() {
        let page = Page::parse(PAGE);
        assert_eq!(page.value("h_count", &[("op", "list")]), Some(4.0));
        assert_eq!(page.value("h_sum", &[("op", "list")]), Some(0.015));
        assert_eq!(page.value("h_bucket", &[("op", "list"), ("le", "+Inf")]), Some(4.0));
        assert_eq!(page.value("plain", &[]), Some(7.0));
        assert_eq!(page.value("h_count", &[("op", "stop")]), None);
        assert_eq!(page.sum("h_count", &[]), 6.0);
        assert_eq!(page.sum("never", &[]), 0.0);
    }

    #[test]
    fn label_values_are_unescaped_and_broken_lines_dropped() {
        let page = Page::parse(PAGE);
        let odd = page.find("odd", &[]).next().unwrap();
        assert_eq!(odd.label("path"), Some("a\\b\"c}\n"));
        assert!(odd.value.is_nan());
        assert_eq!(page.find("broken", &[]).count(), 0);
    }
}
