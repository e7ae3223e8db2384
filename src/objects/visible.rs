//! Text that anybody may have written, made safe to print.

/// Text for a terminal: what would move its cursor, colour it or turn its direction is escaped, line breaks as well. Names and
/// values are whatever somebody wrote.
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if hides(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

fn hides(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
