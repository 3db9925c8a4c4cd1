//! `stormlog serve`: metrics for everyone on the machine, runs and pages for the owner.
//!
//! Loopback is open to every local user, so what a request without the token gets has no command lines, paths or lines of code. A Unix socket is the
//! owner's alone. Must never answer from a directory that the node's reader did not find.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use stormlog_catalog::request::Kind;
use stormlog_catalog::run::{RunDirectory, StoredRun};
use stormlog_metrics::families::PUSH_FAILURES;
use stormlog_metrics::{Exposition, Format, Labels};
use stormlog_node::Node;
use stormlog_push::PushError;

use crate::http::{Listen, Listener, Refusal, Reply, Request, Tls};
use crate::otlp::Otlp;
use crate::pushing::{Failures, Pushing};
use crate::pyroscope::Pyroscope;
use crate::series::{Exposure, exposition, live_captures};
use crate::textfile::Textfile;
use crate::token::Token;
use crate::trigger::{self, Audit, Trigger};

/// Two answers within this time are of one look: asking often costs the machine nothing.
const FRESH: Duration = Duration::from_secs(1);
/// Where no scraper asks, the interval at which the reader looks: a worker's death must be seen before its directory is dropped.
const OWN_INTERVAL: Duration = Duration::from_secs(15);
/// The list of runs ends here.
const LIST_BUDGET: Duration = Duration::from_secs(20);

/// Makes the page of a run; an error is a sentence.
pub type PageMaker = dyn Fn(&Path) -> Result<String, String> + Send + Sync;

/// How to serve.
pub struct ServeOptions {
    /// Where.
    pub listen: Listen,
    /// What a client must send for runs and pages.
    pub token: Option<Token>,
    /// Encrypts.
    pub tls: Option<Tls>,
    /// Makes pages of runs.
    pub pages: Box<PageMaker>,
    /// A file for a collector of text files, written at every look of its own.
    pub textfile: Option<Textfile>,
    /// Where metrics are pushed to.
    pub otlp: Option<Otlp>,
    /// Where heap profiles are pushed to.
    pub pyroscope: Option<Pyroscope>,
    /// What is pushed.
    pub exposure: Exposure,
    /// Lets owners ask processes for snapshots; gets a line for each attempt.
    pub trigger: Option<Box<Audit>>,
}

/// Why it cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is open to other machines.
    #[error(
        "{0} can be reached from other machines: that needs --token-file, --tls-cert and --tls-key; listen on 127.0.0.1 or unix:PATH without them"
    )]
    NotLocal(std::net::SocketAddr),
    /// The socket cannot be made.
    #[error("cannot listen at {address}: {source}; choose another with --listen")]
    Listen {
        /// Where.
        address: String,
        /// What the system reported.
        source: io::Error,
    },
    /// Accepting connections failed.
    #[error("the server stopped: {0}")]
    Ended(#[from] io::Error),
}

/// The service of a node.
pub struct NodeServer {
    listener: Listener,
    shared: Arc<Shared>,
}

struct Shared {
    node: Mutex<PolledNode>,
    token: Option<Token>,
    /// Whether every client is the owner.
    is_private: bool,
    /// Whether clients may be on other machines, which need the token for everything.
    is_remote: bool,
    pages: Box<PageMaker>,
    /// One page at a time: each may take much memory.
    paging: Mutex<()>,
    textfile: Option<Textfile>,
    otlp: Option<Otlp>,
    pyroscope: Option<Pyroscope>,
    exposure: Exposure,
    trigger: Option<Trigger>,
    /// Pushes that were not taken.
    otlp_failures: Failures,
    pyroscope_failures: Failures,
}

/// The reader of a node and when it last polled it.
struct PolledNode {
    node: Node,
    looked_at: Option<Instant>,
}

impl PolledNode {
    fn refresh(&mut self, age: Duration) {
        if self.looked_at.is_none_or(|at| at.elapsed() >= age) {
            self.node.look();
            self.looked_at = Some(Instant::now());
        }
    }
}

impl NodeServer {
    /// Listens.
    pub fn bind(node: Node, options: ServeOptions) -> Result<Self, ServeError> {
        if let Listen::Tcp(address) = options.listen
            && !address.ip().is_loopback()
            && (options.token.is_none() || options.tls.is_none())
        {
            return Err(ServeError::NotLocal(address));
        }
        let listener = Listener::bind(&options.listen, options.tls).map_err(|source| {
            let address = match &options.listen {
                Listen::Tcp(address) => address.to_string(),
                Listen::Unix(path) => path.display().to_string(),
            };
            ServeError::Listen { address, source }
        })?;
        let shared = Shared {
            node: Mutex::new(PolledNode { node, looked_at: None }),
            token: options.token,
            is_private: matches!(options.listen, Listen::Unix(_)),
            is_remote: matches!(options.listen, Listen::Tcp(address) if !address.ip().is_loopback()),
            pages: options.pages,
            paging: Mutex::new(()),
            textfile: options.textfile,
            otlp: options.otlp,
            pyroscope: options.pyroscope,
            exposure: options.exposure,
            trigger: options.trigger.map(Trigger::new),
            otlp_failures: Failures::default(),
            pyroscope_failures: Failures::default(),
        };
        Ok(NodeServer { listener, shared: Arc::new(shared) })
    }

