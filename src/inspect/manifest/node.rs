//! A YAML value with the place of each of its parts. Its JSON is what kubectl would send for it.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Location, Spanned};

#[derive(Debug)]
pub(super) enum YamlNode {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<YamlNode>>),
    Map(Vec<(String, Spanned<YamlNode>)>),
}

impl YamlNode {
    pub(super) fn get(&self, key: &str) -> Option<&Spanned<YamlNode>> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the text under this key.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.value {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the name of a list item; claim templates have it in their metadata.
    pub(super) fn item_name(&self) -> Option<&str> {
        self.text("name").or_else(|| self.get("metadata")?.value.text("name"))
    }

    /// Returns the nearest remaining neighbour, with its key, of the child `gone`, which only the earlier version `was` of this
    /// map or list has. Any child below it is preferred to those above.
    pub(super) fn neighbour<'n>(
        &'n self,
        was: &'n Self,
        gone: &str,
    ) -> Option<(&'n str, &'n Spanned<YamlNode>)> {
        let names = was.names();
        let at = names.iter().position(|name| *name == gone)?;
        let near = names[at + 1..].iter().chain(names[..at].iter().rev());
        near.filter(|name| !name.is_empty()).find_map(|name| Some((*name, self.child(name)?)))
    }

    /// Returns the keys of a map, or the names of the items of a list.
    fn names(&self) -> Vec<&str> {
        match self {
            Self::Map(entries) => entries.iter().map(|(key, _)| &**key).collect(),
            Self::List(items) => items.iter().map(|it| it.value.item_name().unwrap_or_default()).collect(),
            _ => Vec::new(),
        }
    }

    /// Drops everything but the value of this key, and returns it.
    pub(super) fn into_entry(self, key: &str) -> Option<Self> {
        let Self::Map(entries) = self else { return None };
        entries.into_iter().find(|(name, _)| name == key).map(|(_, value)| value.value)
    }

    /// Adds an implied value; its place is that of the map that it is added to.
    pub(super) fn add_text(&mut self, key: &str, text: &str, at: &Location) {
        if let Self::Map(entries) = self {
            entries.push((
                key.to_owned(),
                Spanned { value: Self::Text(text.to_owned()), referenced: *at, defined: *at },
            ));
        }
    }

    /// Returns the value of a key, or the list item with this name or number.
    pub(super) fn child(&self, name: &str) -> Option<&Spanned<YamlNode>> {
        match self {
            Self::List(items) => {
                let named = items.iter().find(|item| item.value.item_name() == Some(name));
                named.or_else(|| items.get(name.parse::<usize>().ok()?))
            }
            _ => self.get(name),
        }
    }

    pub(super) fn json(&self) -> Value {
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

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(AnyNode)
    }
}

struct AnyNode;

impl<'de> de::Visitor<'de> for AnyNode {
    type Value = YamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }
    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Null)
    }
    fn visit_bool<E>(self, it: bool) -> Result<YamlNode, E> {
        Ok(YamlNode::Bool(it))
    }
    fn visit_i64<E>(self, it: i64) -> Result<YamlNode, E> {
        Ok(YamlNode::Number(it.into()))
    }
    fn visit_u64<E>(self, it: u64) -> Result<YamlNode, E> {
        Ok(YamlNode::Number(it.into()))
    }
    fn visit_f64<E>(self, it: f64) -> Result<YamlNode, E> {
        Ok(Number::from_f64(it).map_or(YamlNode::Null, YamlNode::Number))
    }
    fn visit_str<E>(self, it: &str) -> Result<YamlNode, E> {
        Ok(YamlNode::Text(it.to_owned()))
    }
    fn visit_string<E>(self, it: String) -> Result<YamlNode, E> {
        Ok(YamlNode::Text(it))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<YamlNode, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(YamlNode::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlNode, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(YamlNode::Map(entries))
    }
}
