//! Manifests: YAML text in, documents with positions out.
//!
//! Owns: reading YAML, and finding the line of a finding's field. Must not know: rules, files. A finding
//! refers to list items by their names (`containers[mariadb]`), so that its field means the same in kubectl and in CI.

mod node;
mod part;

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use serde_json::Value;
use serde_saphyr::Spanned;

use self::node::YamlNode;
use self::part::Part;
pub(crate) use self::part::TEMPLATE_PROBLEM;
pub use self::part::{YamlError, looks_like_manifest};
use facts::galera::options;

/// One document of a text.
#[derive(Debug)]
pub struct YamlDocument {
    root: Spanned<YamlNode>,
    /// The part of the text that holds it.
    text: Arc<str>,
    /// The number of lines above that part.
    lines_above: u64,
    /// The template that it was rendered from, as Helm notes it above each document.
    pub template: Option<String>,
}

/// A place in a file, both counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "line and column")]
pub struct Place {
    pub line: u64,
    pub column: u64,
}

/// Reads every document of a text. Empty documents are skipped, and lists are replaced by their items. A YAML error affects only
/// the part between two `---`.
pub fn read(text: &str) -> Documents {
    part::split(text.trim_start_matches('\u{feff}')).flat_map(|part| documents_of(&part)).collect()
}

/// The documents of one text.
pub type Documents = Vec<Result<YamlDocument, YamlError>>;

