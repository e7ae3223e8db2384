//! The place where a user finds the rules' pages: the program, or the ConfigMap that the chart installs.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// `gatera explain` prints them.
    #[default]
    Program,
    /// A ConfigMap holds every page under the id of its rule.
    ConfigMap { namespace: String, name: String },
}

impl Pages {
    /// Reads `NAMESPACE/NAME` of a ConfigMap. Both become part of a command, so they must be valid names of objects.
    pub fn read(text: &str) -> Option<Self> {
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
        };
        let (namespace, name) =
            text.split_once('/').filter(|(namespace, name)| is_name(namespace) && is_name(name))?;
        Some(Self::ConfigMap { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_names_become_part_of_a_command() {
        for text in ["", "a", "a/", "/b", "a/b/c", "a/$(b)", "a/b c", "a/'", "-n/b", "a/-o", "A/b"] {
            assert_eq!(Pages::read(text), None, "{text}");
        }
    }
}
