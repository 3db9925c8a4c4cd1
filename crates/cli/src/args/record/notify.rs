//! What can be typed for reports of a run: `--on-alert` and `--webhook`.

use std::path::PathBuf;

use clap::Args;

use crate::cmd::record::notify::NotifyOptions;

#[derive(Debug, Args)]
#[command(next_help_heading = "Alerts")]
pub(crate) struct Notify {
    /// Run this command for each alert, forecast and death
    ///
    /// The payload of docs/alerts.md is its standard input. It is not run by a shell, and is killed after 30
    /// s.
    #[arg(long, env = "STORMLOG_ON_ALERT", value_name = "CMD")]
    on_alert: Option<String>,
    /// Post the same payload to this URL
    #[arg(long, env = "STORMLOG_WEBHOOK", hide_env_values = true, value_name = "URL")]
    webhook: Option<String>,
    /// File with the webhook's bearer token, mode 0600 (or STORMLOG_WEBHOOK_TOKEN)
    #[arg(long, value_name = "FILE", requires = "webhook")]
    webhook_token: Option<PathBuf>,
}

impl From<Notify> for NotifyOptions {
    fn from(typed: Notify) -> Self {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        NotifyOptions {
            command: given(typed.on_alert),
            webhook: given(typed.webhook),
            token_file: typed.webhook_token,
        }
    }
}
