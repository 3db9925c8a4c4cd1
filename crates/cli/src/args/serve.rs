//! What can be typed after `serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use stormlog_metrics::Format;
use stormlog_serve::{Listen, TlsFiles};

use crate::cmd::serve::Options;

/// Reads run directories, living and dead, and serves their memory as metrics for Prometheus; it never touches the programs. Without a token
/// /metrics and /healthz answer, without command lines and lines of code; /runs (JSON) and /runs/RUN/report need the token or a Unix socket.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Directories of runs, or runs (default: $STORMLOG_DIR or stormlog-runs)
    #[arg(value_name = "DIR")]
    paths: Vec<PathBuf>,
    /// Listen here; addresses of other machines need a token and TLS, unix:PATH is a socket of yours alone
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464", value_parser = listen)]
    listen: Listen,
    /// Serve runs and pages to clients that send the token in this file (mode 0600)
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate chain (PEM), for TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate (PEM, mode 0600)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Keep the count of deaths in this file, so that it survives restarts and removed runs
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Also write the metrics to this file, for node_exporter's text-file collector (*.prom)
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
    /// Push the metrics to this URL by OTLP/HTTP, too; without a URL where OTEL_EXPORTER_OTLP_ENDPOINT says. Other OTEL_* variables are respected
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "", conflicts_with = "once", help_heading = "Push")]
    otlp: Option<String>,
    /// Push the live heaps to this Pyroscope as pprof, once a minute
    #[arg(long, value_name = "URL", conflicts_with = "once", help_heading = "Push")]
    pyroscope: Option<String>,
    /// Pyroscope's bearer token, in a file that only you can read
    #[arg(long, value_name = "FILE", requires = "pyroscope", help_heading = "Push")]
    pyroscope_token: Option<PathBuf>,
    /// Seconds between two pushes of heaps
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds, requires = "pyroscope", help_heading = "Push")]
    pyroscope_interval: Duration,
    /// Add the lines that hold most of each rank's heap (for owners only)
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
