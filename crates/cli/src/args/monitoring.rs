//! What can be typed after `rules` and `dashboard`.

use clap::{Args, ValueEnum};
use stormlog_monitoring::RuleFormat;

use crate::cmd::monitoring::MonitoringFile;

/// Print alert rules for Prometheus, as a file or as a Kubernetes resource
///
/// The rules use the series of `stormlog serve`; each links to docs/alerts.md.
#[derive(Debug, Args)]
pub(crate) struct Rules {
    /// Rule file for Prometheus, or PrometheusRule for its operator
    #[arg(long, value_enum, default_value_t = Format::Prometheus)]
    format: Format,
}

/// Print a Grafana dashboard
///
/// Prints JSON to import into Grafana; it uses the series of `stormlog serve`.
#[derive(Debug, Args)]
pub(crate) struct Dashboard {}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Prometheus,
    Kubernetes,
}

impl From<Rules> for MonitoringFile {
    fn from(typed: Rules) -> Self {
        MonitoringFile::Rules(match typed.format {
            Format::Prometheus => RuleFormat::Prometheus,
            Format::Kubernetes => RuleFormat::Kubernetes,
        })
    }
}

impl From<Dashboard> for MonitoringFile {
    fn from(_: Dashboard) -> Self {
        MonitoringFile::Dashboard
    }
}
