//! Whether an exception means that memory ran out, and by which sign.
//!
//! Where 0.4.3 is right the reason is spelt as it spells it, because scripts match it. What it misses is added, and what
//! it takes for memory (ports, quotas, locks) is distinguished by the words around the phrase. Must never look at anything
//! but the facts handed in, and never at more than a bounded part of a message.

use std::borrow::Cow;

use crate::Cause;

/// Messages beyond this are tracebacks and dumps; what ran out is said at the start.
const MAX_MESSAGE: usize = 64 << 10;
/// "Cannot allocate memory" on Linux.
const ENOMEM: i32 = 12;
const TORCH: &str = "torch.cuda.OutOfMemoryError";
const TENSORFLOW: &str = "tensorflow.ResourceExhaustedError";

/// What is known of an exception.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExceptionFacts<'a> {
    /// `type(exc).__name__`.
    pub type_name: &'a str,
    /// `type(exc).__module__`.
    pub module: &'a str,
    /// Every class it derives from, as `module.Name`; its own may be among them.
    pub bases: &'a [&'a str],
    /// `str(exc)`.
    pub message: &'a str,
    /// `exc.errno`, where it has one.
    pub errno: Option<i32>,
}

/// What an exception means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classification {
    /// Whether memory ran out.
    pub is_oom: bool,
    /// By which sign; `None` when it did not.
    pub reason: Option<Cow<'static, str>>,
    is_memory_error: bool,
}

impl Classification {
    /// The cause a bundle names for it; `None` when memory did not run out.
    pub fn cause(&self) -> Option<Cause> {
        let cause = if self.is_memory_error { Cause::MemoryError } else { Cause::OomException };
        self.is_oom.then_some(cause)
    }
}

/// Classifies an exception.
pub fn classify(facts: &ExceptionFacts<'_>) -> Classification {
    let kind = Kind::of(facts);
    let reason = reason(facts, kind);
    Classification { is_oom: reason.is_some(), reason, is_memory_error: kind.memory_error && !kind.torch }
}

/// What the classes of an exception say.
#[derive(Clone, Copy)]
struct Kind {
    torch: bool,
    tensorflow: bool,
    memory_error: bool,
    array: bool,
    out_of_memory: bool,
    os_error: bool,
    /// The launcher's report about a rank: its message has the rank's, and ours.
    of_child: bool,
}

impl Kind {
    fn of(facts: &ExceptionFacts<'_>) -> Self {
        let mut kind = Kind {
            torch: false,
            tensorflow: false,
            memory_error: false,
            array: false,
            out_of_memory: false,
            os_error: false,
            of_child: false,
        };
        kind.look(facts.module, facts.type_name);
        for base in facts.bases {
            let (module, name) = base.rsplit_once('.').unwrap_or(("", base));
            kind.look(module, name);
        }
        kind
    }

    fn look(&mut self, module: &str, name: &str) {
        let (module, name) = (module.to_ascii_lowercase(), name.to_ascii_lowercase());
        let is_builtin = module.is_empty() || module == "builtins";
        self.torch |= name == "outofmemoryerror" && module.contains("torch");
        self.tensorflow |= name.ends_with("resourceexhaustederror");
        self.memory_error |= name == "memoryerror" && is_builtin;
        self.array |= name == "_arraymemoryerror";
        self.out_of_memory |= name.ends_with("outofmemoryerror");
        self.of_child |= name == "childfailederror" && module.contains("torch");
        self.os_error |= is_builtin && matches!(name.as_str(), "oserror" | "ioerror" | "environmenterror");
    }
}

