//! The two text formats: Prometheus 0.0.4, which every collector reads, and OpenMetrics 1.0, which has units, exemplars and an end. Families
//! without samples are not written. Must never write a timestamp of a sample: a textfile collector refuses those.

use std::fmt::Write;

use crate::exposition::{Exemplar, Sample, Value};
use crate::families::{Family, Kind};

/// Which one is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Prometheus text 0.0.4.
    #[default]
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// What a client asks for that sends this `Accept` header.
    #[must_use]
    pub fn accepted(header: &str) -> Self {
        let is_refused = |parameters: &str| {
            let quality = parameters.split(';').find_map(|part| part.trim().strip_prefix("q="));
            quality
                .and_then(|quality| quality.trim().parse::<f64>().ok())
                .is_some_and(|quality| quality <= 0.0)
        };
        let asks = |part: &str| {
            let (kind, parameters) = part.split_once(';').unwrap_or((part, ""));
            let version = parameters.split(';').find_map(|part| part.trim().strip_prefix("version="));
            kind.trim().eq_ignore_ascii_case("application/openmetrics-text")
                && matches!(version.map(str::trim), None | Some("1.0.0" | "0.0.1"))
                && !is_refused(parameters)
        };
        if header.split(',').any(asks) { Format::OpenMetrics } else { Format::Text }
    }

    /// The `Content-Type` of an answer.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

pub(crate) fn write_family(out: &mut String, family: &Family, samples: &[Sample], format: Format) {
    let is_open = format == Format::OpenMetrics;
    // OpenMetrics names the family, the older format its series.
    let name = match family.kind {
        Kind::Counter if is_open => family.name.trim_end_matches("_total"),
        Kind::Info if is_open => family.name.trim_end_matches("_info"),
        _ => family.name,
    };
    let kind = match family.kind {
        Kind::Counter => "counter",
        Kind::Info if is_open => "info",
        Kind::Info | Kind::Gauge => "gauge",
    };
    // Writing to a string does not fail.
    let _ = writeln!(out, "# HELP {name} {}", family.help);
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if let Some(unit) = family.unit.filter(|_| is_open) {
        let _ = writeln!(out, "# UNIT {name} {}", unit.as_str());
    }
    for sample in samples {
        out.push_str(family.name);
        sample.labels.write(out);
        out.push(' ');
        write_value(out, sample.value);
        if let Some(exemplar) = sample.exemplar.as_ref().filter(|_| is_open && family.kind == Kind::Counter) {
            write_exemplar(out, exemplar);
        }
        out.push('\n');
    }
}

pub(crate) fn write_end(out: &mut String, format: Format) {
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
}

fn write_exemplar(out: &mut String, exemplar: &Exemplar) {
    out.push_str(" # ");
    exemplar.labels.write_braced(out);
    out.push(' ');
    write_value(out, Value::Real(exemplar.value));
    if let Some(timestamp) = exemplar.timestamp {
        let _ = write!(out, " {timestamp:.3}");
    }
}

fn write_value(out: &mut String, value: Value) {
    let _ = match value {
        Value::Whole(whole) => write!(out, "{whole}"),
        Value::Real(real) if real.is_nan() => write!(out, "NaN"),
        Value::Real(real) if real.is_infinite() => write!(out, "{}Inf", if real > 0.0 { '+' } else { '-' }),
        Value::Real(real) => write!(out, "{real}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::{DEATHS, LAST_SAMPLE, RESIDENT, RUN_INFO};
    use crate::{Exposition, Labels};

    fn example() -> Exposition {
        let mut all = Exposition::new();
        assert!(all.add(&RUN_INFO, Labels::new().with("job_id", "j").with("rank", "0"), 1));
        assert!(all.add(&RESIDENT, Labels::new().with("rank", "0").with("role", "main"), u64::MAX));
        let exemplar = Exemplar {
            labels: Labels::new().with("bundle", "oom_dump_x"),
            value: 1.0,
            timestamp: Some(1_700_000_000.25),
        };
        let cause = |cause| Labels::new().with("cause", cause);
        assert!(all.add_with(&DEATHS, cause("sigkill"), 3.into(), Some(exemplar.clone())));
        assert!(!all.add(&DEATHS, cause("sigkill"), 4), "a series is there once");
        assert!(all.add(&LAST_SAMPLE, Labels::new(), 1.5));
        all
    }

    #[test]
    fn older_format_names_series_and_has_no_exemplars() {
        let text = example().render(Format::Text);
        assert!(
            text.contains("# TYPE stormlog_run_info gauge\nstormlog_run_info{job_id=\"j\",rank=\"0\"} 1\n")
        );
        assert!(
            text.contains(
                "# TYPE stormlog_deaths_total counter\nstormlog_deaths_total{cause=\"sigkill\"} 3\n"
            )
        );
        assert!(text.contains("{rank=\"0\",role=\"main\"} 18446744073709551615\n"), "{text}");
        assert!(text.contains("stormlog_last_sample_timestamp_seconds 1.5\n"));
        assert!(!text.contains("# EOF") && !text.contains("UNIT"));
    }

    #[test]
    fn openmetrics_names_families_and_ends() {
        let text = example().render(Format::OpenMetrics);
        assert!(text.contains("# TYPE stormlog_run info\nstormlog_run_info{"), "{text}");
        assert!(text.contains("# TYPE stormlog_deaths counter\n"));
        assert!(text.contains(
            "stormlog_deaths_total{cause=\"sigkill\"} 3 # {bundle=\"oom_dump_x\"} 1 1700000000.250\n"
        ));
        assert!(text.contains("# UNIT stormlog_process_resident_bytes bytes\n"));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn format_is_what_the_client_accepts() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        for header in [
            "",
            "text/plain",
            "*/*",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=0",
        ] {
            assert_eq!(Format::accepted(header), Format::Text, "{header}");
        }
    }
}
