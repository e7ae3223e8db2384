//! A manual page on a terminal: highlighted headings, indented examples, and text that is wrapped to the width.
//!
//! Must not know: what is on the page. Without a terminal, the page is printed as Markdown.

/// Renders a page for this many columns.
pub fn rendered(page: &str, width: usize, colour: bool) -> String {
    let (mut out, mut paragraph, mut example) = (String::new(), String::new(), false);
    for line in page.lines() {
        let fence = line.trim_start().starts_with("```");
        let apart = fence || example || line.trim().is_empty() || line.starts_with('#') || begins_item(line);
        if apart {
            flush(&mut paragraph, width, colour, &mut out);
        }
        if fence {
            example = !example;
        } else if example {
            out.push_str(&format!("    {line}\n"));
        } else if let Some(heading) = line.strip_prefix('#') {
            let heading = heading.trim_start_matches('#').trim();
            out.push_str(&if colour {
                format!("\u{1b}[1m{heading}\u{1b}[0m\n")
            } else {
                format!("{}\n", heading.to_uppercase())
            });
        } else if line.trim().is_empty() {
            out.push('\n');
        } else {
            paragraph.push_str(if paragraph.is_empty() { "" } else { " " });
            paragraph.push_str(if paragraph.is_empty() { line } else { line.trim_start() });
        }
    }
    flush(&mut paragraph, width, colour, &mut out);
    out
}

/// Returns whether the line begins a list item: `* one`, `1. one`.
fn begins_item(line: &str) -> bool {
    let rest = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
    rest.starts_with("* ")
        || rest.starts_with("- ")
        || rest.len() < line.trim_start().len() && rest.starts_with(". ")
}

/// Ends a paragraph and wraps it. All lines but the first are indented to the text of the list item.
fn flush(paragraph: &mut String, width: usize, colour: bool, out: &mut String) {
    if paragraph.is_empty() {
        return;
    }
    let text = std::mem::take(paragraph);
    let indent = text.len() - text.trim_start().len();
    let mark = if begins_item(&text) { text.trim_start().find(' ').map_or(0, |at| at + 1) } else { 0 };
    let hang = " ".repeat(indent + mark);
    let (mut line, mut length) = (" ".repeat(indent), indent);
    for word in words(text.trim_start()) {
        let long = word.chars().count();
        if length > hang.len() && length + 1 + long > width {
            out.push_str(line.trim_end());
            out.push('\n');
            (line, length) = (hang.clone(), hang.len());
        } else if length > indent {
            line.push(' ');
            length += 1;
        }
        line.push_str(&coloured(word, colour));
        length += long;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

/// Splits at spaces, except in a command: a command to copy stays on one line.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let mut quoted = false;
        let end = rest.find(|c: char| {
            quoted ^= c == '`';
            c == ' ' && !quoted
        });
        let (word, following) = rest.split_at(end.unwrap_or(rest.len()));
        rest = following;
        (!word.is_empty()).then_some(word)
    })
}

/// Colours a command, if there are colours.
fn coloured(word: &str, colour: bool) -> String {
    if !colour || word.matches('`').count() != 2 {
        return word.to_owned();
    }
    word.replacen('`', "\u{1b}[36m", 1).replacen('`', "\u{1b}[0m", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "G98: one thing.\n\nRefuses what is\nrather long, and `kubectl get pods` stays whole.\n\n# Why\n\n```text\nspec: {a: 1}\n```\n\n* an item that is longer than a line\n* another\n1. first\n\n   ```sh\n   kubectl get nodes\n   ```\n2. second\n";

    #[test]
    fn a_page_is_wrapped_at_the_width_of_the_terminal() {
        assert_eq!(
            rendered(PAGE, 30, false),
            "G98: one thing.\n\nRefuses what is rather long,\nand `kubectl get pods` stays\nwhole.\n\nWHY\n\n    spec: {a: 1}\n\n* an item that is longer than\n  a line\n* another\n1. first\n\n       kubectl get nodes\n2. second\n"
        );
        let coloured = rendered(PAGE, 30, true);
        assert!(
            coloured.contains("and \u{1b}[36mkubectl get pods\u{1b}[0m stays\n")
                && coloured.contains("\u{1b}[1mWhy\u{1b}[0m\n"),
            "{coloured}"
        );
    }
}
