//! Colours and emphasis, or emphasis alone where `NO_COLOR` asks for it.

use ratatui::style::{Color, Modifier, Style};

use crate::state::reading::Level;

/// How things look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Theme {
    has_colours: bool,
}

impl Theme {
    /// No colours when `NO_COLOR` is set to anything, or the terminal says it has none.
    pub(crate) fn from_environment() -> Theme {
        let is_set = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb" || term == "vt100");
        Theme { has_colours: !is_set && !is_dumb }
    }

    /// Without colours.
    pub(crate) const PLAIN: Theme = Theme { has_colours: false };

    fn colour(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    pub(crate) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn faint(self) -> Style {
        // Dim letters are unreadable on some terminals; the colour is safe on light and dark.
        self.colour(Color::DarkGray)
    }

    pub(crate) fn header(self) -> Style {
        self.colour(Color::Cyan).add_modifier(Modifier::UNDERLINED)
    }

    pub(crate) fn found(self) -> Style {
        self.colour(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn key(self) -> Style {
        self.colour(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn heap(self) -> Style {
        self.colour(Color::Cyan)
    }

    pub(crate) fn rss(self) -> Style {
        self.colour(Color::Magenta)
    }

    /// A large share of everything stands out.
    pub(crate) fn share(self, share: f64) -> Style {
        match share {
            share if share >= 0.5 => self.colour(Color::Red).add_modifier(Modifier::BOLD),
            share if share >= 0.1 => self.colour(Color::Yellow),
            _ => Style::new(),
        }
    }

    pub(crate) fn level(self, level: Level) -> Style {
        match level {
            Level::Info => Style::new(),
            Level::Warning => self.colour(Color::Yellow),
            Level::Critical => self.colour(Color::Red).add_modifier(Modifier::BOLD),
        }
    }
}
