//! What can be typed after `rules` and `dashboard`.

use clap::{Args, ValueEnum};
use stormlog_monitoring::RuleFormat;

use crate::cmd::monitoring::Asked;

/// Alert rules over the series of `stormlog serve`; each links to docs/alerts.md.
#[derive(Debug, Args)]
pub(crate) struct Rules {
    /// What reads them: a rule file of Prometheus, or a PrometheusRule of its operator
    #[arg(long, value_enum, default_value_t = Format::Prometheus)]
    format: Format,
}

/// A dashboard for Grafana over the series of `stormlog serve`, to import as JSON.
#[derive(Debug, Args)]
pub(crate) struct Dashboard {}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Prometheus,
    Kubernetes,
}

impl From<Rules> for Asked {
    fn from(typed: Rules) -> Self {
        Asked::Rules(match typed.format {
            Format::Prometheus => RuleFormat::Prometheus,
            Format::Kubernetes => RuleFormat::Kubernetes,
        })
    }
}

impl From<Dashboard> for Asked {
    fn from(_: Dashboard) -> Self {
        Asked::Dashboard
    }
}
