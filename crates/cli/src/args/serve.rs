//! What can be typed after `serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use stormlog_metrics::Format;
use stormlog_serve::{Listen, TlsFiles};

use crate::cmd::serve::Options;

/// Serve the memory of runs as metrics for Prometheus, and their reports as pages
///
/// Reads the directories of running and finished programs; the programs are not affected. Without a token it serves /metrics
/// and /healthz, without command lines and lines of code; /runs (JSON) and /runs/RUN/report need the token or
/// a Unix socket.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Directories of runs, or runs (default: $STORMLOG_DIR or stormlog-runs)
    #[arg(value_name = "DIR")]
    paths: Vec<PathBuf>,
    /// Address to listen on
    ///
    /// An address that other machines can reach needs a token and TLS. unix:PATH is a socket that only you
    /// can open.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464", value_parser = listen)]
    listen: Listen,
    /// Serve runs and pages to clients that send the token in this file (mode 0600)
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Allow clients with the token to request snapshots (POST /runs/RUN/snapshot)
    #[arg(long, conflicts_with = "once")]
    allow_trigger: bool,
    /// Certificate chain (PEM), for TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate (PEM, mode 0600)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Keep the count of deaths in this file, across restarts and removed runs
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Also write the metrics to this file (*.prom), for node_exporter
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
    /// Also push the metrics to this URL by OTLP/HTTP
    ///
    /// Without a URL, OTEL_EXPORTER_OTLP_ENDPOINT is used. Other OTEL_* variables are respected.
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "", conflicts_with = "once", help_heading = "Push")]
    otlp: Option<String>,
    /// Push the live heaps to this Pyroscope as pprof, once a minute
    #[arg(long, value_name = "URL", conflicts_with = "once", help_heading = "Push")]
    pyroscope: Option<String>,
    /// File with Pyroscope's bearer token, mode 0600
    #[arg(long, value_name = "FILE", requires = "pyroscope", help_heading = "Push")]
    pyroscope_token: Option<PathBuf>,
    /// Seconds between two pushes of heaps
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds, requires = "pyroscope", help_heading = "Push")]
    pyroscope_interval: Duration,
    /// Add the lines that hold most of each rank's heap (needs the token)
    #[arg(long)]
    holders: bool,
    /// Print the metrics once and exit; with --textfile, write the file once
    #[arg(long)]
    once: bool,
    /// Format of --once
    #[arg(long, value_enum, default_value_t = FormatName::Prom, requires = "once")]
    format: FormatName,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormatName {
    /// Prometheus text 0.0.4
    Prom,
    /// OpenMetrics 1.0
    Openmetrics,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1.0..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds between 1 and 86400".to_owned()),
    }
}

fn listen(text: &str) -> Result<Listen, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(Listen::Unix(path.into()));
    }
    let text = if text.starts_with(':') {
        format!("127.0.0.1{text}")
    } else {
        text.replace("localhost", "127.0.0.1")
    };
    text.parse()
        .map(Listen::Tcp)
        .map_err(|_| "expected ADDRESS:PORT such as 127.0.0.1:9464, or unix:PATH".to_owned())
}

impl From<Serve> for Options {
    fn from(typed: Serve) -> Self {
        Options {
            paths: typed.paths,
            listen: typed.listen,
            token_file: typed.token_file,
            allow_trigger: typed.allow_trigger,
            tls: typed.tls_cert.zip(typed.tls_key).map(|(certificate, key)| TlsFiles { certificate, key }),
            state: typed.state,
            textfile: typed.textfile,
            holders: typed.holders,
            otlp: typed.otlp,
            pyroscope: typed.pyroscope,
            pyroscope_token: typed.pyroscope_token,
            pyroscope_interval: typed.pyroscope_interval,
            once: typed.once,
            format: match typed.format {
                FormatName::Prom => Format::Text,
                FormatName::Openmetrics => Format::OpenMetrics,
            },
        }
    }
}
