//! The URL of a receiver. Must refuse what would change the request's head: white space, control characters, credentials before the host.

use std::fmt;

use crate::error::PushError;

/// Where something is posted to.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    text: String,
    /// Whether it is `https`.
    pub is_secure: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query, from the first slash.
    pub path: String,
}

impl Url {
    /// Reads `http://host[:port][/path][?query]` or the same with `https`.
    pub fn parse(text: &str) -> Result<Url, PushError> {
        let wrong = |reason| PushError::Url { reason };
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("the URL has a character that must be percent-encoded"));
        }
        let (is_secure, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return Err(wrong("the URL begins with neither http:// nor https://")),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(wrong("the URL has a user name or password; give a token in a file instead"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(|| wrong("the address has no ]"))?;
                (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, Some("")),
            },
        };
        let port = match port {
            Some("") => Some(if is_secure { 443 } else { 80 }),
            Some(port) => port.parse().ok().filter(|port| *port > 0),
            None => None,
        };
        let port = port.ok_or_else(|| wrong("the port is not a number from 1 to 65535"))?;
        if host.is_empty() {
            return Err(wrong("the URL has no host"));
        }
        let path = match path {
            "" => "/".to_owned(),
            query if query.starts_with('?') => format!("/{query}"),
            path => path.to_owned(),
        };
        Ok(Url { text: text.to_owned(), is_secure, host: host.to_owned(), port, path })
    }

    /// The whole text, secrets included: for the receiver alone.
    #[must_use]
    pub fn secret_text(&self) -> &str {
        &self.text
    }

    /// The same receiver with `path` behind its own path, for the rest of a base URL.
    pub fn join(&self, path: &str) -> Result<Url, PushError> {
        let base = self.text.split(['?', '#']).next().unwrap_or(&self.text);
        Url::parse(&format!("{}/{}", base.trim_end_matches('/'), path.trim_start_matches('/')))
    }

    /// `host:port`, as HTTP's `Host` has it.
    #[must_use]
    pub fn authority(&self) -> String {
        let is_default = self.port == if self.is_secure { 443 } else { 80 };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if is_default { host } else { format!("{host}:{}", self.port) }
    }
}

/// Without path and query, which may be secrets.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_split_as_the_standard_does() {
        for (text, host, port, path) in [
            ("http://localhost", "localhost", 80, "/"),
            ("https://h.example/a?b=c#d", "h.example", 443, "/a?b=c"),
            ("http://127.0.0.1:9093/x", "127.0.0.1", 9093, "/x"),
            ("http://[::1]:80/", "::1", 80, "/"),
            ("http://h?x", "h", 80, "/?x"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.host.as_str(), url.port, url.path.as_str()), (host, port, path), "{text}");
        }
    }

    #[test]
    fn texts_that_would_change_the_request_are_refused() {
        for text in [
            "ftp://h",
            "http://",
            "http://h:0",
            "http://u:p@h/",
            "http://h/a\r\nX: y",
            "http://h/a b",
            "http://[::1",
            "http://h:x",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_url_is_shown_without_what_may_be_secret() {
        let url = Url::parse("http://hooks.example/services/T0/SECRET?key=SECRET").unwrap();
        assert_eq!(format!("{url} {url:?}"), "hooks.example Url(hooks.example)");
    }

    #[test]
    fn a_base_url_gets_a_path() {
        let base = Url::parse("http://h:4318/otlp/").unwrap();
        assert_eq!(base.join("/v1/metrics").unwrap().path, "/otlp/v1/metrics");
    }
}
