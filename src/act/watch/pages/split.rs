//! Separates the objects of a list from its text while the text arrives in pieces of any size.
//!
//! Must not know: the API server, and what an object is. The text without the objects holds the list's own metadata.

use std::mem::take;

use kube::core::ListMeta;
use serde::Deserialize;

/// The state of reading a list's text up to some byte.
#[derive(Debug, Default)]
pub(super) struct ListSplitter {
    /// The text of the list without its objects.
    rest: Vec<u8>,
    /// The text of the object that is not complete yet.
    object: Vec<u8>,
    /// The number of open braces and brackets.
    depth: usize,
    /// Whether the list's array of objects is open.
    in_items: bool,
    /// Whether the position is between two quotes.
    in_text: bool,
    /// Whether the previous byte was a backslash that escapes the next one.
    escaped: bool,
}

/// The depth within the array of objects, between its objects. The text of an object is deeper.
const ITEMS: usize = 2;

impl ListSplitter {
    /// Returns the number of bytes that are held of an object.
    pub(super) fn object_len(&self) -> usize {
        self.object.len()
    }

    /// Reads up to the end of an object or of this text. Returns the number of bytes used, and the object if it is complete.
    pub(super) fn take(&mut self, text: &[u8]) -> (usize, Option<Vec<u8>>) {
        let mut used = 0;
        while let Some(&byte) = text.get(used) {
            let rest = &text[used..];
            let plain = if self.in_text && !self.escaped {
                rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(rest.len())
            } else {
                0
            };
            if plain > 0 {
                self.buffer(self.depth).extend_from_slice(&rest[..plain]);
                used += plain;
                continue;
            }
            used += 1;
            if self.object_ends_with(byte) {
                return (used, Some(take(&mut self.object)));
            }
        }
        (used, None)
    }

    /// Reads one byte. Returns whether an object ends with it.
    fn object_ends_with(&mut self, byte: u8) -> bool {
        let before = self.depth;
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_text => self.escaped = true,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'{' | b'[' => {
                if self.depth == 1 {
                    self.in_items = byte == b'[' && is_items(&self.rest);
                }
                self.depth += 1;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            // Between two objects.
            _ if self.in_items && self.depth == ITEMS && (byte == b',' || byte.is_ascii_whitespace()) => {
                return false;
            }
            _ => {}
        }
        self.buffer(before.max(self.depth)).push(byte);
        self.in_items && before > ITEMS && self.depth == ITEMS
    }

    /// Returns the buffer for text of this depth.
    fn buffer(&mut self, depth: usize) -> &mut Vec<u8> {
        if self.in_items && depth > ITEMS { &mut self.object } else { &mut self.rest }
    }

    /// Returns the list's own metadata, once its text is complete.
    pub(super) fn metadata(&self) -> serde_json::Result<ListMeta> {
        #[derive(Deserialize)]
        struct List {
            #[serde(default)]
            metadata: ListMeta,
            /// Fails if anything among the objects is not an object, because that text is left here.
            #[serde(default, rename = "items")]
            _items: Option<[(); 0]>,
        }
        serde_json::from_slice(&self.rest).map(|List { metadata, .. }| metadata)
    }
}

/// Returns whether an array that opens after this text is the array of objects.
fn is_items(before: &[u8]) -> bool {
    let key = before.trim_ascii_end().strip_suffix(b":");
    key.is_some_and(|key| key.trim_ascii_end().ends_with(b"\"items\""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Returns the objects and the metadata of this list, which is read in pieces of these sizes.
    fn pieces(text: &str, sizes: &[usize]) -> (Vec<Value>, serde_json::Result<ListMeta>) {
        let (mut split, mut objects, mut left) = (ListSplitter::default(), Vec::new(), text.as_bytes());
        let mut sizes = sizes.iter().cycle();
        while !left.is_empty() {
            let (mut piece, rest) = left.split_at(left.len().min(*sizes.next().unwrap()));
            left = rest;
            while !piece.is_empty() {
                let (used, object) = split.take(piece);
                piece = &piece[used..];
                objects.extend(object.map(|it| serde_json::from_slice::<Value>(&it).unwrap()));
            }
        }
        assert_eq!(split.object_len(), 0);
        (objects, split.metadata())
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![Just("items".to_owned()), r#"[a"\\\\{}\[\]:, ]{0,6}"#];
        let leaf = prop_oneof![text.clone().prop_map(Value::from), any::<i64>().prop_map(Value::from)];
        leaf.prop_recursive(3, 12, 4, move |inner| {
            let list = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
            prop_oneof![
                list,
                prop::collection::hash_map(text.clone(), inner, 0..4)
                    .prop_map(|map| map.into_iter().collect())
            ]
        })
    }

    proptest! {
        #[test]
        fn objects_are_the_same_in_pieces_of_any_size(
            fields in prop::collection::vec(value(), 0..5),
            pretty: bool,
            sizes in prop::collection::vec(1_usize..20, 1..5),
            first: bool,
        ) {
            let objects: Vec<_> =
                fields.into_iter().map(|it| json!({ "items": [it], "metadata": { "name": "a" } })).collect();
            let (meta, items) = (json!({ "continue": "it", "resourceVersion": "7" }), json!(objects));
            // API servers write the metadata of a list of custom resources after its items.
            let (one, other) = if first { (("metadata", meta), ("items", items)) } else { (("items", items), ("metadata", meta)) };
            let print = |it: &Value| if pretty { format!("{it:#}") } else { it.to_string() };
            let text = format!("{{\"kind\":\"List\",\"{}\": {} ,\"{}\":{}}}\n", one.0, print(&one.1), other.0, print(&other.1));
            let (found, meta) = pieces(&text, &sizes);
            prop_assert_eq!(found, objects);
            prop_assert_eq!(meta.unwrap().continue_, Some("it".to_owned()));
        }
    }

    #[test]
    fn a_list_of_something_else_is_an_error_and_an_empty_list_is_not() {
        for invalid in
            [r#"{"metadata":{},"items":[1]}"#, r#"{"metadata":{},"items":["a"]}"#, r#"{"items":[{}"#]
        {
            assert!(pieces(invalid, &[3]).1.is_err(), "{invalid}");
        }
        for empty in ["{}", r#"{"items":null}"#, r#"{"metadata":{"resourceVersion":"1"},"items":[ ]}"#] {
            assert!(pieces(empty, &[3]).1.is_ok(), "{empty}");
        }
    }
}
