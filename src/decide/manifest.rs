//! Manifests: YAML text in, documents with positions out.
//!
//! Owns: the reading of YAML and the way from a finding's field back to a line. Must not know: rules, files. A finding
//! names list items by their names (`containers[mariadb]`), so that its field means the same in kubectl and in CI.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

use crate::galera::options;

/// One document of a file.
#[derive(Debug)]
pub struct Document {
    root: Spanned<Node>,
}

/// A place in a file, both counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "line and column")]
pub struct Place {
    pub line: u64,
    pub column: u64,
}

/// The text is no YAML.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct NoYaml {
    /// Where it stops being YAML.
    pub place: Place,
    problem: String,
}

/// Reads every document of a text. Empty ones are left out; a `List` is opened.
pub fn read(text: &str) -> Result<Vec<Document>, NoYaml> {
    // Aliases may make a small text endless, so there are limits; a long text may hold as much as it is long.
    let (length, few) = (text.len(), serde_saphyr::Budget::default());
    let options = serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_documents: few.max_documents.max(length),
            max_events: few.max_events.max(length),
            max_nodes: few.max_nodes.max(length),
        },
    };
    let roots: Vec<Spanned<Node>> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
            let place =
                error.location().map(|it| Place { line: it.line(), column: it.column() }).unwrap_or_default();
            NoYaml { place, problem: first_line(&error.to_string()) }
        })?;
    let documents = roots.into_iter().filter(|root| !matches!(root.value, Node::Null));
    Ok(documents.flat_map(opened).collect())
}

/// The first line of the parser's words; what follows could quote the text, and the text could be a password.
fn first_line(problem: &str) -> String {
    problem.lines().next().unwrap_or_default().trim_end_matches(':').to_owned()
}

fn opened(root: Spanned<Node>) -> Vec<Document> {
    let is_list = matches!(root.value.get("kind"), Some(kind) if matches!(&kind.value, Node::Text(kind) if kind == "List"));
    match root.value {
        Node::Map(entries) if is_list => {
            let items = entries.into_iter().find(|(key, _)| key == "items").map(|(_, items)| items.value);
            let Some(Node::List(items)) = items else { return vec![] };
            items.into_iter().map(|root| Document { root }).collect()
        }
        _ => vec![Document { root }],
    }
}

impl Document {
    /// The document as JSON, which is how a webhook would get it.
    pub fn json(&self) -> Value {
        self.root.value.json()
    }

    /// Where the document begins.
    pub fn start(&self) -> Place {
        place(&self.root)
    }

    /// The place of a field, or of the nearest thing above it that is there.
    pub fn find(&self, field: &str) -> Place {
        let mut node = &self.root;
        let mut lines = 0;
        let mut steps = steps(field);
        while let Some(step) = steps.next() {
            let (name, line) =
                step.rsplit_once(" line ").map_or((step, None), |(name, line)| (name, line.parse().ok()));
            let Some(next) = node.value.step(name) else {
                if let Node::Text(text) = &node.value {
                    let inside = options::line_of(text, name, steps.next()).filter(|_| text.contains('\n'));
                    lines = inside.and_then(|line| u64::try_from(line).ok()).unwrap_or(0);
                }
                break;
            };
            node = next;
            // The place of a block text is its first line, not its `|`.
            lines =
                line.filter(|_| matches!(&node.value, Node::Text(text) if text.contains('\n'))).unwrap_or(0);
        }
        let Place { line, column } = place(node);
        if lines > 0 { Place { line: line + lines - 1, column: 1 } } else { Place { line, column } }
    }
}

fn place<T>(node: &Spanned<T>) -> Place {
    Place { line: node.referenced.line(), column: node.referenced.column() }
}

/// `a.b[c.d].e` is a, b, c.d, e.
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

#[derive(Debug)]
enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<Node>>),
    Map(Vec<(String, Spanned<Node>)>),
}

