//! The process that delivers: settings and notices come on standard input, one a line; each is delivered before the next is looked at.

use std::io::{BufRead, Read, Write};
use std::time::Duration;

use serde_json::Value;

use crate::courier::{Delivered, Destination};
use crate::error::PushError;
use crate::hook_command;
use crate::http::{Client, Request};
use crate::url::Url;

/// A line of input.
const MOST_LINE: u64 = 1 << 20;
/// Time for a command, and for a webhook.
const COMMAND_TIME: Duration = Duration::from_secs(30);
const WEBHOOK_TIME: Duration = Duration::from_secs(10);

/// Delivers what comes on `input` and reports on `output`, until the input ends. What comes is from our own supervisor.
pub fn deliver(input: impl Read, output: &mut impl Write) {
    let mut input = std::io::BufReader::new(input);
    let Some(destination) = line(&mut input).and_then(|text| serde_json::from_str(&text).ok()) else {
        return;
    };
    while let Some(text) = line(&mut input) {
        let failure = one(&destination, &text).err().map(|error| error.to_string());
        // The supervisor may have gone; the next notice is delivered all the same.
        let _ = serde_json::to_string(&Delivered { failure }).map(|row| writeln!(output, "{row}"));
        let _ = output.flush();
    }
}

fn line(input: &mut impl BufRead) -> Option<String> {
    let mut text = String::new();
    let count = input.take(MOST_LINE).read_line(&mut text).ok()?;
    (count > 0).then_some(text)
}

/// To the command and to the webhook; the first failure is reported.
fn one(destination: &Destination, text: &str) -> Result<(), PushError> {
    let by_command = match destination.command.is_empty() {
        true => Ok(()),
        false => hook_command::run(&destination.command, text.as_bytes(), &variables(text), COMMAND_TIME),
    };
    let by_webhook = destination.webhook.as_deref().map_or(Ok(()), |url| {
        let client = Client { timeout: WEBHOOK_TIME, secure: destination.secure.clone() };
        let token =
            destination.token.iter().map(|token| ("Authorization".to_owned(), format!("Bearer {token}")));
        let headers: Vec<(String, String)> = token.collect();
        let url = Url::parse(url)?;
        let (content_type, body) = ("application/json", text.trim_end().as_bytes());
        client.post(&Request { url: &url, content_type, headers: &headers, body }).map(drop)
    });
    by_command.and(by_webhook)
}

/// What a small script needs without a JSON reader.
fn variables(text: &str) -> Vec<(&'static str, String)> {
    let payload: Value = serde_json::from_str(text).unwrap_or_default();
    let of = |value: &Value| value.as_str().unwrap_or_default().replace('\0', "");
    vec![
        ("STORMLOG_EVENT", of(&payload["event"])),
        ("STORMLOG_HEADLINE", of(&payload["headline"][0])),
        ("STORMLOG_EVENT_RUN", of(&payload["run"])),
    ]
}