/// Reads the documents of each text, on all processors: reading YAML takes more than half of the time of a check.
pub fn read_all(texts: &[&str]) -> Vec<Documents> {
    let share = texts.len().div_ceil(thread::available_parallelism().map_or(1, NonZero::get)).max(1);
    thread::scope(|scope| {
        let shares: Vec<_> = texts
            .chunks(share)
            .map(|texts| scope.spawn(move || texts.iter().map(|text| read(text)).collect::<Vec<_>>()))
            .collect();
        shares.into_iter().flat_map(|it| it.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

fn documents_of(part: &Part<'_>) -> Documents {
    let (lines_above, template) = (part.lines_above, part.template());
    let roots = match part.parse() {
        Ok(roots) => roots,
        Err(problem) => return vec![Err(problem)],
    };
    let full = roots.into_iter().filter(|root| !matches!(root.value, YamlNode::Null));
    let text: Arc<str> = part.text.into();
    full.flat_map(items_or_self)
        .map(|root| {
            Ok(YamlDocument { root, text: Arc::clone(&text), lines_above, template: template.clone() })
        })
        .collect()
}

/// Returns the items of a list, or the object itself. kubectl treats any object with a kind and `items` as a list, and so does
/// this function, also for lists in lists. An item without kind and apiVersion has those of the list: an item of a
/// `ConfigMapList` is a ConfigMap.
fn items_or_self(root: Spanned<YamlNode>) -> Vec<Spanned<YamlNode>> {
    let is_list = matches!(root.value.get("items").map(|it| &it.value), Some(YamlNode::List(_)))
        && root.value.get("kind").is_some();
    if !is_list {
        return vec![root];
    }
    let text = |key: &str| root.value.text(key).unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let Some(YamlNode::List(items)) = root.value.into_entry("items") else { return Vec::new() };
    let of_kind = kind.strip_suffix("List").filter(|kind| !kind.is_empty());
    let named = items.into_iter().map(|mut item| {
        if let Some(kind) =
            of_kind.filter(|_| item.value.get("kind").is_none() && item.value.get("apiVersion").is_none())
        {
            item.value.add_text("apiVersion", &version, &item.referenced);
            item.value.add_text("kind", kind, &item.referenced);
        }
        item
    });
    named.flat_map(items_or_self).collect()
}

impl YamlDocument {
    /// Returns the document as JSON, as kubectl would send it.
    pub fn json(&self) -> Value {
        self.root.value.json()
    }

    /// Returns the text of a field at the top.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.root.value.text(key)
    }

    /// Returns where the document begins.
    pub fn start(&self) -> Place {
        self.place(&self.root)
    }

    /// Returns the place of a field, or of the nearest parent that exists.
    pub fn find(&self, field: &str) -> Place {
        self.find_since(field, None)
    }

    /// Returns the place of a field. If only the earlier version `before` has the field, returns the place where it was,
    /// otherwise the place of the nearest parent that exists.
    pub fn find_since(&self, field: &str, before: Option<&Self>) -> Place {
        let (mut node, mut was) = (&self.root, before.map(|it| &it.root));
        let mut lines = 0;
        let mut steps = steps(field);
        while let Some(step) = steps.next() {
            let (name, line) =
                step.rsplit_once(" line ").map_or((step, None), |(name, line)| (name, line.parse().ok()));
            let Some(next) = node.value.child(name) else {
                if let YamlNode::Text(text) = &node.value {
                    let inside = options::line_of(text, name, steps.next()).filter(|_| text.contains('\n'));
                    lines = inside.and_then(|line| u64::try_from(line).ok()).unwrap_or(0);
                } else if let Some((key, beside)) = was.and_then(|was| node.value.neighbour(&was.value, name))
                {
                    return self.key_place(key, beside);
                }
                break;
            };
            node = next;
            was = was.and_then(|it| it.value.child(name));
            // The place of a block text is its first line, not its `|`.
            lines = line
                .filter(|_| matches!(&node.value, YamlNode::Text(text) if text.contains('\n')))
                .unwrap_or(0);
        }
        if lines > 0 && self.is_block(node) { self.place_in_block(node, lines) } else { self.place(node) }
    }

    /// Returns the place at which a line of a block text begins, after its indentation.
    fn place_in_block(&self, node: &Spanned<YamlNode>, line: u64) -> Place {
        let number = node.referenced.line() + line - 1;
        let text = self.line(number).unwrap_or_default();
        let indent = text.chars().take_while(|c| c.is_whitespace()).count();
        let column = if text.trim().is_empty() { 1 } else { u64::try_from(indent).unwrap_or(0) + 1 };
        Place { line: self.lines_above + number, column }
    }

    /// Returns the place of a value's key, which may be some lines above the value, or of the value if its key is not found.
    fn key_place(&self, key: &str, value: &Spanned<YamlNode>) -> Place {
        /// The most lines between a key and its value: comments may stand there, but not many.
        const MOST_LINES: u64 = 20;
        let last = value.referenced.line();
        let of_key = |number: &u64| {
            let text = self.line(*number)?;
            let bare = text.trim_start_matches([' ', '-', '"', '\'']);
            let rest = bare.strip_prefix(key)?.trim_start_matches(['"', '\'']);
            let column = text.chars().count() - text.trim_start_matches([' ', '-']).chars().count() + 1;
            let place = Place { line: self.lines_above + number, column: u64::try_from(column).ok()? };
            rest.trim_start().starts_with(':').then_some(place)
        };
        let lines: Vec<_> = (last.saturating_sub(MOST_LINES).max(1)..=last).rev().collect();
        lines.iter().find_map(of_key).unwrap_or_else(|| self.place(value))
    }

    fn line(&self, number: u64) -> Option<&str> {
        self.text.lines().nth(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    /// Returns whether the lines of a text are lines of the file, unlike those of a text in quotes.
    fn is_block(&self, node: &Spanned<YamlNode>) -> bool {
        let before = usize::try_from(node.referenced.column()).unwrap_or_default().saturating_sub(1);
        let line = self.line(node.referenced.line());
        line.is_some_and(|line| line.chars().take(before).all(char::is_whitespace))
    }

    fn place(&self, node: &Spanned<YamlNode>) -> Place {
        Place { line: self.lines_above + node.referenced.line(), column: node.referenced.column() }
    }
}

/// Splits a field: `a.b[c.d].e` is a, b, c.d, e.
fn steps(field: &str) -> impl Iterator<Item = &str> {
    let mut rest = field;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches('.');
        let end = match rest.strip_prefix('[') {
            Some(inner) => {
                let close = inner.find(']')?;
                rest = &inner[close + 1..];
                return Some(&inner[..close]);
            }
            None => rest.find(['.', '[']).unwrap_or(rest.len()),
        };
        let (step, following) = rest.split_at(end);
        rest = following;
        (!step.is_empty()).then_some(step)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<YamlDocument> {
        read(text).into_iter().map(Result::unwrap).collect()
    }

    const TEXT: &str = "# first\napiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n  - name: b\n    env:\n    - {name: P, value: x}\n---\n---\nkind: ConfigMap\ndata:\n  g.cnf: |\n    [galera]\n    a = 1\n";

    #[test]
    fn fields_are_found_by_name() {
        for text in [TEXT.to_owned(), TEXT.replace('\n', "\r\n"), format!("\u{feff}{TEXT}")] {
            let documents = all(&text);
            assert_eq!(documents.len(), 2, "empty documents are skipped");
            let line = |document: usize, field: &str| documents[document].find(field).line;
            assert_eq!(line(0, "spec.containers[b].env[P].value"), 9);
            assert_eq!(line(0, "spec.containers[b].livenessProbe"), 7, "the nearest parent that exists");
            assert_eq!(line(0, "spec.containers[1].name"), 7);
            assert_eq!(line(1, "data[g.cnf line 2]"), 16, "a line inside a block text");
            assert_eq!(line(1, "data[g.cnf].a"), 16, "an option in it");
            assert_eq!(line(0, ""), 2);
        }
    }

    #[test]
    fn a_claim_template_is_found_by_its_name() {
        let set = all(
            "kind: StatefulSet\nspec:\n  volumeClaimTemplates:\n  - metadata: {name: logs}\n  - metadata: {name: data}\n    spec:\n      resources:\n        requests:\n          storage: 1Gi\n",
        );
        let place = set[0].find("spec.volumeClaimTemplates[data].spec.resources.requests.storage");
        assert_eq!(place, Place { line: 9, column: 20 });
    }

    #[test]
    fn a_removed_field_is_found_at_its_former_place() {
        let before = "kind: Pod\nspec:\n  a: 1\n  affinity:\n    x: 1\n  tail:\n    # why\n    y: 1\n  list:\n  - name: b\n  - name: c\n  - name: d\n";
        let before = &all(before)[0];
        for (after, field, place) in [
            ("kind: Pod\nspec:\n  a: 1\n  tail:\n    # why\n    y: 1\n", "spec.affinity.x", (4, 3)),
            ("kind: Pod\nspec:\n  a: 1\n", "spec.affinity", (3, 3)),
            ("kind: Pod\nspec:\n  other: 1\n", "spec.affinity", (3, 3)),
            ("kind: Pod\nspec:\n  list:\n  - name: b\n  - name: d\n", "spec.list[c].image", (5, 5)),
            ("kind: Pod\n", "spec.affinity", (1, 1)),
        ] {
            let found = all(after)[0].find_since(field, Some(before));
            assert_eq!((found.line, found.column), place, "{after}");
        }
    }

    #[test]
    fn a_line_of_a_quoted_text_is_not_a_line_of_the_file() {
        let quoted = all("data: {a: \"[galera]\\nb = 1\"}\n");
        assert_eq!(quoted[0].find("data[a line 2]"), Place { line: 1, column: 11 });
        let block = all("data:\n  a: |\n    [galera]\n    b = 1\n");
        assert_eq!(block[0].find("data[a line 2]").line, 4);
    }

    #[test]
    fn values_aliases_and_lists_are_read_as_kubectl_reads_them() {
        let documents = all("kind: List\nitems:\n- {a: 1, b: '1', c: true, d: , e: 1.5, f: 0x10}\n- {}\n");
        assert_eq!(documents.len(), 2);
        assert_eq!(documents[0].json().to_string(), r#"{"a":1,"b":"1","c":true,"d":null,"e":1.5,"f":16}"#);
        assert_eq!(all(r#"{"kind":"Pod"}"#).len(), 1);
        let merged = all("kind: Pod\nbase: &b {x: 1}\nspec:\n  <<: *b\n  y: 2\n");
        assert_eq!(merged[0].json()["spec"], serde_json::json!({ "x": 1, "y": 2 }));
    }

    /// As kubectl's `UnstructuredJSONScheme` does it.
    #[test]
    fn every_object_with_items_is_a_list() {
        let kinds = |text: &str| {
            let kind = |it: YamlDocument| {
                let json = it.json();
                format!(
                    "{} {}",
                    json["apiVersion"].as_str().unwrap_or("-"),
                    json["kind"].as_str().unwrap_or("-")
                )
            };
            all(text).into_iter().map(kind).collect::<Vec<_>>()
        };
        let text = "apiVersion: v1\nkind: ConfigMapList\nitems:\n- data: {}\n- {apiVersion: v1, kind: Secret}\n- {kind: Pod}\n";
        assert_eq!(kinds(text), ["v1 ConfigMap", "v1 Secret", "- Pod"]);
        assert_eq!(
            kinds("apiVersion: v1\nkind: List\nitems:\n- {a: 1}\n- {kind: PodList, items: [{}]}\n"),
            ["- -", " Pod"]
        );
        assert_eq!(kinds("apiVersion: v1\nkind: List\nitems: []\n"), [""; 0]);
        assert_eq!(kinds("apiVersion: v1\nkind: Config\nitems: 3\n"), ["v1 Config"]);
        let deep = format!("{}{{kind: Pod}}{}", "{kind: List, items: [".repeat(20), "]}".repeat(20));
        assert_eq!(kinds(&deep), ["- Pod"]);
    }

    #[test]
    fn a_yaml_error_has_a_place_and_affects_no_other_part() {
        let read =
            read("kind: Pod\n---\na: 1\nb: [\n---\nkind: Pod\n\tpassword: hunter2\n---\nkind: Secret\n");
        let lines: Vec<_> = read
            .iter()
            .map(|it| it.as_ref().map_or_else(|error| error.place.line, |it| it.start().line))
            .collect();
        assert_eq!(lines.len(), 4);
        assert!(read[1].is_err() && (4..=5).contains(&lines[1]), "{lines:?}");
        assert!(read[2].is_err() && (6..=7).contains(&lines[2]), "{lines:?}");
        assert_eq!(lines[3], 9);
        let error = read[2].as_ref().unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn a_long_text_holds_many_documents() {
        let text = "kind: ConfigMap\n---\n".repeat(10_000);
        assert_eq!(all(&text).len(), 10_000);
    }

    #[test]
    fn an_alias_bomb_is_an_error() {
        let mut bomb = String::from("a: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..12 {
            let refs = vec![format!("*a{}", n - 1); 10].join(", ");
            bomb.push_str(&format!("b{n}: &a{n} [{refs}]\n"));
        }
        let error = read(&bomb).remove(0).unwrap_err();
        assert_eq!(error.to_string(), "this is not YAML: its aliases expand to too much text");
    }
}
