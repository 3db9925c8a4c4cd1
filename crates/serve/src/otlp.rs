//! Where metrics are pushed to by OTLP, as the `OTEL_*` variables or the command line give it.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use stormlog_metrics::{Exposition, Span};
use stormlog_push::{Client, PushError, Request, Url};
use stormlog_store::wall_ns;

/// OpenTelemetry's own defaults.
const INTERVAL: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(10);
const PATH: &str = "v1/metrics";

/// A receiver of OTLP over HTTP.
#[derive(Debug)]
pub struct Otlp {
    url: Url,
    headers: Vec<(String, String)>,
    resource: Vec<(String, String)>,
    client: Client,
    is_packed: bool,
    start_ns: u64,
    /// Time between two requests.
    pub(crate) interval: Duration,
}

impl Otlp {
    /// To `url`, or where `OTEL_EXPORTER_OTLP_(METRICS_)ENDPOINT` says. A URL without a path gets `/v1/metrics`, as the variable for all signals does.
    /// `secure` is the command that posts over TLS.
    pub fn new(
        url: Option<&str>,
        secure: Vec<std::ffi::OsString>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, PushError> {
        let of = |name: &str| {
            let own = variable(&format!("OTEL_EXPORTER_OTLP_METRICS_{name}"));
            own.or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{name}"))).filter(|text| !text.is_empty())
        };
        let exact = variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT").filter(|text| !text.is_empty());
        let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT").filter(|text| !text.is_empty());
        let url = match (url, exact, base) {
            (Some(url), ..) => {
                let url = Url::parse(url)?;
                if url.path == "/" { url.join(PATH)? } else { url }
            }
            (None, Some(exact), _) => Url::parse(&exact)?,
            (None, None, Some(base)) => Url::parse(&base)?.join(PATH)?,
            (None, None, None) => {
                return Err(PushError::Url {
                    reason: "neither --otlp nor OTEL_EXPORTER_OTLP_ENDPOINT has a URL",
                });
            }
        };
        let milliseconds = |text: Option<String>, default: Duration| {
            let given = text.and_then(|text| text.trim().parse().ok()).filter(|given| *given > 0);
            given.map_or(default, Duration::from_millis)
        };
        let timeout = milliseconds(of("TIMEOUT"), TIMEOUT);
        let client = Client { timeout, secure };
        client.check(&url)?;
        let mut resource = pairs(&variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        if let Some(name) = variable("OTEL_SERVICE_NAME").filter(|name| !name.is_empty()) {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), name));
        }
        let mut add = |key: &str, value: Option<String>| {
            if !resource.iter().any(|(known, _)| known == key) {
                resource.extend(value.map(|value| (key.to_owned(), value)));
            }
        };
        add("service.name", Some("stormlog".to_owned()));
        add("host.name", stormlog_collect::host::HostFacts::read().hostname);
        Ok(Otlp {
            url,
            headers: pairs(&of("HEADERS").unwrap_or_default()),
            resource,
            client,
            is_packed: of("COMPRESSION").is_none_or(|kind| kind == "gzip"),
            start_ns: wall_ns(),
            interval: milliseconds(variable("OTEL_METRIC_EXPORT_INTERVAL"), INTERVAL),
        })
    }

    /// Sends one request. There is no queue: the next has newer values.
    pub fn send(&self, exposition: &Exposition) -> Result<(), PushError> {
        let plain = exposition.to_otlp(&self.resource, Span { start_ns: self.start_ns, now_ns: wall_ns() });
        let mut headers = self.headers.clone();
        let body = match self.is_packed {
            true => {
                headers.push(("Content-Encoding".to_owned(), "gzip".to_owned()));
                let mut packed = GzEncoder::new(Vec::new(), Compression::default());
                // Writing into memory cannot fail.
                let _ = packed.write_all(&plain);
                packed.finish().unwrap_or_default()
            }
            false => plain,
        };
        let content_type = "application/x-protobuf";
        self.client.post(&Request { url: &self.url, content_type, headers: &headers, body: &body }).map(drop)
    }
}

/// `key=value,key=value`, each percent-encoded, as in W3C baggage. What is not a pair is left out.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        Some((decoded(key.trim()), decoded(value.trim()))).filter(|(key, _)| !key.is_empty())
    };
    text.split(',').filter_map(pair).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).filter(|_| *first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(url: Option<&str>, variables: &[(&str, &str)]) -> Result<Otlp, PushError> {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Otlp::new(url, Vec::new(), &find)
    }

    #[test]
    fn endpoints_are_those_of_the_standard() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base");
        let own = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:4318/exact");
        assert_eq!(made(None, &[all]).unwrap().url.path, "/base/v1/metrics");
        assert_eq!(made(None, &[all, own]).unwrap().url.path, "/exact");
        assert_eq!(made(Some("http://h:4318"), &[all]).unwrap().url.path, "/v1/metrics");
        assert_eq!(
            made(Some("http://h/opentelemetry/v1/metrics"), &[]).unwrap().url.path,
            "/opentelemetry/v1/metrics"
        );
        assert!(made(None, &[]).is_err());
        assert!(made(Some("https://h"), &[]).is_err(), "no TLS here");
    }

    #[test]
    fn variables_set_headers_resource_and_times() {
        let otlp = made(
            Some("http://h"),
            &[
                ("OTEL_EXPORTER_OTLP_HEADERS", "x-scope=team%20a, Authorization=Bearer%20t"),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment=prod"),
                ("OTEL_SERVICE_NAME", "training"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "5000"),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
            ],
        )
        .unwrap();
        assert_eq!(otlp.headers[0], ("x-scope".to_owned(), "team a".to_owned()));
        assert!(otlp.resource.contains(&("service.name".to_owned(), "training".to_owned())));
        assert_eq!(otlp.resource.iter().filter(|(key, _)| key == "service.name").count(), 1);
        assert_eq!((otlp.interval, otlp.is_packed), (Duration::from_secs(5), false));
    }
}
