//! What is wrong with a record: the field and the sentence. Positions in files are the reader's to add.

/// One rule a record breaks. `message` is the text 0.4.3 raises for it, so `except ValueError` matches.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// The field the rule is about; `None` when it is about the record as a whole.
    pub field: Option<String>,
    /// The sentence for the user.
    pub message: String,
}

impl Problem {
    /// A problem of one field whose message starts with the field's name.
    pub(crate) fn of(field: &str, rest: &str) -> Self {
        Problem { field: Some(field.to_owned()), message: format!("{field} {rest}") }
    }

    /// A problem of one field with a message of its own.
    pub(crate) fn at(field: &str, message: impl Into<String>) -> Self {
        Problem { field: Some(field.to_owned()), message: message.into() }
    }

    /// A problem of the record as a whole.
    pub fn whole(message: impl Into<String>) -> Self {
        Problem { field: None, message: message.into() }
    }
}