fn reason(facts: &ExceptionFacts<'_>, kind: Kind) -> Option<Cow<'static, str>> {
    if kind.of_child {
        return None;
    }
    if kind.torch {
        return Some(TORCH.into());
    }
    let message = bounded(facts.message).trim().to_lowercase();
    if kind.tensorflow && !is_about_something_else(&message) {
        return Some(TENSORFLOW.into());
    }
    let is_known = kind.memory_error || kind.out_of_memory;
    for (pattern, guard) in PATTERNS {
        // A class that is about memory settles what its message is about.
        if found(&message, pattern, if is_known { Guard::None } else { *guard }) {
            return Some(format!("message_pattern:{pattern}").into());
        }
    }
    if kind.array {
        return Some("numpy.ArrayMemoryError".into());
    }
    if kind.memory_error {
        return Some("builtins.MemoryError".into());
    }
    if kind.out_of_memory {
        let module = bounded(facts.module);
        return Some(format!("{module}.{}", bounded(facts.type_name)).into());
    }
    (facts.errno == Some(ENOMEM) && kind.os_error).then_some(Cow::Borrowed("errno:ENOMEM"))
}

/// What must be true around a phrase before it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    /// The phrase says it all.
    None,
    /// Not followed by a word that makes it about something countable, nor preceded by one that denies it.
    Ran,
    /// What was to be allocated is memory, or is not said.
    Request,
    /// The status of a remote call is not about quotas or message sizes.
    Status,
    /// `MemoryError` as a class of its own, not the end of another one's name.
    Class,
    /// Not the loader's complaint about thread-local storage.
    Loader,
}

/// 0.4.3's eight in its order, then what it misses. The first that counts is the reason.
const PATTERNS: &[(&str, Guard)] = &[
    ("out of memory", Guard::Ran),
    ("resource exhausted", Guard::Status),
    ("failed to allocate", Guard::Request),
    ("allocation failed", Guard::Request),
    ("memoryerror", Guard::Class),
    ("std::bad_alloc", Guard::None),
    ("cublas_status_alloc_failed", Guard::None),
    ("cudnn_status_alloc_failed", Guard::None),
    ("_status_alloc_failed", Guard::None),
    ("cudaerrormemoryallocation", Guard::None),
    ("cuda_error_out_of_memory", Guard::None),
    ("hiperroroutofmemory", Guard::None),
    ("hiperrormemoryallocation", Guard::None),
    ("error_out_of_device_memory", Guard::None),
    ("error_out_of_host_memory", Guard::None),
    ("cl_mem_object_allocation_failure", Guard::None),
    ("failed to cuda calloc", Guard::None),
    ("failed to cuda malloc", Guard::None),
    ("oom when allocating", Guard::None),
    ("resource_exhausted", Guard::Status),
    ("can't allocate memory", Guard::None),
    ("cannot allocate memory", Guard::Loader),
    ("unable to allocate", Guard::Request),
    ("could not allocate", Guard::Request),
    ("couldn't allocate", Guard::Request),
    ("attempting to allocate", Guard::Request),
    ("not enough memory", Guard::None),
    ("insufficient memory", Guard::None),
    ("no available memory for the cache blocks", Guard::None),
    ("workers are out of shared memory", Guard::None),
    ("java heap space", Guard::None),
];

fn found(message: &str, pattern: &str, guard: Guard) -> bool {
    message.match_indices(pattern).any(|(at, _)| {
        let (before, after) = (&message[..at], &message[at + pattern.len()..]);
        match guard {
            Guard::None => true,
            Guard::Ran => !is_denied(before) && !is_countable(after),
            Guard::Request => is_memory_request(before, after),
            Guard::Status => is_bare(after) || (names_memory(message) && !is_about_something_else(message)),
            Guard::Class => {
                let prefix = before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
                matches!(prefix, "" | "outof" | "array" | "no" | "gpu" | "cuda" | "host" | "device" | "arrow")
            }
            Guard::Loader => !after.trim_start().starts_with("in static tls"),
        }
    })
}

/// "to avoid running out of memory", "not out of memory": advice, not an event.
fn is_denied(before: &str) -> bool {
    let mut words = before.split_whitespace().rev();
    let mut last = words.next().unwrap_or("");
    if matches!(last, "running" | "run" | "runs" | "an" | "any") {
        last = words.next().unwrap_or("");
    }
    matches!(last, "not" | "never" | "avoid" | "avoiding" | "prevent" | "preventing" | "without")
}

