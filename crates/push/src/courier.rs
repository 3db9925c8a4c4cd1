//! The way of a notice out of the supervisor: a bounded queue, a thread, and a process of its own that delivers.
//!
//! A receiver may hang for its whole time, and the exit status of the program must not wait for that: the delivering process outlives the supervisor.
//! It is started with the first notice. The thread that records only puts into the queue, and what finds no room there is counted.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::notice::Notice;

/// Notices that wait to be handed over.
const QUEUE: usize = 64;
/// Notices of one run. Their results fit into a pipe that is read at the end.
const MOST_NOTICES: u64 = 500;
/// How long the end of a run waits for its last notice. Longer as the first process of a container, because no process outlives that one.
const GRACE: Duration = Duration::from_secs(1);
const GRACE_OF_INIT: Duration = Duration::from_secs(45);

/// Who gets notices.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Destination {
    /// Words of a command.
    pub command: Vec<String>,
    /// A URL.
    pub webhook: Option<String>,
    /// For its `Authorization: Bearer`.
    pub token: Option<String>,
    /// The command that posts over TLS.
    pub secure: Vec<OsString>,
}

/// How one delivery went.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Delivered {
    /// Why it failed.
    pub(crate) failure: Option<String>,
}

/// Takes notices.
#[derive(Debug, Clone)]
pub struct Courier {
    queue: SyncSender<Notice>,
    lost: Arc<AtomicU64>,
}

/// The other end of a [`Courier`], for the end of the run.
#[derive(Debug)]
pub struct Deliveries {
    done: Receiver<Vec<String>>,
    lost: Arc<AtomicU64>,
}

/// The run's answer, asked for a notice without a headline.
pub type Answer = Box<dyn Fn(&Path) -> Vec<String> + Send>;

impl Courier {
    /// Delivers to `destination` by the command `helper`, which calls [`deliver`](crate::deliver). `None` where no thread can be started.
    #[must_use]
    pub fn start(
        helper: Vec<OsString>,
        destination: Destination,
        answer: Answer,
    ) -> Option<(Courier, Deliveries)> {
        let (queue, waiting) = sync_channel::<Notice>(QUEUE);
        let (sender, done) = channel();
        let hand_over = move || {
            // After the grace the receiving end is gone.
            let _ = sender.send(hand_over(&waiting, &helper, &destination, &answer));
        };
        thread::Builder::new().name("stormlog-notices".into()).spawn(hand_over).ok()?;
        let lost = Arc::new(AtomicU64::new(0));
        Some((Courier { queue, lost: Arc::clone(&lost) }, Deliveries { done, lost }))
    }

    /// Puts a notice into the queue; never waits.
    pub fn send(&self, notice: Notice) {
        if self.queue.try_send(notice).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Deliveries {
    /// After the last [`Courier`] is gone: a sentence for each sort of failure, as far as they are known within a moment.
    #[must_use]
    pub fn finish(self) -> Vec<String> {
        let grace = if std::process::id() == 1 { GRACE_OF_INIT } else { GRACE };
        let mut sentences = match self.done.recv_timeout(grace) {
            Ok(sentences) => sentences,
            Err(RecvTimeoutError::Timeout) => {
                vec!["alerts are still being delivered in the background".to_owned()]
            }
            Err(RecvTimeoutError::Disconnected) => Vec::new(),
        };
        let lost = self.lost.load(Ordering::Relaxed);
        sentences.extend(
            (lost > 0).then(|| format!("{lost} alerts were not delivered: the receiver is too slow")),
        );
        sentences
    }
}

/// Hands notices to the helper until there are no more, and reads how it went.
fn hand_over(
    waiting: &Receiver<Notice>,
    helper: &[OsString],
    destination: &Destination,
    answer: &Answer,
) -> Vec<String> {
    let mut child: Option<Child> = None;
    let mut failed: Option<String> = None;
    let mut count = 0;
    for mut notice in waiting {
        count += 1;
        if count > MOST_NOTICES {
            continue;
        }
        if notice.headline.is_empty() {
            notice.headline = answer(&notice.run);
        }
        if child.is_none() {
            match start(helper, destination) {
                Ok(started) => child = Some(started),
                Err(error) => failed = Some(error.to_string()),
            }
        }
        let input = child.as_mut().and_then(|child| child.stdin.as_mut());
        // One that is gone has its reason among its results.
        let _ = input.map(|input| input.write_all(format!("{}\n", notice.to_value()).as_bytes()));
    }
    let mut failures: Vec<String> = failed.into_iter().collect();
    if let Some(mut child) = child {
        drop(child.stdin.take());
        let output = child.stdout.take().map(BufReader::new);
        for line in output.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
            failures.extend(serde_json::from_str::<Delivered>(&line).ok().and_then(|one| one.failure));
        }
        let _ = child.wait();
    }
    failures.extend((count > MOST_NOTICES).then(|| format!("a run reports {MOST_NOTICES} at most")));
    match failures.first() {
        Some(first) => vec![format!("{} of {count} alerts were not delivered: {first}", failures.len())],
        None => Vec::new(),
    }
}

/// In a process group of its own, so that the keyboard does not end it; and without our streams, so that no reader of them waits for it.
fn start(helper: &[OsString], destination: &Destination) -> std::io::Result<Child> {
    let (program, arguments) = helper.split_first().ok_or(std::io::ErrorKind::NotFound)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    // Through the pipe: a command line can be read by everyone.
    let settings = serde_json::to_string(destination)?;
    if let Some(input) = &mut child.stdin {
        input.write_all(format!("{settings}\n").as_bytes())?;
    }
    Ok(child)
}
