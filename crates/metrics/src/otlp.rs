//! The same samples as an OTLP request (protobuf), under the names of OpenTelemetry's semantic conventions where there are such names, else below
//! `stormlog.`. Must never invent a name outside of both.

use prost::Message;

use crate::exposition::{Exposition, Sample, Value};
use crate::families::{self, Family, Kind, Unit};

/// Names of the conventions. These are up-down counters there: sums that may fall.
const CONVENTIONS: [(&Family, &str); 6] = [
    (&families::RESIDENT, "process.memory.usage"),
    (&families::DEVICE_USED, "hw.gpu.memory.usage"),
    (&families::DEVICE_TOTAL, "hw.gpu.memory.limit"),
    (&families::CGROUP_USAGE, "container.memory.usage"),
    (&families::CGROUP_WORKING_SET, "container.memory.working_set"),
    (&families::HOST_TOTAL, "system.memory.limit"),
];
const CUMULATIVE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    unit: String,
    #[prost(message, optional, tag = "5")]
    gauge: Option<Gauge>,
    #[prost(message, optional, tag = "7")]
    sum: Option<Sum>,
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<Point>,
}

#[derive(Clone, PartialEq, Message)]
struct Sum {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<Point>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Point {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(oneof = "Number", tags = "4, 6")]
    value: Option<Number>,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, Copy, PartialEq, prost::Oneof)]
enum Number {
    #[prost(double, tag = "4")]
    Real(f64),
    #[prost(sfixed64, tag = "6")]
    Whole(i64),
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    /// One of several kinds in the standard; ours are texts.
    #[prost(string, optional, tag = "1")]
    string_value: Option<String>,
}

fn attribute(key: impl Into<String>, value: &str) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { string_value: Some(value.to_owned()) }) }
}

/// When the samples are of, nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// When counting began.
    pub start_ns: u64,
    /// Now.
    pub now_ns: u64,
}

impl Exposition {
    /// The body of an OTLP/HTTP request, of a resource with these attributes.
    #[must_use]
    pub fn to_otlp(&self, resource: &[(String, String)], span: Span) -> Vec<u8> {
        let filled = self.families().filter(|(_, samples)| !samples.is_empty());
        let metrics = filled.map(|(family, samples)| metric(family, samples, span)).collect();
        let scope = Scope { name: "stormlog".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let attributes = resource.iter().map(|(key, value)| attribute(key.as_str(), value)).collect();
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics }];
        let of_resource = ResourceMetrics { resource: Some(Resource { attributes }), scope_metrics };
        Request { resource_metrics: vec![of_resource] }.encode_to_vec()
    }
}

fn metric(family: &Family, samples: &[Sample], span: Span) -> Metric {
    let known = CONVENTIONS.iter().find(|(known, _)| known.name == family.name).map(|(_, name)| *name);
    let is_sum = known.is_some() || family.kind == Kind::Counter;
    let is_hardware = known.is_some_and(|name| name.starts_with("hw."));
    let points = samples.iter().map(|sample| point(sample, is_hardware, is_sum, span)).collect();
    let (gauge, sum) = match is_sum {
        true => {
            let (aggregation_temporality, is_monotonic) = (CUMULATIVE, family.kind == Kind::Counter);
            (None, Some(Sum { data_points: points, aggregation_temporality, is_monotonic }))
        }
        false => (Some(Gauge { data_points: points }), None),
    };
    let unit = match family.unit {
        Some(Unit::Bytes) => "By",
        Some(Unit::Seconds) => "s",
        None => "1",
    };
    let name = known.map_or_else(|| extension(family), str::to_owned);
    Metric { name, description: family.help.to_owned(), unit: unit.to_owned(), gauge, sum }
}

/// `stormlog_allocator_allocated_bytes` is `stormlog.allocator_allocated`: the unit and the type are fields of their own.
fn extension(family: &Family) -> String {
    let stem = family.name.trim_start_matches("stormlog_").trim_end_matches("_total");
    let unit = family.unit.map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
    format!("stormlog.{}", stem.strip_suffix(&unit).unwrap_or(stem))
}

fn point(sample: &Sample, is_hardware: bool, is_sum: bool, span: Span) -> Point {
    let value = match sample.value {
        Value::Whole(whole) => Number::Whole(i64::try_from(whole).unwrap_or(i64::MAX)),
        Value::Real(real) => Number::Real(real),
    };
    let mut attributes: Vec<KeyValue> = sample
        .labels
        .iter()
        .map(|(name, value)| match (is_hardware, name) {
            (true, "uuid") => attribute("hw.id", value),
            (true, "device") => attribute("hw.name", value),
            _ => attribute(format!("stormlog.{name}"), value),
        })
        .collect();
    if is_hardware {
        attributes.push(attribute("hw.type", "gpu"));
    }
    let start_time_unix_nano = if is_sum { span.start_ns } else { 0 };
    Point { start_time_unix_nano, time_unix_nano: span.now_ns, value: Some(value), attributes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Labels;

    #[test]
    fn samples_read_back_under_the_names_of_the_conventions() {
        let mut all = Exposition::new();
        let device = Labels::new().with("device", "0").with("uuid", "GPU-1");
        all.add(&families::DEVICE_USED, device, 7);
        all.add(&families::DEATHS, Labels::new().with("cause", "sigkill"), 2);
        all.add(&families::TIME_TO_LIMIT, Labels::new().with("job_id", "a"), 1.5);
        let span = Span { start_ns: 1, now_ns: 2 };
        let bytes = all.to_otlp(&[("service.name".to_owned(), "s".to_owned())], span);
        let request = Request::decode(&bytes[..]).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let names: Vec<(&str, &str)> =
            metrics.iter().map(|metric| (metric.name.as_str(), metric.unit.as_str())).collect();
        let expected =
            [("hw.gpu.memory.usage", "By"), ("stormlog.time_to_limit", "s"), ("stormlog.deaths", "1")];
        assert_eq!(names, expected);
        let used = metrics[0].sum.as_ref().unwrap();
        assert!(!used.is_monotonic, "an up-down counter");
        let keys: Vec<&str> = used.data_points[0].attributes.iter().map(|pair| pair.key.as_str()).collect();
        assert_eq!(keys, ["hw.name", "hw.id", "hw.type"]);
        assert_eq!(used.data_points[0].value, Some(Number::Whole(7)));
        assert!(metrics[1].gauge.is_some());
        assert!(metrics[2].sum.as_ref().unwrap().is_monotonic);
    }

    #[test]
    fn no_two_families_have_one_name() {
        let mut names = std::collections::BTreeSet::new();
        for family in families::ALL {
            let span = Span { start_ns: 0, now_ns: 0 };
            assert!(names.insert(metric(family, &[], span).name), "{}", family.name);
        }
    }
}
