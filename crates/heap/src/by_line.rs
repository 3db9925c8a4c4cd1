//! The heap by line of Python, of all threads or one: what a live view asks for once a second. No tree is built for it.

use rustc_hash::FxHashMap;
use stormlog_model::own_code::OwnCode;
use stormlog_model::stacks::{Entry, Frame, Weight};

use crate::frames::{Namer, Symbolizer};
use crate::heap::Heap;
use crate::ledger::SiteKey;
use crate::profile::{Mode, ThreadShare};
use crate::tree::ROOT;

impl Heap {
    /// By line, largest total first; of one thread (kernel id) or of all. Native frames count only where a stack has no other.
    #[must_use]
    pub fn lines(&self, mode: Mode, thread: Option<u64>) -> Vec<Entry> {
        self.named_lines(mode, thread, None)
    }

    /// As [`lines`](Heap::lines), with the names of native functions.
    #[must_use]
    pub fn named_lines(
        &self,
        mode: Mode,
        thread: Option<u64>,
        symbolizer: Option<&mut dyn Symbolizer>,
    ) -> Vec<Entry> {
        // Whose code it is does not matter here.
        let own_code = OwnCode::default();
        let mut namer = Namer::new(&self.state.tree, symbolizer, &own_code);
        let mut held: Vec<(Weight, Weight)> = Vec::new();
        // The stack that last counted towards a frame's total: a recursive function counts once a stack.
        let mut counted: Vec<u32> = Vec::new();
        let mut by_stack: FxHashMap<(u32, u32), Weight> = FxHashMap::default();
        let ledger = self.ledger();
        for (index, site) in ledger.sites.iter().enumerate() {
            let id = self.state.threads.get(site.key.thread as usize);
            if thread.is_none_or(|thread| id == Some(&thread)) {
                let native = if site.key.python == ROOT { site.key.native } else { ROOT };
                *by_stack.entry((site.key.python, native)).or_default() +=
                    ledger.weight(ledger.amount_at(mode, index));
            }
        }
        by_stack.retain(|_, weight| *weight != Weight::default());
        for (stack, ((python, native), weight)) in (1..).zip(by_stack) {
            let frames = namer.stack(SiteKey { python, native, thread: 0, kind: 0 });
            held.resize(namer.frames.len(), Default::default());
            counted.resize(namer.frames.len(), 0);
            for (depth, frame) in frames.into_iter().enumerate() {
                let (own, total) = &mut held[frame as usize];
                if depth == 0 {
                    *own += weight;
                }
                if std::mem::replace(&mut counted[frame as usize], stack) != stack {
                    *total += weight;
                }
            }
        }
        let entry = |(frame, (own, total)): (Frame, (Weight, Weight))| Entry { frame, own, total };
        let mut entries: Vec<Entry> = namer.frames.into_iter().zip(held).map(entry).collect();
        entries.sort_by(|one, other| {
            let key = |entry: &Entry| (entry.total.bytes, entry.own.bytes);
            key(other).cmp(&key(one)).then_with(|| one.frame.function.cmp(&other.frame.function))
        });
        entries
    }

    /// What each thread holds, largest first.
    #[must_use]
    pub fn by_thread(&self, mode: Mode) -> Vec<ThreadShare> {
        let mut held = vec![Weight::default(); self.state.threads.len()];
        let ledger = self.ledger();
        for (index, site) in ledger.sites.iter().enumerate() {
            if let Some(held) = held.get_mut(site.key.thread as usize) {
                *held += ledger.weight(ledger.amount_at(mode, index));
            }
        }
        let shares =
            held.into_iter().enumerate().map(|(index, weight)| self.thread_share(index as u32, weight));
        let mut shares: Vec<ThreadShare> = shares.collect();
        shares.sort_by_key(|share| (std::cmp::Reverse(share.weight.bytes), share.thread));
        shares
    }

    /// Bytes and blocks that live at the last processed record.
    #[must_use]
    pub fn live(&self) -> Weight {
        self.ledger().weight(self.ledger().level.now())
    }

    /// Most bytes so far.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.ledger().peak.bytes
    }
}
