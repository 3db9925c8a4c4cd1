//! Requests over TLS by a command that has it: Python's `ssl`, through a module of the package. The request goes to its standard input, secrets included;
//! the status and the answer come back on its standard output.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::error::PushError;
use crate::hook_command::wait;
use crate::http::{Method, Request};

/// A status, or why there is none.
const MOST_STATUS: u64 = 4096;

/// Sends by `command`. A line of JSON and the body go in; a line with the status comes out, and up to `most` bytes of the answer's body.
pub(crate) fn send(
    command: &[OsString],
    method: Method,
    request: &Request<'_>,
    timeout: Duration,
    most: usize,
) -> Result<(u16, Vec<u8>), PushError> {
    let host = request.url.to_string();
    let failed = |source: io::Error| PushError::Answer { host: host.clone(), source };
    let (program, arguments) =
        command.split_first().ok_or_else(|| PushError::NoTls { host: request.url.to_string() })?;
    let mut headers = request.headers.to_vec();
    if !request.content_type.is_empty() {
        headers.push(("Content-Type".to_owned(), request.content_type.to_owned()));
    }
    let head = json!({
        "method": method.as_str(), "url": request.url.secret_text(), "headers": headers,
        "timeout": timeout.as_secs_f64(), "most": most,
    });
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
    // The answer may be larger than a pipe holds.
    let reading = thread::spawn(move || -> io::Result<Vec<u8>> {
        let mut answer = Vec::new();
        if let Some(output) = output {
            output.take(MOST_STATUS + most as u64).read_to_end(&mut answer)?;
        }
        Ok(answer)
    });
    let status = wait(&mut child, timeout + Duration::from_secs(2)).map_err(failed)?;
    let _ = writing.join();
    let answer = reading.join().map_err(|_| failed(io::ErrorKind::Other.into()))?.map_err(failed)?;
    let end = answer.iter().position(|byte| *byte == b'\n').unwrap_or(answer.len());
    let line = String::from_utf8_lossy(&answer[..end]).trim().to_owned();
    match line.parse() {
        Ok(code) if status.success() => Ok((code, answer.get(end + 1..).unwrap_or_default().to_vec())),
        _ if line.is_empty() => Err(failed(io::Error::other("the connection failed"))),
        _ => Err(failed(io::Error::other(line))),
    }
}