    /// The address, where it listens at one.
    #[must_use]
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        self.listener.address()
    }

    /// Answers until `keep_serving` returns false.
    pub fn run(&self, keep_serving: &dyn Fn() -> bool) -> Result<(), ServeError> {
        let (end, ended) = mpsc::channel::<()>();
        let own = Arc::clone(&self.shared);
        let looking = thread::Builder::new().name("look".to_owned()).spawn(move || own.look_on(&ended))?;
        let pushing = self.start_pushing()?;
        let shared = Arc::clone(&self.shared);
        let handler: Arc<dyn Fn(&Request) -> Reply + Send + Sync> =
            Arc::new(move |request: &Request| shared.reply(request));
        let served = self.listener.run(keep_serving, &handler);
        drop(end);
        pushing.into_iter().for_each(Pushing::end);
        // A thread that panicked has nothing to hand over.
        let _ = looking.join();
        served.map_err(ServeError::Ended)
    }
}

impl NodeServer {
    fn start_pushing(&self) -> io::Result<Vec<Pushing>> {
        let mut pushing = Vec::new();
        if let Some(otlp) = &self.shared.otlp {
            let shared = Arc::clone(&self.shared);
            pushing.push(Pushing::start("otlp", otlp.interval, true, move || shared.push_metrics())?);
        }
        if let Some(pyroscope) = &self.shared.pyroscope {
            let shared = Arc::clone(&self.shared);
            pushing.push(Pushing::start("pyroscope", pyroscope.interval, false, move || {
                shared.push_profiles()
            })?);
        }
        Ok(pushing)
    }
}

impl Shared {
    fn push_metrics(&self) {
        let Some(otlp) = &self.otlp else { return };
        if otlp.send(&self.exposition(self.exposure)).is_err() {
            self.otlp_failures.add();
        }
    }

    fn push_profiles(&self) {
        let Some(pyroscope) = &self.pyroscope else { return };
        let mut polled = self.lock();
        polled.refresh(FRESH);
        let captures = live_captures(&mut polled.node);
        drop(polled);
        for capture in captures {
            let Err(error) = pyroscope.send(&capture) else { continue };
            self.pyroscope_failures.add();
            if !matches!(error, PushError::Status { .. }) {
                // The others would wait for the same receiver.
                break;
            }
        }
    }

    /// The series of a look that is fresh.
    fn exposition(&self, exposure: Exposure) -> Exposition {
        let mut polled = self.lock();
        polled.refresh(FRESH);
        let mut series = exposition(&mut polled.node, exposure);
        drop(polled);
        let pushes = [
            ("otlp", self.otlp.is_some(), &self.otlp_failures),
            ("pyroscope", self.pyroscope.is_some(), &self.pyroscope_failures),
        ];
        for (receiver, _, failures) in pushes.into_iter().filter(|(_, is_used, _)| *is_used) {
            series.add(&PUSH_FAILURES, Labels::new().with("receiver", receiver), failures.count());
        }
        series
    }

