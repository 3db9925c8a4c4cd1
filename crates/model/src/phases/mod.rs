//! Phases: named, nested stretches of a program, one stack for each session, rank and thread.
//!
//! Boundaries are events whose `phase_scope` is 0.4.3's, key for key. Closing out of order or from another thread is an
//! error and changes nothing. Who the calling thread is, is handed in; must never lock or read a clock.

mod open;

pub use open::{OpenPhase, OpenPhases, open_phases};

use std::sync::Arc;

use crate::Record;
use rustc_hash::FxHashMap;
use serde_json::Value;

/// The event that begins a phase.
pub const PHASE_ENTER: &str = "phase_enter";
/// The event that ends one.
pub const PHASE_EXIT: &str = "phase_exit";
/// Where an event's metadata says which phase it is about.
pub const PHASE_SCOPE: &str = "phase_scope";

/// Every event carries the whole path: deeper nesting than this is a loop that forgot to close.
pub const MAX_DEPTH: usize = 1024;

/// Why a phase could not be entered or left. The texts are those of 0.4.3's `PhaseProtocolError`, except where it has none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PhaseError {
    /// The name is blank. 0.4.3 raises `ValueError` here, and `PhaseProtocolError` for all others.
    #[error("phase name must be a non-empty string")]
    EmptyName,
    /// Nested too deeply.
    #[error("Phases are nested {depth} deep in thread {thread_id}; close some before entering {name:?}.")]
    TooDeep {
        /// The phase not entered.
        name: String,
        /// How deep.
        depth: usize,
        /// Where.
        thread_id: u64,
    },
    /// It was entered in another thread.
    #[error("Phase handle was closed from a different thread than it was opened.")]
    OtherThread {
        /// The phase.
        scope_id: String,
        /// The thread that tried.
        thread_id: u64,
    },
    /// A phase inside it is still open.
    #[error("Phase handles must be closed in strict LIFO order per thread.")]
    OutOfOrder {
        /// The phase.
        scope_id: String,
        /// The one that must be closed first.
        innermost: String,
    },
    /// Nothing is open in this thread.
    #[error("No active phase stack exists for this thread.")]
    NothingOpen {
        /// The phase.
        scope_id: String,
        /// The thread.
        thread_id: u64,
    },
    /// It is not open anywhere.
    #[error("Unknown phase scope_id '{scope_id}' for active tracker state.")]
    Unknown {
        /// The phase.
        scope_id: String,
    },
}

/// The calling thread.
#[derive(Debug, Clone, Copy)]
pub struct Thread<'a> {
    /// `threading.get_ident()`.
    pub id: u64,
    /// Its name; a blank one becomes `thread-<id>`.
    pub name: &'a str,
}

/// What leaves a phase again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseToken {
    /// `<session>:<sequence>`.
    pub scope_id: String,
    /// The session it was entered in.
    pub session_id: String,
    /// The rank it was entered on.
    pub rank: u64,
    /// The thread it was entered in.
    pub thread_id: u64,
    /// Its name.
    pub name: String,
}

/// A boundary, ready to become an event.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseBoundary {
    /// [`PHASE_ENTER`] or [`PHASE_EXIT`].
    pub event_type: &'static str,
    /// The sentence.
    pub context: String,
    /// `{"phase_scope": {…}}`.
    pub metadata: Record,
    /// Which phase.
    pub scope_id: String,
    /// Its names, outermost first.
    pub path: Vec<Arc<str>>,
}

#[derive(Debug, Clone)]
struct Active {
    scope_id: String,
    parent_scope_id: Option<String>,
    path: Vec<Arc<str>>,
    thread_name: String,
    attributes: Record,
}

type Key = (String, u64, u64);

/// The open phases of one recorder.
#[derive(Debug, Clone, Default)]
pub struct Phases {
    sequence: u64,
    stacks: FxHashMap<Key, Vec<Active>>,
}

impl Phases {
    /// Forgets everything, for a new session.
    pub fn reset(&mut self) {
        *self = Phases::default();
    }

