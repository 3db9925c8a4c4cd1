//! One pass over a run: what changed since the manifest was written goes to the target.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use stormlog_model::layout::RUN_FILE;

use crate::block;
use crate::error::ShipError;
use crate::manifest::{FileEntry, Manifest};
use crate::order::{Form, Turn, form, turn};
use crate::source::{Source, SourceFile};
use crate::target::{How, Target};
use crate::throttle::Throttle;

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    /// Bytes of captures that wait for the next pass.
    pub(crate) left: u64,
    /// Something at the target is not as before.
    pub(crate) has_changed: bool,
}

/// A pass with its means.
pub(crate) struct Pass<'a> {
    pub(crate) source: &'a Source,
    pub(crate) target: &'a mut dyn Target,
    pub(crate) throttle: &'a mut Throttle,
    /// Bytes of captures after which the rest waits, so that telemetry is never behind them for long.
    pub(crate) budget: u64,
    /// Every file is read, also one whose times did not change.
    pub(crate) is_thorough: bool,
    /// Called with the bytes of each block that was sent.
    pub(crate) sent: &'a mut dyn FnMut(u64),
}

impl Pass<'_> {
    /// Sends what changed. The manifest is kept at the target where something did.
    pub(crate) fn run(&mut self, manifest: &mut Manifest) -> Result<Passed, ShipError> {
        let mut passed = Passed::default();
        let paths = self.source.list()?;
        if !manifest.files.contains_key(RUN_FILE) {
            self.file(RUN_FILE, manifest, &mut passed)?;
            self.target.save(manifest)?;
        }
        self.follow_renames(&paths, manifest, &mut passed)?;
        for path in &paths {
            self.file(path, manifest, &mut passed)?;
        }
        // What moved may not be at its new place yet.
        if passed.left == 0 {
            let there: BTreeSet<&String> = paths.iter().collect();
            let gone: Vec<String> =
                manifest.files.keys().filter(|path| !there.contains(path)).cloned().collect();
            for path in gone {
                if let Some(file) = manifest.files.remove(&path) {
                    self.target.remove(&path, &file, manifest.block_bytes)?;
                    passed.has_changed = true;
                }
            }
        }
        if passed.has_changed {
            self.target.save(manifest)?;
        }
        Ok(passed)
    }

    /// A capture that moved to its process's directory is not sent again.
    fn follow_renames(
        &mut self,
        paths: &[String],
        manifest: &mut Manifest,
        passed: &mut Passed,
    ) -> Result<(), ShipError> {
        let there: BTreeSet<&String> = paths.iter().collect();
        let gone: BTreeMap<u64, String> = manifest
            .files
            .iter()
            .filter(|(path, _)| !there.contains(path) && turn(path) == Turn::Capture)
            .map(|(path, file)| (file.inode, path.clone()))
            .collect();
        for path in paths.iter().filter(|path| turn(path) == Turn::Capture) {
            if gone.is_empty() || manifest.files.contains_key(path) {
                continue;
            }
            let inode = self.source.file(path)?.map(|file| file.inode);
            let Some(from) = inode.and_then(|inode| gone.get(&inode)) else { continue };
            if let Some(file) = manifest.files.remove(from) {
                self.target.rename(from, path)?;
                manifest.files.insert(path.clone(), file);
                passed.has_changed = true;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &str, manifest: &mut Manifest, passed: &mut Passed) -> Result<(), ShipError> {
        let Some(file) = self.source.file(path)? else { return Ok(()) };
        let form = form(path);
        let is_mapped = form == Form::Growing { is_mapped: true };
        if self.is_thorough
            && manifest.files.get(path).is_some_and(|old| !self.target.is_there(path, old.length))
        {
            manifest.files.remove(path);
        }
        let old = manifest.files.get(path);
        let is_known = old.is_some_and(|old| {
            (old.inode, old.length, old.modified_ns) == (file.inode, file.length, file.modified_ns)
                && old.unsent(manifest.block_bytes) == 0
        });
        if is_known && !is_mapped && !self.is_thorough {
            return Ok(());
        }
        let how = match (form, old) {
            (Form::Growing { .. }, Some(old)) if old.inode == file.inode => How::Patch,
            (Form::Growing { .. }, None) => How::Fresh,
            _ => How::Replace,
        };
        // Only its times may be new, or every file is read.
        if how == How::Replace
            && let Some(old) = old.filter(|old| old.length == file.length)
            && self.has_blocks(path, &file, &old.blocks, manifest.block_bytes)?
        {
            let known = FileEntry { inode: file.inode, modified_ns: file.modified_ns, ..old.clone() };
            if known != *old {
                manifest.files.insert(path.to_owned(), known);
            }
            return Ok(());
        }
        let stored = old.map_or_else(|| free_name(path, manifest), |old| old.stored.clone());
        let old = old.cloned().unwrap_or_default();
        let SourceFile { inode, length, modified_ns, .. } = file;
        let mut new = FileEntry { stored, inode, length, modified_ns, blocks: Vec::new() };
        let result = self.blocks(path, &file, (&old, &mut new, how), manifest.block_bytes, passed);
        // What was written in place is known also where a later block failed.
        let is_usable = result.is_ok() || how == How::Patch;
        let missing = block::count(new.length, manifest.block_bytes) as usize;
        let from = new.blocks.len();
        for index in from..missing {
            let mark = old.blocks.get(index).filter(|_| how == How::Patch);
            new.blocks.push(mark.map_or(block::UNSENT, |mark| mark).to_owned());
        }
        new.blocks.truncate(missing);
        match result {
            // Taken away at the target.
            Err(ShipError::File { source, .. })
                if how == How::Patch && source.kind() == io::ErrorKind::NotFound =>
            {
                manifest.files.remove(path);
                return self.file(path, manifest, passed);
            }
            _ if is_usable && new != old => {
                manifest.files.insert(path.to_owned(), new);
                passed.has_changed = true;
            }
            _ => {}
        }
        result
    }

    /// Whether the file has these blocks.
    fn has_blocks(
        &self,
        path: &str,
        file: &SourceFile,
        marks: &[String],
        block_bytes: u64,
    ) -> Result<bool, ShipError> {
        let mut buffer = vec![0; usize::try_from(block_bytes.min(file.length.max(1))).unwrap_or(1)];
        for (index, mark) in marks.iter().enumerate() {
            let read = file
                .read(index as u64 * block_bytes, &mut buffer)
                .map_err(|error| ShipError::file(&self.source.path().join(path), error))?;
            if block::mark(&buffer[..read]) != *mark {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn blocks(
        &mut self,
        path: &str,
        file: &SourceFile,
        (old, new, how): (&FileEntry, &mut FileEntry, How),
        block_bytes: u64,
        passed: &mut Passed,
    ) -> Result<(), ShipError> {
        let is_large = matches!(turn(path), Turn::Capture | Turn::LiveCapture);
        let needs_all = self.target.needs_all(how);
        let mut is_begun = false;
        let mut buffer = vec![0; usize::try_from(block_bytes.min(file.length.max(1))).unwrap_or(1)];
        for index in 0..block::count(file.length, block_bytes) {
            let offset = index * block_bytes;
            let wanted = buffer.len().min(usize::try_from(file.length - offset).unwrap_or(usize::MAX));
            let read = file
                .read(offset, &mut buffer[..wanted])
                .map_err(|error| ShipError::file(&self.source.path().join(path), error))?;
            let bytes = &buffer[..read];
            let mark = block::mark(bytes);
            let known = old.blocks.get(index as usize);
            // The last block of a file may be longer now, and still the same zeros.
            if known != Some(&mark) || needs_all {
                // One that replaces another cannot stop half.
                let can_stop = is_large && how != How::Replace && (how == How::Patch || index > 0);
                if can_stop && mark != block::ZERO && passed.bytes >= self.budget {
                    passed.left += file.length - offset;
                    return self.finish(is_begun, new.length);
                }
                if !is_begun {
                    self.target.begin(path, new, how)?;
                    is_begun = true;
                }
                if mark != block::ZERO {
                    self.throttle.wait(read as u64);
                    self.target.write(offset, bytes)?;
                    passed.bytes += read as u64;
                    passed.blocks += 1;
                    (self.sent)(read as u64);
                } else if how == How::Patch {
                    self.target.zero(offset, read as u64)?;
                }
            }
            new.blocks.push(mark);
            if read < wanted {
                // It was cut meanwhile.
                new.length = offset + read as u64;
                break;
            }
        }
        // An empty file, or one of which only the length is new.
        if !is_begun && (how != How::Patch || new.length != old.length) {
            self.target.begin(path, new, how)?;
            is_begun = true;
        }
        self.finish(is_begun, new.length)
    }

    fn finish(&mut self, is_begun: bool, length: u64) -> Result<(), ShipError> {
        if is_begun { self.target.end(length) } else { Ok(()) }
    }
}

/// A path for the blocks that no other file of the run has.
fn free_name(path: &str, manifest: &Manifest) -> String {
    let is_taken = |name: &str| manifest.files.values().any(|file| file.stored == name);
    if !is_taken(path) {
        return path.to_owned();
    }
    (2_u32..).map(|number| format!("{path}~{number}")).find(|name| !is_taken(name)).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Instant;

    use super::*;
    use crate::directory::{BLOCK_BYTES, DirectoryTarget};

    const BLOCK: usize = BLOCK_BYTES as usize;

    struct ShipFixture {
        directory: tempfile::TempDir,
        target: DirectoryTarget,
        manifest: Manifest,
    }

    impl ShipFixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            fs::create_dir_all(directory.path().join("run/heap")).unwrap();
            fs::write(directory.path().join("run/run.json"), "{}").unwrap();
            let mut target = DirectoryTarget::open(&directory.path().join("target"), false).unwrap();
            let manifest = Manifest::new("origin".to_owned(), target.block_bytes());
            target.claim("run", &manifest).unwrap();
            ShipFixture { directory, target, manifest }
        }

        fn pass(&mut self, budget: u64, is_thorough: bool) -> Result<Passed, ShipError> {
            let source = Source::open(&self.directory.path().join("run")).unwrap();
            let mut throttle = Throttle::new(0, Instant::now());
            let (target, sent) = (&mut self.target, &mut |_| {});
            Pass { source: &source, target, throttle: &mut throttle, budget, is_thorough, sent }
                .run(&mut self.manifest)
        }

        fn source(&self, path: &str) -> std::path::PathBuf {
            self.directory.path().join("run").join(path)
        }

        fn copy(&self, path: &str) -> Vec<u8> {
            fs::read(self.directory.path().join("target/run").join(path)).unwrap_or_default()
        }
    }

    fn noise(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 31 % 251 + 1) as u8).collect()
    }

    #[test]
    fn only_changed_blocks_of_a_file_are_sent() {
        let mut fixture = ShipFixture::new();
        let ring = fixture.source("events.ring");
        let mut content = noise(10 * BLOCK + 5);
        fs::write(&ring, &content).unwrap();
        fixture.pass(u64::MAX, false).unwrap();
        assert_eq!(fixture.copy("events.ring"), content);
        assert_eq!(fixture.pass(u64::MAX, false).unwrap(), Passed::default());
        content[3 * BLOCK] = 0;
        fs::write(&ring, &content).unwrap();
        let passed = fixture.pass(u64::MAX, false).unwrap();
        assert_eq!((passed.blocks, passed.bytes), (1, BLOCK as u64));
        assert_eq!(fixture.copy("events.ring"), content);
        content.truncate(BLOCK + 1000);
        content[..BLOCK].fill(0);
        fs::write(&ring, &content).unwrap();
        assert_eq!(fixture.pass(u64::MAX, false).unwrap().bytes, 1000, "zeros are not sent");
        assert_eq!(fixture.copy("events.ring"), content);
    }

    #[test]
    fn capture_that_moves_is_not_sent_again_and_one_that_is_replaced_is() {
        let mut fixture = ShipFixture::new();
        fs::write(fixture.source("heap/7.bin"), noise(300_000)).unwrap();
        fixture.pass(u64::MAX, false).unwrap();
        fs::create_dir(fixture.source("rank0-pid7")).unwrap();
        fs::rename(fixture.source("heap/7.bin"), fixture.source("rank0-pid7/heap.bin")).unwrap();
        let passed = fixture.pass(u64::MAX, false).unwrap();
        assert_eq!((passed.bytes, passed.has_changed), (0, true));
        assert_eq!(fixture.copy("rank0-pid7/heap.bin"), noise(300_000));
        assert!(!Path::new(&fixture.directory.path().join("target/run/heap")).exists());
        fs::write(fixture.source("sealed"), b"sealed").unwrap();
        fs::rename(fixture.source("sealed"), fixture.source("rank0-pid7/heap.bin")).unwrap();
        fixture.pass(u64::MAX, false).unwrap();
        assert_eq!(fixture.copy("rank0-pid7/heap.bin"), b"sealed");
    }

    #[test]
    fn budget_keeps_captures_from_holding_up_telemetry_and_the_rest_follows() {
        let mut fixture = ShipFixture::new();
        fs::write(fixture.source("heap/7.bin"), noise(1 << 20)).unwrap();
        fs::write(fixture.source("ends.log"), "telemetry").unwrap();
        let mut sent = 0;
        for round in 0..20 {
            let passed = fixture.pass(200_000, false).unwrap();
            // One block more than the budget at most.
            assert!(passed.bytes <= 200_000 + BLOCK as u64, "{passed:?}");
            assert_eq!(fixture.copy("ends.log"), b"telemetry");
            sent += passed.bytes;
            if passed.left == 0 {
                assert!(round > 2);
                break;
            }
        }
        assert_eq!(fixture.copy("heap/7.bin"), noise(1 << 20));
        assert_eq!(sent, (1 << 20) + 9 + 2, "nothing was sent twice");
    }

    #[test]
    fn file_that_is_missing_at_the_target_is_sent_again_by_a_thorough_pass() {
        let mut fixture = ShipFixture::new();
        fs::write(fixture.source("ends.log"), "telemetry").unwrap();
        fixture.pass(u64::MAX, false).unwrap();
        for name in ["run.json", "ends.log"] {
            fs::remove_file(fixture.directory.path().join("target/run").join(name)).unwrap();
        }
        fixture.pass(u64::MAX, true).unwrap();
        assert_eq!(
            (fixture.copy("run.json"), fixture.copy("ends.log")),
            (b"{}".to_vec(), b"telemetry".to_vec())
        );
        assert_eq!(fixture.pass(u64::MAX, true).unwrap(), Passed::default());
    }
}
