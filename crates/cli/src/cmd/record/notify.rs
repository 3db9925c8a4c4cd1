//! `run --on-alert` and `--webhook`: checked before the program starts, delivered by a process of its own.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stormlog_push::{Client, Courier, Deliveries, Destination, Url, read_token, split_words};
use stormlog_story::Story;

use crate::exit::{Exit, UsageError};
use crate::interpreter::secure_post;

/// The variable with the token, where no file is given.
const TOKEN: &str = "STORMLOG_WEBHOOK_TOKEN";

pub(crate) struct NotifyOptions {
    pub(crate) command: Option<String>,
    pub(crate) webhook: Option<String>,
    pub(crate) token_file: Option<PathBuf>,
}

/// The courier, where something was requested. `ourselves` starts this program again.
pub(crate) fn start(
    options: &NotifyOptions,
    ourselves: &[OsString],
) -> anyhow::Result<(Option<Courier>, Option<Deliveries>)> {
    if options.command.is_none() && options.webhook.is_none() {
        return Ok((None, None));
    }
    let wrong = |what: &str, error: stormlog_push::PushError| UsageError(format!("{what}: {error}"));
    let command = options.command.as_deref().map(split_words).transpose();
    let command = command.map_err(|error| wrong("--on-alert", error))?.unwrap_or_default();
    let client = Client { timeout: Duration::ZERO, secure: secure_post() };
    if let Some(url) = &options.webhook {
        Url::parse(url).and_then(|url| client.check(&url)).map_err(|error| wrong("--webhook", error))?;
    }
    let token = match &options.token_file {
        Some(path) => Some(read_token(path).map_err(|error| wrong("--webhook-token", error))?),
        None => std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
    };
    let destination = Destination { command, webhook: options.webhook.clone(), token, secure: client.secure };
    let mut helper = ourselves.to_vec();
    helper.push("deliver-alerts".into());
    // Captures of living processes are left alone: the bundle has what matters.
    let answer = |run: &Path| Story::with(&[run.to_owned()], (&[], &[]), &mut |_| None).headline;
    let started = Courier::start(helper, destination, Box::new(answer));
    Ok(started.map_or((None, None), |(courier, deliveries)| (Some(courier), Some(deliveries))))
}

/// The process that delivers.
pub(crate) fn deliver() -> Exit {
    stormlog_push::deliver(io::stdin().lock(), &mut io::stdout().lock());
    Exit::Ok
}
