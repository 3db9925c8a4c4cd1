//! Where runs are shipped to, as the user wrote it: a directory, an HTTP receiver or a bucket.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stormlog_push::Url;

use crate::credentials::Credentials;
use crate::error::ShipError;
use crate::sign::encode;

/// A destination.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Destination {
    /// Copies of run directories below this one.
    Directory(PathBuf),
    /// Objects below this URL.
    Http {
        /// Without a slash at its end.
        base: String,
    },
    /// Objects of a bucket.
    S3 {
        /// The bucket's URL, without a slash at its end.
        base: String,
        /// Before every object's name; empty, or with a slash at its end.
        prefix: String,
        /// For signatures.
        credentials: Credentials,
    },
}

impl Destination {
    /// Reads `DIR`, `http(s)://…` or `s3://bucket/prefix`. `endpoint` is another store than Amazon's.
    pub(crate) fn parse(
        text: &str,
        endpoint: Option<&str>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ShipError> {
        let wrong = |reason| ShipError::Destination { reason };
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let is_name =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
            if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_name) {
                return Err(wrong(
                    "the bucket's name must have 3 to 63 lowercase letters, digits, dots and hyphens",
                ));
            }
            let credentials = Credentials::find(variable)?;
            let given = |name: &str| variable(name).filter(|value| !value.is_empty());
            let endpoint = endpoint
                .map(str::to_owned)
                .or_else(|| given("AWS_ENDPOINT_URL_S3"))
                .or_else(|| given("AWS_ENDPOINT_URL"));
            let base = match endpoint {
                Some(endpoint) => format!("{}/{bucket}", endpoint.trim_end_matches('/')),
                None => format!("https://{bucket}.s3.{}.amazonaws.com", credentials.region),
            };
            Url::parse(&base)?;
            let prefix = prefix.trim_matches('/');
            let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
            return Ok(Destination::S3 { base, prefix, credentials });
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            if text.contains(['?', '#']) {
                return Err(wrong("the URL has a query; give a token in a file instead"));
            }
            Url::parse(text)?;
            return Ok(Destination::Http { base: text.trim_end_matches('/').to_owned() });
        }
        if text.contains("://") {
            return Err(wrong("unsupported URL scheme"));
        }
        if text.is_empty() {
            return Err(wrong("it is empty"));
        }
        let path = std::path::absolute(text).map_err(|error| ShipError::file(text.as_ref(), error))?;
        Ok(Destination::Directory(path))
    }

    /// For people: without what may be secret.
    pub(crate) fn shown(&self) -> String {
        match self {
            Destination::Directory(path) => path.display().to_string(),
            Destination::Http { base } => Url::parse(base).map(|url| url.to_string()).unwrap_or_default(),
            Destination::S3 { base, prefix, .. } => {
                let bucket = base.rsplit('/').next().unwrap_or_default();
                let bucket = bucket.split(".s3.").next().unwrap_or(bucket);
                format!("s3://{bucket}/{}", prefix.trim_end_matches('/')).trim_end_matches('/').to_owned()
            }
        }
    }

    /// The URL of an object.
    pub(crate) fn url(&self, object: &str) -> Result<Url, ShipError> {
        let text = match self {
            Destination::Directory(_) => return Err(ShipError::Destination { reason: "it is a directory" }),
            Destination::Http { base } => format!("{base}/{}", encode(object, true)),
            Destination::S3 { base, prefix, .. } => {
                format!("{base}/{}", encode(&format!("{prefix}{object}"), true))
            }
        };
        Ok(Url::parse(&text)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn keys(name: &str) -> Option<String> {
        let value = match name {
            "AWS_ACCESS_KEY_ID" => "key",
            "AWS_SECRET_ACCESS_KEY" => "very-secret",
            "AWS_REGION" => "eu-central-1",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn buckets_have_the_url_of_their_store() {
        let of = |text, endpoint| Destination::parse(text, endpoint, &keys).unwrap();
        let amazon = of("s3://runs-of-us/team/a", None);
        let url = amazon.url("run/manifest.json").unwrap();
        assert_eq!(url.host, "runs-of-us.s3.eu-central-1.amazonaws.com");
        assert_eq!(url.path, "/team/a/run/manifest.json");
        assert_eq!(amazon.shown(), "s3://runs-of-us/team/a");
        let other = of("s3://runs-of-us", Some("http://127.0.0.1:9000/"));
        assert_eq!(other.url("a b").unwrap().path, "/runs-of-us/a%20b");
        assert_eq!(other.shown(), "s3://runs-of-us");
        assert!(!format!("{amazon:?}").contains("secret"));
    }

    #[test]
    fn invalid_destination_is_refused() {
        for text in ["", "ftp://h/x", "s3://A", "http://u:p@h/", "http://h/?token=x", "s3://"] {
            assert!(Destination::parse(text, None, &keys).is_err(), "{text}");
        }
        assert!(matches!(Destination::parse("s3://abc", None, &|_| None), Err(ShipError::NoCredentials)));
        let http = Destination::parse("http://h:81/secret/path/", None, &keys).unwrap();
        assert_eq!(http.shown(), "h:81");
        assert!(matches!(Destination::parse("some/where", None, &keys), Ok(Destination::Directory(_))));
    }
}
