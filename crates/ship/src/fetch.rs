//! The way back: run directories from objects. What a store holds is not trusted beyond its checksums.

use std::io;
use std::path::{Path, PathBuf};

use crate::block;
use crate::directory::DirectoryTarget;
use crate::error::ShipError;
use crate::manifest::{FileEntry, Manifest};
use crate::name::plain;
use crate::objects::ObjectTarget;
use crate::order::{self, Form, form};
use crate::settings::Settings;
use crate::target::{How, Target};

/// Looks at a manifest whose blocks changed meanwhile.
const TRIES: usize = 5;

/// A run that was fetched.
#[derive(Debug)]
pub struct FetchedRun {
    /// Its directory.
    pub run: PathBuf,
    /// Bytes that were fetched now.
    pub bytes: u64,
    /// Whether it has ended, and all of it was shipped.
    pub is_complete: bool,
}

/// Fetches the run at a URL, or all runs below it where they can be listed, into directories below `into`. What is there already is not fetched again.
pub fn fetch(
    settings: &Settings,
    into: &Path,
    is_shared: bool,
    report: &mut dyn FnMut(Result<FetchedRun, ShipError>) -> io::Result<()>,
) -> Result<(), ShipError> {
    let Some(mut objects) = settings.objects()? else {
        return Err(ShipError::LocalDirectory);
    };
    let mut target = DirectoryTarget::open(into, is_shared)?;
    let mut names = Vec::new();
    if let Some((mut above, name)) = objects.split_last()
        && above.load(&name)?.is_some()
    {
        objects = above;
        names.push(name);
    }
    if names.is_empty() {
        names = objects.list()?;
    }
    for name in names.iter().filter(|name| !name.is_empty() && plain(name) == **name) {
        let fetched = fetch_run(&mut objects, name, &mut target, into);
        report(fetched).map_err(|error| ShipError::file(into, error))?;
    }
    Ok(())
}

fn fetch_run(
    objects: &mut ObjectTarget,
    name: &str,
    target: &mut DirectoryTarget,
    into: &Path,
) -> Result<FetchedRun, ShipError> {
    let mut bytes = 0;
    let mut last = None;
    for _ in 0..TRIES {
        let missing = || ShipError::manifest(format!("{name} has no manifest"));
        let remote = objects.load(name)?.ok_or_else(missing)?;
        let mut local = match target.load(name)? {
            Some(local) if local.origin == remote.origin && local.block_bytes == remote.block_bytes => local,
            Some(_) => return Err(ShipError::NoName { name: name.to_owned() }),
            None => {
                let local = Manifest::new(remote.origin.clone(), remote.block_bytes);
                if !target.claim(name, &local)? {
                    return Err(ShipError::NoName { name: name.to_owned() });
                }
                local
            }
        };
        let done = Fetch { objects, target, bytes: &mut bytes }.run(&remote, &mut local);
        target.save(&local)?;
        match done {
            Ok(()) => {
                return Ok(FetchedRun { run: into.join(name), bytes, is_complete: remote.is_complete });
            }
            // The manifest may be a new one by now.
            Err(error @ (ShipError::Changing { .. } | ShipError::Damaged { .. })) => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or_else(|| {
        ShipError::manifest("it changed while it was read; fetch again when the run has ended".to_owned())
    }))
}

struct Fetch<'a> {
    objects: &'a ObjectTarget,
    target: &'a mut DirectoryTarget,
    bytes: &'a mut u64,
}

impl Fetch<'_> {
    fn run(&mut self, remote: &Manifest, local: &mut Manifest) -> Result<(), ShipError> {
        let mut paths: Vec<&String> = remote.files.keys().collect();
        paths.sort_by(|a, b| order::key(a).cmp(&order::key(b)));
        for path in paths {
            let (new, old) = (&remote.files[path], local.files.get(path));
            if old != Some(new) {
                self.file(path, new, old, remote)?;
                local.files.insert(path.clone(), new.clone());
            }
        }
        let gone: Vec<String> =
            local.files.keys().filter(|path| !remote.files.contains_key(*path)).cloned().collect();
        for path in gone {
            if let Some(file) = local.files.remove(&path) {
                self.target.remove(&path, &file, local.block_bytes)?;
            }
        }
        local.is_complete = remote.is_complete;
        local.updated_at_ns = remote.updated_at_ns;
        Ok(())
    }

    fn file(
        &mut self,
        path: &str,
        new: &FileEntry,
        old: Option<&FileEntry>,
        remote: &Manifest,
    ) -> Result<(), ShipError> {
        let is_patched =
            matches!(form(path), Form::Growing { .. }) && old.is_some_and(|old| old.inode == new.inode);
        let how = if is_patched { How::Patch } else { How::Replace };
        self.target.begin(path, new, how)?;
        for (index, mark) in new.blocks.iter().enumerate() {
            let offset = index as u64 * remote.block_bytes;
            let length = remote.block_bytes.min(new.length - offset);
            let is_there = is_patched && old.and_then(|old| old.blocks.get(index)) == Some(mark);
            if is_there || mark == block::UNSENT {
                continue;
            }
            if mark == block::ZERO {
                self.target.zero(offset, length)?;
                continue;
            }
            let bytes = self.objects.read(new, offset, length)?.unwrap_or_default();
            if bytes.len() as u64 != length || block::mark(&bytes) != *mark {
                let path = path.to_owned();
                return Err(match remote.is_complete {
                    true => ShipError::Damaged { path, offset },
                    false => ShipError::Changing { path },
                });
            }
            self.target.write(offset, &bytes)?;
            *self.bytes += length;
        }
        self.target.end(new.length)
    }
}
