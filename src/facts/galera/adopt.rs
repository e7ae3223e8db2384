//! Adoption: which pod templates are Galera's, by label.
//!
//! The selectors are written as for `kubectl -l` and are kept as data, because they have three uses: this file compares labels
//! with them, `webhooks.rs` writes them into webhook entries, and `watch.rs` lists and watches objects by them.

use std::fmt;
use std::str::FromStr;

use objects::Labels;

/// A label selector that is written as text: all of its requirements must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSelector(Vec<Requirement>);

/// A requirement for one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    /// Its allowed values; empty: any value, as long as the label exists.
    pub values: Vec<String>,
}

/// Selectors: a pod is adopted if one of them selects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoption(Vec<TextSelector>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a label selector that can adopt pods; write it as `key`, `key=value` or `key in (a, b)`, joined by commas"
)]
pub struct BadSelector(String);

/// The default selectors: gatera's own label, the labels of the seed documents (docs/seeds.md), and the label of Bitnami's chart.
/// A test proves that each of them is valid.
const DEFAULT_SELECTORS: [&str; 3] = [
    "gatera.dev/cluster",
    "app in (galera, galera-bootstrap),instance",
    "app.kubernetes.io/name=mariadb-galera",
];

impl Default for Adoption {
    fn default() -> Self {
        Self(DEFAULT_SELECTORS.iter().filter_map(|text| text.parse().ok()).collect())
    }
}

impl Adoption {
    /// Reads the settings: one text per selector.
    pub fn from_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, BadSelector> {
        texts.into_iter().map(str::parse).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the selectors of both.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        for selector in others.0 {
            if !self.0.contains(&selector) {
                self.0.push(selector);
            }
        }
        self
    }

    /// Returns whether these labels are adopted.
    pub fn adopts(&self, labels: &Labels) -> bool {
        self.0.iter().any(|selector| selector.selects(labels))
    }

    /// Returns the selectors.
    pub fn selectors(&self) -> &[TextSelector] {
        &self.0
    }
}

impl TextSelector {
    /// Returns whether it selects an object with these labels.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        labels.get(&self.key).is_some_and(|value| self.values.is_empty() || self.values.contains(value))
    }
}

/// Labels that name a cluster; the first that exists counts.
pub const INSTANCE_LABELS: [&str; 3] = ["gatera.dev/cluster", "instance", "app.kubernetes.io/instance"];

/// The label of a pod that only reads a member's data; its value is the member. The pod belongs to no cluster, so that
/// no Service, budget or anti-affinity counts it.
pub const READER_LABEL: &str = "gatera.dev/reads";

/// Returns the cluster that a pod belongs to in its namespace, by the label that names it.
pub fn instance(labels: &Labels) -> Option<&str> {
    INSTANCE_LABELS.iter().find_map(|key| labels.get(key)).map(|value| &**value)
}

/// Returns whether a pod has the seed documents' label of a bootstrap node.
pub fn is_bootstrap(labels: &Labels) -> bool {
    labels.get("app").is_some_and(|app| app == "galera-bootstrap")
}

impl FromStr for TextSelector {
    type Err = BadSelector;

    fn from_str(text: &str) -> Result<Self, BadSelector> {
        let bad = || BadSelector(text.to_owned());
        let mut requirements = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            // A comma inside parentheses separates values.
            let (this, following) = match (rest.find(','), rest.find('('), rest.find(')')) {
                (Some(comma), Some(open), Some(close)) if open < comma && comma < close => {
                    (&rest[..=close], rest[close + 1..].trim_start().trim_start_matches(','))
                }
                (Some(comma), ..) => (&rest[..comma], &rest[comma + 1..]),
                (None, ..) => (rest, ""),
            };
            requirements.push(requirement(this.trim()).ok_or_else(bad)?);
            rest = following.trim();
        }
        if requirements.is_empty() { Err(bad()) } else { Ok(Self(requirements)) }
    }
}

fn requirement(text: &str) -> Option<Requirement> {
    let (key, values) = if let Some((key, values)) = text.split_once(" in ") {
        let values = values.trim().strip_prefix('(')?.strip_suffix(')')?;
        (key, values.split(',').map(|value| value.trim().to_owned()).collect::<Vec<_>>())
    } else if let Some((key, value)) = text.split_once('=') {
        (key, vec![value.trim_start_matches('=').trim().to_owned()])
    } else {
        (text, vec![])
    };
    let key = key.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let good = |word: &String| !word.is_empty() && word.chars().all(plain);
    (!key.is_empty() && key.chars().all(plain) && values.iter().all(good))
        .then(|| Requirement { key: key.to_owned(), values })
}

/// Prints the selector as `kubectl -l` accepts it.
impl fmt::Display for TextSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, values }) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match values.as_slice() {
                [] => write!(f, "{comma}{key}")?,
                [value] => write!(f, "{comma}{key}={value}")?,
                values => write!(f, "{comma}{key} in ({})", values.join(","))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn the_default_selectors_adopt_by_known_labels() {
        let adoption = Adoption::default();
        assert!(adoption.adopts(&labels(&[("app", "galera"), ("instance", "a")])));
        assert!(adoption.adopts(&labels(&[("app", "galera-bootstrap"), ("instance", "a")])));
        assert!(adoption.adopts(&labels(&[("gatera.dev/cluster", "")])));
        assert!(adoption.adopts(&labels(&[("app.kubernetes.io/name", "mariadb-galera")])));
        assert!(!adoption.adopts(&labels(&[("app", "galera")])), "the label instance is missing");
        assert!(!adoption.adopts(&labels(&[("app", "web"), ("instance", "a")])));
    }

    #[test]
    fn selectors_are_written_as_they_are_read() {
        for text in
            ["gatera.dev/cluster", "app in (galera,galera-bootstrap),instance", "a=b,c", "c,a in (x,y)"]
        {
            assert_eq!(text.parse::<TextSelector>().unwrap().to_string(), text);
        }
        assert_eq!("app in (a, b) , x == y".parse::<TextSelector>().unwrap().to_string(), "app in (a,b),x=y");
        for text in ["", "!app", "a notin (b)", "a in b", "a b", "a=", "a in ()", "a'||true=b"] {
            assert!(text.parse::<TextSelector>().is_err(), "{text}");
        }
        let written = Adoption::default().selectors().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(written.len(), DEFAULT_SELECTORS.len());
        assert_eq!(Adoption::from_texts(written.iter().map(|text| &**text)), Ok(Adoption::default()));
    }
}
