//! `stormlog serve`: the metrics, runs and pages of a node.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stormlog_metrics::Format;
use stormlog_model::text::inert_text;
use stormlog_node::{Node, NodeOptions, StateFile};
use stormlog_serve::{
    Audit, Exposure, Listen, NodeServer, Otlp, Pyroscope, ServeOptions, Textfile, Tls, TlsFiles, Token,
    exposition,
};

use crate::cmd::report::page_of;
use crate::default_path;
use crate::exit::{Exit, MissingInput, UsageError};
use crate::interpreter::secure_post;
use crate::table::moment;

pub(crate) struct Options {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) listen: Listen,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) allow_trigger: bool,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) textfile: Option<PathBuf>,
    pub(crate) holders: bool,
    /// Empty: where the environment says.
    pub(crate) otlp: Option<String>,
    pub(crate) pyroscope: Option<String>,
    pub(crate) pyroscope_token: Option<PathBuf>,
    pub(crate) pyroscope_interval: Duration,
    pub(crate) once: bool,
    pub(crate) format: Format,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let roots = match options.paths.is_empty() {
        true => vec![default_path::or_runs(None)?],
        false => options.paths.clone(),
    };
    if let Some(missing) = roots.iter().find(|root| !root.is_dir()) {
        return Err(MissingInput::runs(missing).into());
    }
    let token = options.token_file.as_deref().map(Token::read).transpose();
    let token = token.map_err(|error| UsageError(error.to_string()))?;
    let tls =
        options.tls.as_ref().map(Tls::read).transpose().map_err(|error| UsageError(error.to_string()))?;
    let textfile = options.textfile.clone().map(Textfile::new).transpose().map_err(UsageError)?;
    let state = options.state.clone().map(StateFile::new);
    // A service answers in time; a command that answers once answers all.
    let budget = options.once.then_some(Duration::from_secs(3600));
    let node = NodeOptions { roots, state, reads_holders: options.holders, budget, ..NodeOptions::default() };
    let mut node = Node::new(node).map_err(|error| UsageError(error.to_string()))?;
    if options.once {
        node.look();
        match &textfile {
            Some(file) => file.write(&exposition(&mut node, Exposure::Everyone).render(Format::Text))?,
            None => {
                let text = exposition(&mut node, Exposure::Owner).render(options.format);
                io::stdout().write_all(text.as_bytes())?;
            }
        }
        return Ok(Exit::Ok);
    }
    let over = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Without the handler the signal still ends the process, only less tidily.
        let _ = signal_hook::flag::register(signal, Arc::clone(&over));
    }
    let pages = Box::new(|path: &std::path::Path| {
        page_of(path).map_err(|error| format!("The report cannot be made: {error:#}"))
    });
    let (otlp, pyroscope) = receivers(options)?;
    // The user chose the receiver of what is sent.
    let exposure = if options.holders { Exposure::Owner } else { Exposure::Everyone };
    let listen = options.listen.clone();
    if options.allow_trigger && token.is_none() && !matches!(listen, Listen::Unix(_)) {
        return Err(UsageError(
            "--allow-trigger needs --token-file, or a private socket (--listen unix:PATH)".to_owned(),
        )
        .into());
    }
    let trigger = options.allow_trigger.then(|| Box::new(audit) as Box<Audit>);
    let serving = ServeOptions { listen, token, tls, pages, textfile, otlp, pyroscope, exposure, trigger };
    let server = NodeServer::bind(node, serving).map_err(|error| UsageError(error.to_string()))?;
    match (&options.listen, server.address()) {
        (Listen::Unix(path), _) => writeln!(io::stderr(), "Listening at unix:{}", path.display())?,
        (_, Some(address)) => {
            let scheme = if options.tls.is_some() { "https" } else { "http" };
            writeln!(io::stderr(), "Listening at {scheme}://{address}/metrics")?;
        }
        _ => {}
    }
    server.run(&|| !over.load(Ordering::Relaxed))?;
    Ok(Exit::Ok)
}

/// A line of the log for each attempt to ask a process for something.
fn audit(line: &str) {
    let now = moment(stormlog_store::wall_ns() as i64);
    // A log that is gone does not end the service.
    let _ = writeln!(io::stderr(), "{now} {}", inert_text(line));
}

/// Where metrics and heaps are pushed to.
fn receivers(options: &Options) -> anyhow::Result<(Option<Otlp>, Option<Pyroscope>)> {
    let wrong = |what: &str, error: stormlog_push::PushError| UsageError(format!("{what}: {error}"));
    let variable = |name: &str| std::env::var(name).ok();
    let otlp = options.otlp.as_deref().map(|url| {
        Otlp::new(Some(url).filter(|url| !url.is_empty()), secure_post(), &variable)
            .map_err(|error| wrong("--otlp", error))
    });
    let token = options.pyroscope_token.as_deref().map(stormlog_push::read_token).transpose();
    let token = token.map_err(|error| wrong("--pyroscope-token", error))?;
    let pyroscope = options.pyroscope.as_deref().map(|url| {
        Pyroscope::new(url, token, Some(options.pyroscope_interval), secure_post())
            .map_err(|error| wrong("--pyroscope", error))
    });
    Ok((otlp.transpose()?, pyroscope.transpose()?))
}
