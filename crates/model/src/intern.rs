//! Sharing of what repeats between events, so that a long recording stays small in memory.
//!
//! Bounded: a table that grows past its limit is emptied, which costs sharing, never correctness.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::{Head, Metadata, Record};

/// Tables past this size hold values that do not repeat; keeping them would only double the memory.
const LIMIT: usize = 4096;

/// Gives the same `Arc` for equal values.
#[derive(Debug, Default)]
pub struct Interner {
    last_head: Option<Arc<Head>>,
    last_metadata: Option<Arc<Metadata>>,
    heads: FxHashMap<Head, Arc<Head>>,
    texts: FxHashMap<Arc<str>, ()>,
    metadata: FxHashMap<String, Arc<Metadata>>,
}

impl Interner {
    /// The shared form of a head.
    pub fn head(&mut self, head: Head) -> Arc<Head> {
        if let Some(last) = self.last_head.as_ref().filter(|last| ***last == head) {
            return Arc::clone(last);
        }
        let shared = match self.heads.get(&head) {
            Some(shared) => Arc::clone(shared),
            None => {
                bound(&mut self.heads);
                let shared = Arc::new(head.clone());
                self.heads.insert(head, Arc::clone(&shared));
                shared
            }
        };
        self.last_head = Some(Arc::clone(&shared));
        shared
    }

    /// The shared form of a text.
    pub fn text(&mut self, text: &str) -> Arc<str> {
        if let Some((shared, ())) = self.texts.get_key_value(text) {
            return Arc::clone(shared);
        }
        bound(&mut self.texts);
        let shared: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&shared), ());
        shared
    }

    /// The shared form of metadata.
    pub fn metadata(&mut self, metadata: Metadata) -> Arc<Metadata> {
        if let Some(last) = self.last_metadata.as_ref().filter(|last| ***last == metadata) {
            return Arc::clone(last);
        }
        // Two objects with the same text are the same object; `inferred` is not in the text.
        let key = format!("{}{}", u8::from(metadata.inferred), text_of(&metadata.map));
        let shared = match self.metadata.get(&key) {
            Some(shared) => Arc::clone(shared),
            None => {
                bound(&mut self.metadata);
                let shared = Arc::new(metadata);
                self.metadata.insert(key, Arc::clone(&shared));
                shared
            }
        };
        self.last_metadata = Some(Arc::clone(&shared));
        shared
    }
}

fn text_of(map: &Record) -> String {
    // An object of JSON values always serialises; the empty text would only lose sharing.
    serde_json::to_string(map).unwrap_or_default()
}

fn bound<K, V>(table: &mut FxHashMap<K, V>) {
    if table.len() >= LIMIT {
        table.clear();
    }
}