impl Node {
    fn get(&self, key: &str) -> Option<&Spanned<Node>> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// One step down: a key of a map, or the item of a list that has this name or number.
    fn step(&self, name: &str) -> Option<&Spanned<Node>> {
        let named = |item: &&Spanned<Node>| matches!(item.value.get("name"), Some(it) if matches!(&it.value, Node::Text(text) if text == name));
        match self {
            Self::List(items) => items.iter().find(named).or_else(|| items.get(name.parse::<usize>().ok()?)),
            _ => self.get(name),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(it) => Value::Bool(*it),
            Self::Number(it) => Value::Number(it.clone()),
            Self::Text(it) => Value::String(it.clone()),
            Self::List(items) => items.iter().map(|item| item.value.json()).collect(),
            Self::Map(entries) => Value::Object(
                entries.iter().map(|(key, it)| (key.clone(), it.value.json())).collect::<Map<_, _>>(),
            ),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(AnyNode)
    }
}

struct AnyNode;

impl<'de> de::Visitor<'de> for AnyNode {
    type Value = Node;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("YAML")
    }
    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }
    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, input: D) -> Result<Node, D::Error> {
        Node::deserialize(input)
    }
    fn visit_bool<E>(self, it: bool) -> Result<Node, E> {
        Ok(Node::Bool(it))
    }
    fn visit_i64<E>(self, it: i64) -> Result<Node, E> {
        Ok(Node::Number(it.into()))
    }
    fn visit_u64<E>(self, it: u64) -> Result<Node, E> {
        Ok(Node::Number(it.into()))
    }
    fn visit_f64<E>(self, it: f64) -> Result<Node, E> {
        Ok(Number::from_f64(it).map_or(Node::Null, Node::Number))
    }
    fn visit_str<E>(self, it: &str) -> Result<Node, E> {
        Ok(Node::Text(it.to_owned()))
    }
    fn visit_string<E>(self, it: String) -> Result<Node, E> {
        Ok(Node::Text(it))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# first\napiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n  - name: b\n    env:\n    - {name: P, value: x}\n---\n---\nkind: ConfigMap\ndata:\n  g.cnf: |\n    [galera]\n    a = 1\n";

    #[test]
    fn fields_are_found_by_name() {
        let documents = read(TEXT).unwrap();
        assert_eq!(documents.len(), 2, "empty documents are none");
        let line = |document: usize, field: &str| documents[document].find(field).line;
        assert_eq!(line(0, "spec.containers[b].env[P].value"), 9);
        assert_eq!(line(0, "spec.containers[b].livenessProbe"), 7, "the nearest thing that is there");
        assert_eq!(line(0, "spec.containers[1].name"), 7);
        assert_eq!(line(1, "data[g.cnf line 2]"), 16, "a line inside a block text");
        assert_eq!(line(1, "data[g.cnf].a"), 16, "an option in it");
        assert_eq!(line(0, ""), 2);
    }

    #[test]
    fn json_lists_numbers_and_text_are_what_kubectl_makes_of_them() {
        let documents =
            read("kind: List\nitems:\n- {a: 1, b: '1', c: true, d: , e: 1.5, f: 0x10}\n- {}\n").unwrap();
        assert_eq!(documents.len(), 2);
        assert_eq!(documents[0].json().to_string(), r#"{"a":1,"b":"1","c":true,"d":null,"e":1.5,"f":16}"#);
        assert_eq!(read(r#"{"kind":"Pod"}"#).unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_yaml_says_where() {
        let error = read("a: 1\nb: [\n").unwrap_err();
        assert!(error.place.line >= 2, "{error:?}");
        let error = read("kind: Pod\n\tpassword: hunter2\n").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn a_long_text_holds_many_documents() {
        let text = "kind: ConfigMap\n---\n".repeat(10_000);
        assert_eq!(read(&text).unwrap().len(), 10_000);
    }

    #[test]
    fn an_alias_bomb_is_an_error_and_no_outage() {
        let mut bomb = String::from("a: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..12 {
            let refs = vec![format!("*a{}", n - 1); 10].join(", ");
            bomb.push_str(&format!("b{n}: &a{n} [{refs}]\n"));
        }
        assert!(read(&bomb).is_err());
    }
}
