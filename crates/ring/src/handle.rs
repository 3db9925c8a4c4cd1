//! One thread's hold on a recording: the part of a writer that rings and logs have in common. It knows the file it writes,
//! looks after it now and then, continues to the next, and counts what is lost.
//!
//! Must never call an append done whose page the file no longer backs.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::sync::Arc;

use crate::file::StoreFile;
use crate::guard;
use crate::keeper::{Keeper, Maker};
use crate::process;
use crate::record::{DefId, Definition, Loss, LossReason};

/// How often a writer makes sure of its file and of the signal handler: two system calls each time.
const CHECK_MS: u64 = 50;

/// The file a writer writes to, and the process it does so in.
pub(crate) struct Handle<M: Maker> {
    keeper: Arc<Keeper<M>>,
    file: Arc<StoreFile>,
    known: HashSet<u64, BuildHasherDefault<AsIs>>,
    generation: u64,
    check_at: u64,
    in_file: Loss,
    stranded: bool,
    lost: Loss,
}

/// Definition ids are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = DefId::of(bytes).0;
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id;
    }
}

impl<M: Maker> Handle<M> {
    pub(crate) fn new(keeper: Arc<Keeper<M>>) -> Self {
        let file = keeper.current();
        Self::at(keeper, file)
    }

    /// Another hold on the same file. Asks the keeper nothing: in a forked child it may be the parent's.
    pub(crate) fn another(&self) -> Self {
        Self::at(self.keeper.clone(), self.file.clone())
    }

    fn at(keeper: Arc<Keeper<M>>, file: Arc<StoreFile>) -> Self {
        Handle {
            keeper,
            file,
            known: HashSet::default(),
            generation: 0,
            check_at: 0,
            in_file: Loss::default(),
            stranded: false,
            lost: Loss::default(),
        }
    }

    pub(crate) fn file(&self) -> &StoreFile {
        &self.file
    }

    pub(crate) fn maker(&self) -> &M {
        self.keeper.maker()
    }

    /// Changes when the file does.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn pid(&self) -> u32 {
        self.keeper.pid()
    }

    pub(crate) fn lost(&self) -> Loss {
        self.lost
    }

    pub(crate) fn knows(&self, definition: &Definition) -> bool {
        self.known.contains(&definition.id().0)
    }

    pub(crate) fn learn(&mut self, id: u64) {
        self.known.insert(id);
    }

    /// Makes sure that this process may append to this file, going on to another where it must.
    pub(crate) fn ready(&mut self) -> Result<(), LossReason> {
        if self.keeper.pid() != process::pid() {
            self.keeper = self.keeper.home(Some(&self.file)).map_err(|error| error.loss_reason())?;
            self.in_file = Loss::default();
            self.lost = Loss::default();
        }
        let now = process::coarse_ms();
        if now < self.check_at && !self.stranded && !self.file.is_lost() {
            return Ok(());
        }
        self.check_at = now + CHECK_MS;
        guard::keep_installed();
        if self.inspect() { Ok(()) } else { self.renew() }
    }

    /// Leaves a file that is full.
    pub(crate) fn leave(&mut self) -> Result<(), LossReason> {
        self.inspect();
        self.renew()
    }

    /// Sees what others did to the file. When it is not what it should be, what this writer appended to it counts as lost.
    fn inspect(&mut self) -> bool {
        let Some(reason) = self.file.trouble() else { return true };
        self.stranded = true;
        let retired =
            reason == LossReason::Removed && self.keeper.maker().retires() && self.file.frames().is_sealed();
        let held = mem::take(&mut self.in_file).newest(self.file.holds_at_most());
        if held.records > 0 && !retired {
            self.lose_all(Loss { reason: Some(reason), ..held });
        }
        false
    }

    fn renew(&mut self) -> Result<(), LossReason> {
        self.file = self.keeper.after(&self.file)?;
        self.keeper.settle(&self.file);
        self.generation += 1;
        self.known.clear();
        self.in_file = Loss::default();
        self.stranded = false;
        Ok(())
    }

    /// Counts an append. `Err` when the file lost the page it went to.
    pub(crate) fn appended(&mut self, bytes: usize) -> Result<(), LossReason> {
        if self.file.is_lost() {
            return Err(LossReason::Truncated);
        }
        self.in_file.records += 1;
        self.in_file.bytes += bytes as u64;
        Ok(())
    }

    /// Counts a record that was not appended.
    pub(crate) fn lose(&mut self, bytes: usize, reason: LossReason) {
        self.lose_all(Loss { records: 1, bytes: bytes as u64, reason: Some(reason) });
    }

    fn lose_all(&mut self, loss: Loss) {
        self.lost.add(loss);
        if self.stranded || self.file.is_lost() {
            self.keeper.owe(loss);
        } else {
            self.file.header().lose(loss);
        }
    }
}
