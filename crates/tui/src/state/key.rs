//! A pressed key, and whether the screen stays.

/// A key, whatever terminal it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Key {
    Letter(char),
    Up,
    Down,
    Left,
    Right,
    /// Left with Shift or Ctrl held.
    FarLeft,
    /// Right with Shift or Ctrl held.
    FarRight,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
}

/// What a mouse did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Button {
    /// The left button went down.
    Press,
    /// The mouse moved with the button down.
    Drag,
    /// The button came up.
    Release,
    /// The wheel, away from the user.
    WheelUp,
    /// The wheel, towards the user.
    WheelDown,
}

/// A mouse event, in columns and rows of the screen from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mouse {
    /// What it did.
    pub button: Button,
    /// Where.
    pub column: u16,
    /// Where.
    pub row: u16,
    /// Ctrl was held.
    pub has_control: bool,
}

/// What follows from a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The screen stays.
    Stay,
    /// The user has seen enough.
    Leave,
}
