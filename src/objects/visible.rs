//! Text from any user, made safe to print.

/// Escapes text for a terminal: characters that would move its cursor, change its colour or the writing direction, and
/// line breaks. Names and values may hold any text.
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
