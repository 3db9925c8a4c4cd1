//! The settings that a shipment gets from its caller, over a pipe where it is a process of its own: a command line can be read by everyone.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::destination::Destination;
use crate::directory::DirectoryTarget;
use crate::error::ShipError;
use crate::objects::ObjectTarget;
use crate::target::Target;

/// Bytes a second: an hour of it is 28 GiB, and a machine's network hardly notices.
pub const DEFAULT_RATE: u64 = 8 << 20;
/// After the end of a run, the time in which the rest is shipped.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(600);
/// Between two passes.
const INTERVAL: Duration = Duration::from_secs(10);
const OBJECT_INTERVAL: Duration = Duration::from_secs(30);

/// How runs are shipped.
#[derive(Clone, Serialize, Deserialize)]
pub struct Settings {
    pub(crate) destination: Destination,
    token: Option<String>,
    secure: Vec<OsString>,
    is_shared: bool,
    /// Bytes a second; 0 is without bound.
    pub rate: u64,
    /// Time after the end of a run.
    pub wait: Duration,
}

impl Settings {
    /// `to` is a directory, `http(s)://…` or `s3://bucket/prefix`; `endpoint` the URL of a store other than Amazon's; `secure` the command that posts over
    /// TLS. Keys come from the environment.
    pub fn new(
        to: &str,
        endpoint: Option<&str>,
        token: Option<String>,
        secure: Vec<OsString>,
        is_shared: bool,
    ) -> Result<Self, ShipError> {
        let variable = |name: &str| std::env::var(name).ok();
        let destination = Destination::parse(to, endpoint, &variable)?;
        let settings =
            Settings { destination, token, secure, is_shared, rate: DEFAULT_RATE, wait: DEFAULT_WAIT };
        settings.objects()?;
        Ok(settings)
    }

    /// Where to, without what may be secret.
    #[must_use]
    pub fn shown(&self) -> String {
        self.destination.shown()
    }

    pub(crate) fn interval(&self) -> Duration {
        if matches!(self.destination, Destination::Directory(_)) { INTERVAL } else { OBJECT_INTERVAL }
    }

    pub(crate) fn directory(&self) -> Option<&PathBuf> {
        match &self.destination {
            Destination::Directory(path) => Some(path),
            _ => None,
        }
    }

    /// The store of objects; `None` for a directory.
    pub(crate) fn objects(&self) -> Result<Option<ObjectTarget>, ShipError> {
        match &self.destination {
            Destination::Directory(_) => Ok(None),
            other => ObjectTarget::new(other.clone(), self.token.clone(), self.secure.clone()).map(Some),
        }
    }

    pub(crate) fn target(&self) -> Result<Box<dyn Target>, ShipError> {
        match (&self.destination, self.objects()?) {
            (Destination::Directory(path), _) => Ok(Box::new(DirectoryTarget::open(path, self.is_shared)?)),
            (_, Some(objects)) => Ok(Box::new(objects)),
            (_, None) => Err(ShipError::Destination { reason: "unknown value" }),
        }
    }
}

/// Without the token.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settings({})", self.shown())
    }
}
