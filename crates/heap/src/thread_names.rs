//! What a thread is called. CPython names its threads for the kernel only from 3.14 on: one that has the name of the process is called after the
//! function it runs. Must never take a name from a thread that has one of its own.

use crate::frames::python_frame;
use crate::heap::Heap;
use crate::tree::{ROOT, Step};

/// Stacks of a thread that are looked at.
const LOOKED_AT: usize = 16;

impl Heap {
    /// The name of the thread at `index` of the state's list, whose kernel id is `thread`.
    pub(crate) fn thread_name(&self, index: u32, thread: u64) -> Option<String> {
        let names = &self.state.thread_names;
        let own = names.get(&thread);
        let main = names.get(&u64::from(self.header.pid));
        let is_main = thread == u64::from(self.header.pid);
        if is_main || (own.is_some() && own != main) {
            return own.cloned();
        }
        self.thread_function(index).or_else(|| own.cloned())
    }

    /// The function that `threading` was asked to run in a thread.
    fn thread_function(&self, index: u32) -> Option<String> {
        let tree = &self.state.tree;
        let is_of_threading = |step: &Step| python_frame(tree, *step).file.ends_with("/threading.py");
        let all = self.state.ledgers().flat_map(|ledger| &ledger.sites);
        let mut sites = all.filter(|site| site.key.thread == index && site.key.python != ROOT);
        sites.by_ref().take(LOOKED_AT).find_map(|site| {
            let mut stack: Vec<Step> = tree.frames(site.key.python).collect();
            stack.reverse();
            let began =
                stack.first().filter(|step| is_of_threading(step)).map(|step| python_frame(tree, *step));
            began.filter(|frame| frame.function.ends_with("_bootstrap"))?;
            let target = stack.iter().find(|step| !is_of_threading(step))?;
            Some(python_frame(tree, *target).function)
        })
    }
}
