//! The key for an object store, from the variables that all its tools read. Must never be printed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::ShipError;

/// A key and where it is valid.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Credentials {
    pub(crate) key: String,
    pub(crate) secret: String,
    /// Of a key that is valid for a time.
    pub(crate) session: Option<String>,
    pub(crate) region: String,
}

impl Credentials {
    /// From `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION` and `AWS_DEFAULT_REGION`.
    pub(crate) fn find(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, ShipError> {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        Ok(Credentials {
            key: given("AWS_ACCESS_KEY_ID").ok_or(ShipError::NoCredentials)?,
            secret: given("AWS_SECRET_ACCESS_KEY").ok_or(ShipError::NoCredentials)?,
            session: given("AWS_SESSION_TOKEN"),
            region: given("AWS_REGION")
                .or_else(|| given("AWS_DEFAULT_REGION"))
                .unwrap_or_else(|| "us-east-1".to_owned()),
        })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.region)
    }
}
