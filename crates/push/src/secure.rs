//! POST over TLS by a command that has it: Python's `ssl`, through a module of the package. The request goes to its standard input, secrets included; the
//! status comes back on its standard output.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::error::PushError;
use crate::hook_command::wait;
use crate::http::Request;

/// Posts by `command`. A line of JSON and the body go in; a line with the status comes out.
pub(crate) fn post(
    command: &[OsString],
    request: &Request<'_>,
    timeout: Duration,
) -> Result<(u16, Vec<u8>), PushError> {
    let host = request.url.to_string();
    let failed = |source: io::Error| PushError::Answer { host: host.clone(), source };
    let (program, arguments) =
        command.split_first().ok_or_else(|| PushError::NoTls { host: request.url.to_string() })?;
    let mut headers = vec![("Content-Type".to_owned(), request.content_type.to_owned())];
    headers.extend_from_slice(request.headers);
    let head =
        json!({"url": request.url.secret_text(), "headers": headers, "timeout": timeout.as_secs_f64()});
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let mut whole = format!("{head}\n").into_bytes();
    whole.extend_from_slice(request.body);
    // A child that does not read must not stop the clock.
    let writing = thread::spawn(move || input.map(|mut input| input.write_all(&whole)));
    let status = wait(&mut child, timeout + Duration::from_secs(2)).map_err(failed)?;
    let _ = writing.join();
    let mut answer = String::new();
    if let Some(output) = output {
        output.take(4096).read_to_string(&mut answer).map_err(failed)?;
    }
    match answer.trim().parse() {
        Ok(code) if status.success() => Ok((code, Vec::new())),
        _ if answer.trim().is_empty() => Err(failed(io::Error::other("the connection failed"))),
        _ => Err(failed(io::Error::other(answer.trim().to_owned()))),
    }
}