    /// Whether anything is open.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// Enters a phase inside whatever this thread has open.
    pub fn enter(
        &mut self,
        session_id: &str,
        rank: u64,
        thread: Thread<'_>,
        name: &str,
        attributes: Record,
    ) -> Result<(PhaseToken, PhaseBoundary), PhaseError> {
        let name = name.trim();
        if name.is_empty() {
            return Err(PhaseError::EmptyName);
        }
        let key = (session_id.to_owned(), rank, thread.id);
        let depth = self.stacks.get(&key).map_or(0, Vec::len);
        if depth >= MAX_DEPTH {
            return Err(PhaseError::TooDeep { name: name.to_owned(), depth, thread_id: thread.id });
        }
        self.sequence = self.sequence.saturating_add(1);
        let stack = self.stacks.entry(key).or_default();
        let parent = stack.last();
        let mut path: Vec<Arc<str>> = parent.map_or_else(Vec::new, |parent| parent.path.clone());
        path.push(name.into());
        let thread_name =
            if thread.name.is_empty() { format!("thread-{}", thread.id) } else { thread.name.to_owned() };
        let active = Active {
            scope_id: format!("{session_id}:{}", self.sequence),
            parent_scope_id: parent.map(|parent| parent.scope_id.clone()),
            path,
            thread_name,
            attributes,
        };
        let boundary = boundary(&active, PHASE_ENTER, thread.id, self.sequence);
        let token = PhaseToken {
            scope_id: active.scope_id.clone(),
            session_id: session_id.to_owned(),
            rank,
            thread_id: thread.id,
            name: name.to_owned(),
        };
        stack.push(active);
        Ok((token, boundary))
    }

    /// Leaves a phase, from the thread `thread_id`.
    pub fn exit(&mut self, token: &PhaseToken, thread_id: u64) -> Result<PhaseBoundary, PhaseError> {
        let key = (token.session_id.clone(), token.rank, thread_id);
        let scope_id = || token.scope_id.clone();
        let Some(stack) = self.stacks.get_mut(&key) else {
            return Err(if self.is_open(token) {
                PhaseError::OtherThread { scope_id: scope_id(), thread_id }
            } else {
                PhaseError::NothingOpen { scope_id: scope_id(), thread_id }
            });
        };
        match stack.pop_if(|active| active.scope_id == token.scope_id) {
            Some(closed) => {
                if stack.is_empty() {
                    self.stacks.remove(&key);
                }
                self.sequence = self.sequence.saturating_add(1);
                Ok(boundary(&closed, PHASE_EXIT, thread_id, self.sequence))
            }
            None if stack.iter().any(|active| active.scope_id == token.scope_id) => {
                let innermost = stack.last().map(|active| active.scope_id.clone()).unwrap_or_default();
                Err(PhaseError::OutOfOrder { scope_id: scope_id(), innermost })
            }
            None if self.is_open(token) => Err(PhaseError::OtherThread { scope_id: scope_id(), thread_id }),
            None => Err(PhaseError::Unknown { scope_id: scope_id() }),
        }
    }

    fn is_open(&self, token: &PhaseToken) -> bool {
        let same = |key: &Key| key.0 == token.session_id && key.1 == token.rank;
        let mut stacks = self.stacks.iter().filter(|(key, _)| same(key));
        stacks.any(|(_, stack)| stack.iter().any(|active| active.scope_id == token.scope_id))
    }
}

fn boundary(active: &Active, event_type: &'static str, thread_id: u64, sequence: u64) -> PhaseBoundary {
    let (action, verb) = if event_type == PHASE_ENTER { ("enter", "entered") } else { ("exit", "exited") };
    let path: Vec<Value> = active.path.iter().map(|part| Value::from(&**part)).collect();
    let mut scope = Record::new();
    let mut put = |key: &str, value: Value| scope.insert(key.to_owned(), value);
    put("action", action.into());
    put("name", active.path.last().map_or(Value::Null, |name| Value::from(&**name)));
    put("path", Value::Array(path));
    put("depth", active.path.len().into());
    put("scope_id", active.scope_id.as_str().into());
    put("parent_scope_id", active.parent_scope_id.as_deref().into());
    put("thread_id", thread_id.into());
    put("thread_name", active.thread_name.as_str().into());
    put("sequence", sequence.into());
    if !active.attributes.is_empty() {
        scope.insert("attributes".to_owned(), Value::Object(active.attributes.clone()));
    }
    PhaseBoundary {
        event_type,
        context: format!("Phase {verb}: {}", path_text(&active.path)),
        metadata: Record::from_iter([(PHASE_SCOPE.to_owned(), Value::Object(scope))]),
        scope_id: active.scope_id.clone(),
        path: active.path.clone(),
    }
}

/// `train / forward`.
pub fn path_text(path: &[impl AsRef<str>]) -> String {
    let parts: Vec<&str> = path.iter().map(AsRef::as_ref).filter(|part| !part.is_empty()).collect();
    parts.join(" / ")
}
