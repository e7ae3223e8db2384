//! Where the pages of rules are: with the program, or in the ConfigMap that the chart installs.

/// Where pages are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// `gatera explain` prints them.
    #[default]
    Program,
    /// Every page under the id of its rule.
    ConfigMap {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Pages {
    /// `NAMESPACE/NAME` of a ConfigMap. It becomes part of a command, so it has to be what objects are called.
    pub fn read(text: &str) -> Option<Self> {
        let called = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
        };
        let (namespace, name) =
            text.split_once('/').filter(|(namespace, name)| called(namespace) && called(name))?;
        Some(Self::ConfigMap { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_part_of_a_command_is_a_name() {
        for text in ["", "a", "a/", "/b", "a/b/c", "a/$(b)", "a/b c", "a/'", "-n/b", "a/-o", "A/b"] {
            assert_eq!(Pages::read(text), None, "{text}");
        }
    }
}