/// "out of memory slots", "out of memory range": short of something memory merely describes.
fn is_countable(after: &str) -> bool {
    const THINGS: [&str; 20] = [
        "slot",
        "slots",
        "range",
        "bounds",
        "bound",
        "order",
        "region",
        "regions",
        "bank",
        "banks",
        "handles",
        "keys",
        "types",
        "entries",
        "cells",
        "locations",
        "maps",
        "cards",
        "tokens",
        "segments",
    ];
    let Some(rest) = after.strip_prefix([' ', '-', '_']) else { return false };
    let word = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
    THINGS.contains(&word)
}

/// "failed to allocate 32 MiB", "port allocation failed": what was asked for decides.
fn is_memory_request(before: &str, after: &str) -> bool {
    const OTHERS: [&str; 28] = [
        "port",
        "ports",
        "ip",
        "address",
        "addresses",
        "pty",
        "tty",
        "descriptor",
        "descriptors",
        "fd",
        "fds",
        "handle",
        "handles",
        "license",
        "licence",
        "seat",
        "node",
        "nodes",
        "job",
        "jobs",
        "slot",
        "slots",
        "worker",
        "workers",
        "quota",
        "disk",
        "inode",
        "budget",
    ];
    let sentence = |text: &str| text.split(['\n', '!']).next().unwrap_or("").to_owned();
    let after = sentence(after);
    // The thing comes right after ("failed to allocate port 80") or right before ("port allocation failed").
    let near =
        words(&after).take(4).chain(before.rsplit(['\n', '.', ':']).next().into_iter().flat_map(|text| {
            let mut last: Vec<&str> = words(text).collect();
            last.drain(..last.len().saturating_sub(3));
            last
        }));
    if near.into_iter().any(|word| OTHERS.contains(&word)) {
        return false;
    }
    is_bare(&after) || names_memory(&after) || names_memory(before)
}

fn is_bare(after: &str) -> bool {
    after.chars().all(|c| !c.is_alphanumeric())
}

fn names_memory(text: &str) -> bool {
    const MEMORY: [&str; 24] = [
        "memory",
        "mem",
        "oom",
        "heap",
        "tensor",
        "tensors",
        "buffer",
        "buffers",
        "array",
        "arrays",
        "matrix",
        "workspace",
        "vram",
        "hbm",
        "vmem",
        "dram",
        "ram",
        "malloc",
        "cudamalloc",
        "hipmalloc",
        "bitmap",
        "cache",
        "pages",
        "stack",
    ];
    words(text).any(|word| MEMORY.contains(&word) || is_size(word))
}

/// `bytes`, `gib`, `32mib`, `33554432b`.
fn is_size(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let has_number = unit.len() < word.len();
    match unit {
        "byte" | "bytes" | "kib" | "mib" | "gib" | "tib" | "kb" | "mb" | "gb" | "tb" => true,
        "b" | "k" | "m" | "g" | "t" => has_number,
        _ => false,
    }
}

/// Quotas, rates, message sizes, disks, file descriptors: what else runs out.
fn is_about_something_else(message: &str) -> bool {
    const SIGNS: [&str; 16] = [
        "quota",
        "too many",
        "rate limit",
        "rate-limit",
        "ratelimit",
        "requests per",
        "larger than max",
        "exceeds maximum size",
        "message exceeds",
        "file descriptor",
        "no space left",
        "disk",
        "thread pool",
        "connection",
        "concurrent",
        "429",
    ];
    SIGNS.iter().any(|sign| message.contains(sign))
        && !["oom when", "out of memory", "allocate"].iter().any(|sign| message.contains(sign))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The start of a text, cut between characters.
fn bounded(text: &str) -> &str {
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}
