//! Label selectors as objects write them: `matchLabels` and `matchExpressions`.

use serde::Deserialize;

use super::Labels;
use super::meta::list;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Selector {
    /// The labels that a pod must have.
    pub match_labels: Labels,
    /// The conditions that a pod's labels must meet.
    #[serde(deserialize_with = "list")]
    pub match_expressions: Vec<Expression>,
}

/// A condition for one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Expression {
    pub key: String,
    pub operator: String,
    #[serde(deserialize_with = "list")]
    pub values: Vec<String>,
}

impl Selector {
    /// Returns whether the selector has no conditions. In a budget or an affinity term that means every pod, in a
    /// workload none.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Returns the selector with every label as an expression.
    pub fn as_expressions(&self) -> Vec<Expression> {
        let label = |(key, value): (&String, &String)| Expression {
            key: key.clone(),
            operator: "In".to_owned(),
            values: vec![value.clone()],
        };
        self.match_labels.iter().map(label).chain(self.match_expressions.iter().cloned()).collect()
    }

    /// Returns whether it selects these labels. An empty selector selects nothing.
    pub fn selects(&self, labels: &Labels) -> bool {
        !self.is_empty()
            && self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|expression| expression.holds(labels))
    }
}

impl Expression {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match &*self.operator {
            "In" => value.is_some_and(|value| self.values.contains(value)),
            "NotIn" => value.is_none_or(|value| !self.values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_expressions_hold_together() {
        let labels = Labels::from([("app".into(), "galera".into()), ("tier".into(), "db".into())]);
        for (json, selects) in [
            ("{}", false),
            (r#"{"matchLabels":{"app":"galera"}}"#, true),
            (r#"{"matchLabels":{"app":"web"}}"#, false),
            (r#"{"matchExpressions":[{"key":"app","operator":"In","values":["galera"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"app","operator":"NotIn","values":["galera"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"zone","operator":"NotIn","values":["a"]}]}"#, true),
            (
                r#"{"matchLabels":{"app":"galera"},"matchExpressions":[{"key":"tier","operator":"Exists"}]}"#,
                true,
            ),
            (
                r#"{"matchLabels":{"app":"galera"},"matchExpressions":[{"key":"tier","operator":"DoesNotExist"}]}"#,
                false,
            ),
            (r#"{"matchExpressions":[{"key":"app","operator":"Resembles"}]}"#, false),
        ] {
            let selector: Selector = serde_json::from_str(json).unwrap();
            assert_eq!(selector.selects(&labels), selects, "{json}");
        }
    }
}
