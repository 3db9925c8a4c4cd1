//! Colours and emphasis, or emphasis alone where `NO_COLOR` asks for it; and the letters, where a terminal has ASCII only.
//!
//! Text is in the terminal's own foreground. What is coloured has at least 3.9 : 1 of contrast on black and on white, where the terminal has 256 colours.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use crate::state::reading::Level;

/// How things look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Theme {
    has_colours: bool,
    /// The terminal has 256 colours: shades that are readable on light and dark.
    has_shades: bool,
    is_ascii: bool,
}

/// What a colour says.
#[derive(Debug, Clone, Copy)]
enum Accent {
    Faint,
    Info,
    Warning,
    Bad,
    Other,
}

impl Accent {
    fn shade(self) -> Color {
        Color::Indexed(match self {
            Accent::Faint => 243,
            Accent::Info => 31,
            Accent::Warning => 166,
            Accent::Bad => 160,
            Accent::Other => 133,
        })
    }

    fn basic(self) -> Color {
        match self {
            Accent::Faint => Color::DarkGray,
            Accent::Info => Color::Cyan,
            Accent::Warning => Color::Yellow,
            Accent::Bad => Color::Red,
            Accent::Other => Color::Magenta,
        }
    }
}

impl Theme {
    /// No colours when `NO_COLOR` is set to anything, or the terminal says it has none.
    pub(crate) fn from_environment() -> Theme {
        let is_set = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb" || term == "vt100");
        let names = |variable: &str, words: &[&str]| {
            let value = std::env::var(variable).unwrap_or_default();
            words.iter().any(|word| value.contains(word))
        };
        let has_shades = names("TERM", &["256color", "kitty", "ghostty", "direct"])
            || names("COLORTERM", &["truecolor", "24bit"]);
        Theme { has_colours: !is_set && !is_dumb, has_shades, is_ascii: is_ascii_locale() }
    }

    /// As the user set it.
    pub(crate) fn with(mut self, colours: Option<bool>, ascii: Option<bool>) -> Theme {
        self.has_colours = colours.unwrap_or(self.has_colours);
        self.is_ascii = ascii.unwrap_or(self.is_ascii);
        self
    }

    /// The last step of a picture: letters that the terminal does not have become those of ASCII.
    pub(crate) fn finish(self, buffer: &mut Buffer) {
        if !self.is_ascii {
            return;
        }
        for cell in &mut buffer.content {
            if !cell.symbol().is_ascii() {
                let letter = ascii(cell.symbol().chars().next().unwrap_or(' '));
                cell.set_char(letter);
            }
        }
    }

    /// Without colours.
    pub(crate) const PLAIN: Theme = Theme { has_colours: false, has_shades: false, is_ascii: false };

    fn colour(self, accent: Accent) -> Style {
        match (self.has_colours, self.has_shades) {
            (false, _) => Style::new(),
            (true, true) => Style::new().fg(accent.shade()),
            (true, false) => Style::new().fg(accent.basic()),
        }
    }

    pub(crate) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn faint(self) -> Style {
        // Dim letters are unreadable on some terminals; the colour is safe on light and dark.
        self.colour(Accent::Faint)
    }

    pub(crate) fn header(self) -> Style {
        self.colour(Accent::Info).add_modifier(Modifier::UNDERLINED)
    }

    pub(crate) fn found(self) -> Style {
        self.colour(Accent::Warning).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn key(self) -> Style {
        self.colour(Accent::Info).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn heap(self) -> Style {
        self.colour(Accent::Info)
    }

    pub(crate) fn rss(self) -> Style {
        self.colour(Accent::Other)
    }

    /// A large share of everything stands out.
    pub(crate) fn share(self, share: f64) -> Style {
        match share {
            share if share >= 0.5 => self.colour(Accent::Bad).add_modifier(Modifier::BOLD),
            share if share >= 0.1 => self.colour(Accent::Warning),
            _ => Style::new(),
        }
    }

    pub(crate) fn level(self, level: Level) -> Style {
        match level {
            Level::Info => Style::new(),
            Level::Warning => self.colour(Accent::Warning),
            Level::Critical => self.colour(Accent::Bad).add_modifier(Modifier::BOLD),
        }
    }
}

/// Whether the locale has no letters beyond ASCII. As the C library looks: the first variable that is set decides.
fn is_ascii_locale() -> bool {
    let first = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    // Containers set nothing, in front of terminals that have all letters.
    first.is_some_and(|value| {
        let value = value.to_ascii_lowercase();
        !value.contains("utf-8") && !value.contains("utf8")
    })
}

/// The nearest letter of ASCII.
fn ascii(letter: char) -> char {
    match letter {
        '─' | '━' | '╌' | '┄' | '┈' | '╴' | '╶' | '–' | '—' | '‾' => '-',
        '│' | '┃' | '╎' | '┆' | '▏' | '▕' | '┊' => '|',
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' | '╭' | '╮' | '╯' | '╰' => {
            '+'
        }
        '█' | '▇' | '▆' | '▓' | '▉' | '▊' | '▋' => '#',
        '▅' | '▄' | '▃' | '▒' | '▌' | '▍' => '=',
        '▂' | '▁' | '░' | '▎' => '.',
        '▀' => '"',
        '↑' | '▲' | '▴' => '^',
        '↓' | '▼' | '▾' => 'v',
        '→' | '▶' | '▸' | '›' => '>',
        '←' | '◀' | '◂' | '‹' => '<',
        '•' | '·' | '●' | '○' | '◆' => '*',
        '×' => 'x',
        '…' => '~',
        '✓' => 'y',
        '⠀' | '\u{a0}' => ' ',
        '⠁'..='⣿' => ':',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::*;

    #[test]
    fn a_terminal_of_ascii_gets_ascii_only() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        buffer.set_string(0, 0, "├─█ ⣿ é… ok", Style::new());
        Theme::PLAIN.with(None, Some(true)).finish(&mut buffer);
        let text: String = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        assert_eq!(text, "+-# : ?~ ok ");
    }
}
