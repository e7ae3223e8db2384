//! The environment of a container when it runs: variables from ConfigMaps, and command-line words that use variables.
//!
//! Values from Secrets stay unknown: the guard reads no Secrets.

use std::borrow::Cow;

use super::View;
use objects::{Container, EnvVar, Literal};

impl View<'_> {
    /// Returns the container with every variable filled in that can be known.
    pub(super) fn filled_in<'c>(&self, namespace: &str, container: &'c Container) -> Cow<'c, Container> {
        let mut words = container.command.iter().chain(&container.args);
        let of_a_map =
            |var: &EnvVar| var.value_from.as_ref().is_some_and(|it| it.config_map_key_ref.is_some());
        let refers = container.env_from.iter().any(|from| from.config_map_ref.is_some())
            || container.env.iter().any(of_a_map)
            || words.any(|word| word.look().contains("$("));
        if !refers {
            return Cow::Borrowed(container);
        }
        let text = |map: &str| self.config_map(namespace, map);
        let mut filled = container.clone();
        let whole = container.env_from.iter().filter_map(|from| text(&from.config_map_ref.as_ref()?.name));
        let whole = whole.flat_map(|map| map.data.iter()).map(|(name, value)| EnvVar {
            name: name.clone(),
            value: value.clone(),
            value_from: None,
        });
        // Variables that are named one by one win over those from `envFrom`.
        filled.env = whole.chain(container.env.iter().cloned()).collect();
        for var in &mut filled.env {
            let source = var.value_from.as_ref().and_then(|from| from.config_map_key_ref.as_ref());
            if let Some(value) = source.and_then(|it| text(&it.name)?.data.get(&it.key)) {
                var.value = value.clone();
                var.value_from = None;
            }
        }
        let expanded = |words: &[Literal]| words.iter().map(|word| expand(word, &filled.env)).collect();
        let (command, args) = (expanded(&container.command), expanded(&container.args));
        Cow::Owned(Container { command, args, ..filled })
    }
}

/// The largest length of a value, in bytes: longer than any address, and short enough to build for every word of a
/// hostile command line.
const LONGEST_VALUE: usize = 16 * 1024;

/// Expands `$(NAME)` as the kubelet does: once, so a value is not expanded again. An unknown name stays as it is, and
/// so does a word that would grow beyond the limit.
fn expand(word: &Literal, env: &[EnvVar]) -> Literal {
    let (mut text, mut rest) = (String::new(), word.look());
    while let Some((before, after)) = rest.split_once("$(") {
        text.push_str(before);
        let known = after.split_once(')').and_then(|(name, behind)| {
            let var = env.iter().rfind(|var| var.name == name && var.value_from.is_none())?;
            Some((var.value.look(), behind))
        });
        let (value, behind) = known.unwrap_or(("$(", after));
        text.push_str(value);
        rest = behind;
        if text.len() > LONGEST_VALUE {
            return word.clone();
        }
    }
    text.push_str(rest);
    Literal::from(&*text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_once() {
        let var = |name: &str, value: &str| EnvVar {
            name: name.into(),
            value: Literal::from(value),
            value_from: None,
        };
        let long = "x".repeat(LONGEST_VALUE);
        let env = [var("A", "$(B)"), var("B", "b"), var("C", &long)];
        for (word, filled) in
            [("$(A)-$(B)-$(X)", "$(B)-b-$(X)"), ("$(B", "$(B"), ("$(C)$(C)", "$(C)$(C)"), ("", "")]
        {
            assert_eq!(expand(&Literal::from(word), &env).look(), filled);
        }
    }
}