    fn lock(&self) -> MutexGuard<'_, PolledNode> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks where no scraper does, and writes the file of text, until the other end is dropped.
    fn look_on(&self, ended: &mpsc::Receiver<()>) {
        loop {
            {
                let mut polled = self.lock();
                polled.refresh(OWN_INTERVAL);
                if let Some(textfile) = &self.textfile {
                    let text = exposition(&mut polled.node, Exposure::Everyone).render(Format::Text);
                    drop(polled);
                    // The collector shows the age of a file that is not written any more.
                    let _ = textfile.write(&text);
                }
            }
            if ended.recv_timeout(OWN_INTERVAL) != Err(mpsc::RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn reply(&self, request: &Request) -> Reply {
        if !self.is_private && !self.is_remote && !is_local_name(&request.host) {
            return Reply::refused(Refusal::WrongHost);
        }
        let asked = (request.method == "POST" && self.trigger.is_some())
            .then(|| trigger::wanted(request.path.strip_prefix("/runs/")?))
            .flatten();
        if request.method != "GET" && request.method != "HEAD" && asked.is_none() {
            return Reply::refused(Refusal::WrongMethod);
        }
        let is_owner = match (&request.bearer, &self.token) {
            _ if self.is_private => true,
            (None, _) => false,
            (Some(given), Some(token)) if token.is(given) => true,
            _ => {
                self.note_refusal(asked, "wrong token");
                return unauthorized("The token is not the one in --token-file.\n");
            }
        };
        let needs_token = match request.path.as_str() {
            "/healthz" => false,
            "/metrics" => self.is_remote,
            path => self.is_remote || path == "/runs" || path.starts_with("/runs/"),
        };
        if needs_token && !is_owner {
            self.note_refusal(asked, "no token");
            return unauthorized(
                "This needs the token: send `Authorization: Bearer TOKEN` with the text of --token-file, or use a Unix socket.\n",
            );
        }
        if let (Some((id, kind)), Some(trigger)) = (asked, &self.trigger) {
            if request.has_large_body {
                self.note_refusal(asked, "a body");
                return Reply::refused(Refusal::LargeBody);
            }
            let mut is_found = false;
            let reply = self.of_run(id, |directory| {
                is_found = true;
                trigger.post(id, kind, directory, request.pid)
            });
            if !is_found {
                self.note_refusal(asked, "no such run");
            }
            return reply;
        }
        match request.path.as_str() {
            "/metrics" => self.metrics(request, is_owner),
            "/healthz" => Reply::text("200 OK", "ok\n"),
            "/runs" => self.runs(),
            path => match path.strip_prefix("/runs/").and_then(|rest| rest.strip_suffix("/report")) {
                Some(id) => self.page(id),
                None => match path.strip_prefix("/runs/").and_then(|rest| rest.split_once("/requests/")) {
                    Some((id, name)) => self.of_run(id, |directory| trigger::answer(directory, name)),
                    None => Reply::text(
                        "404 Not Found",
                        "Not found. The paths are /metrics, /healthz, /runs and /runs/RUN/report.\n",
                    ),
                },
            },
        }
    }

    fn metrics(&self, request: &Request, is_owner: bool) -> Reply {
        let format = Format::accepted(&request.accept);
        let exposure = if is_owner { Exposure::Owner } else { Exposure::Everyone };
        let exposition = self.exposition(exposure);
        Reply::ok(format.content_type(), exposition.render(format).into_bytes().into())
    }

    fn runs(&self) -> Reply {
        let mut polled = self.lock();
        polled.refresh(FRESH);
        let directories = polled.node.run_directories();
        drop(polled);
        let until = Instant::now() + LIST_BUDGET;
        let mut runs: Vec<StoredRun> = Vec::new();
        for path in directories {
            if Instant::now() >= until {
                return Reply::text(
                    "503 Service Unavailable",
                    "There are too many runs to list in time; remove old ones with `stormlog runs prune`.\n",
                );
            }
            runs.extend(RunDirectory::open(&path).as_ref().and_then(StoredRun::of));
        }
        runs.sort_by(|a, b| (a.started_at_ns, &a.path).cmp(&(b.started_at_ns, &b.path)));
        let rows: serde_json::Value = runs.iter().map(StoredRun::to_value).collect();
        Reply::ok("application/json", format!("{rows:#}\n").into_bytes().into())
    }

    fn page(&self, id: &str) -> Reply {
        self.of_run(id, |directory| {
            let _one = self.paging.lock().unwrap_or_else(PoisonError::into_inner);
            match (self.pages)(directory) {
                Ok(page) => Reply::ok("text/html; charset=utf-8", page.into_bytes().into()),
                Err(sentence) => Reply::text("500 Internal Server Error", &format!("{sentence}\n")),
            }
        })
    }

    /// Answers about the run of that name that the node's reader found.
    fn of_run(&self, id: &str, reply: impl FnOnce(&Path) -> Reply) -> Reply {
        let mut polled = self.lock();
        polled.refresh(FRESH);
        let directory = polled.node.run_directory(id);
        drop(polled);
        match directory {
            Some(directory) => reply(&directory),
            None => Reply::text("404 Not Found", "There is no run of that name; /runs lists them.\n"),
        }
    }

    fn note_refusal(&self, asked: Option<(&str, Kind)>, reason: &str) {
        if let (Some((id, kind)), Some(trigger)) = (asked, &self.trigger) {
            trigger.refused(id, kind, reason);
        }
    }
}

/// A browser that was sent here under another name by a hostile name server gets nothing. Ports may be forwarded, so any is right.
fn is_local_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn unauthorized(sentence: &str) -> Reply {
    let head = "WWW-Authenticate: Bearer\r\n".to_owned();
    Reply { head, ..Reply::text("401 Unauthorized", sentence) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for host in ["127.0.0.1", "127.0.0.1:9464", "localhost:80", "[::1]:9464", "127.8.8.8:1"] {
            assert!(is_local_name(host), "{host}");
        }
        for host in
            ["", "evil.example", "127.0.0.1.evil.example:9464", "localhost.evil.example", "10.0.0.1", "[::2]"]
        {
            assert!(!is_local_name(host), "{host}");
        }
    }
}
