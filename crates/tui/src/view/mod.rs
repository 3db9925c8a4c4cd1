//! What the screens look like. State in, letters and colours out; nothing here decides anything.

pub(crate) mod frame;
pub(crate) mod help;
pub(crate) mod live;
mod plot;
pub(crate) mod source;
pub(crate) mod theme;
pub(crate) mod tree;

#[cfg(test)]
mod tests;
