//! One line the user types: what to search or filter for.

use crate::state::key::Key;

/// Longest text that can be typed.
const LONGEST: usize = 100;

/// The text, and whether it is being typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) text: String,
    pub(crate) is_open: bool,
}

/// What a key did to an open entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Typed {
    Changed,
    Accepted,
    Dropped,
}

impl Entry {
    pub(crate) fn open(&mut self) {
        *self = Entry { text: String::new(), is_open: true };
    }

    pub(crate) fn key(&mut self, key: Key) -> Typed {
        match key {
            Key::Letter(letter) if self.text.len() < LONGEST && !letter.is_control() => {
                self.text.push(letter)
            }
            Key::Backspace => {
                self.text.pop();
            }
            Key::Enter => {
                self.is_open = false;
                return Typed::Accepted;
            }
            Key::Escape => {
                *self = Entry::default();
                return Typed::Dropped;
            }
            _ => {}
        }
        Typed::Changed
    }

    /// Whether a text contains what was typed; case matters only if the typed text has capitals.
    pub(crate) fn matches(&self, text: &str) -> bool {
        if self.text.chars().any(char::is_uppercase) {
            text.contains(&self.text)
        } else {
            text.to_lowercase().contains(&self.text)
        }
    }
}
