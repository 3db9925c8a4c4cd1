//! Objects of an HTTP receiver or an S3-compatible store as a target: one object a block, `RUN/files/PATH/OFFSET`, and `RUN/manifest.json`.
//!
//! A block that changed is stored over the one before; the manifest is stored after its blocks, and holds a mark of each. A reader that meets a
//! block newer than its manifest reads the manifest again.

use std::ffi::OsString;
use std::time::Duration;

use stormlog_push::{Client, Method, Request};

use crate::destination::Destination;
use crate::error::ShipError;
use crate::listing::read_listing;
use crate::manifest::{FileEntry, MOST_BYTES, Manifest};
use crate::sign::{Signing, encode};
use crate::target::{How, Target};

/// Large, because each block is a request.
const BLOCK_BYTES: u64 = 1 << 20;
/// Time for one request.
const TIMEOUT: Duration = Duration::from_secs(60);
const MANIFEST: &str = "manifest.json";
/// Bytes of one page of a listing, and pages of it.
const MOST_LISTING: usize = 16 << 20;
const MOST_PAGES: usize = 1000;

/// Objects of runs.
pub(crate) struct ObjectTarget {
    destination: Destination,
    token: Option<String>,
    client: Client,
    run: String,
    stored: String,
}

impl ObjectTarget {
    pub(crate) fn new(
        destination: Destination,
        token: Option<String>,
        secure: Vec<OsString>,
    ) -> Result<Self, ShipError> {
        let client = Client { timeout: TIMEOUT, secure };
        client.check(&destination.url("")?)?;
        Ok(ObjectTarget { destination, token, client, run: String::new(), stored: String::new() })
    }

    fn send(
        &self,
        method: Method,
        object: &str,
        query: &str,
        body: &[u8],
        most: usize,
        more: &[(&str, &str)],
    ) -> Result<(u16, Vec<u8>), ShipError> {
        let url = match &self.destination {
            // A bucket is listed by itself, whatever the prefix.
            Destination::S3 { base, .. } if object.is_empty() => {
                stormlog_push::Url::parse(&format!("{base}/?{query}"))?
            }
            destination => destination.url(object)?,
        };
        let headers = match &self.destination {
            Destination::S3 { credentials, .. } => {
                let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
                let (host, path) = (url.authority(), url.path.as_str());
                let signing = Signing { method: method.as_str(), host: &host, path, body, time: &time };
                signing.headers(credentials, more)
            }
            _ => {
                let token = self.token.iter();
                let token = token.map(|token| ("Authorization".to_owned(), format!("Bearer {token}")));
                let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
                token.chain(more).collect()
            }
        };
        let content_type = if method == Method::Put { "application/octet-stream" } else { "" };
        let request = Request { url: &url, content_type, headers: &headers, body };
        Ok(self.client.send(method, &request, most)?)
    }

    fn put(&self, object: &str, body: &[u8]) -> Result<(), ShipError> {
        match self.send(Method::Put, object, "", body, 0, &[])? {
            (200..=299, _) => Ok(()),
            (status, _) => Err(self.refused(Method::Put, status)),
        }
    }

    /// What is stored; `None` where nothing is.
    fn get(&self, object: &str, most: usize) -> Result<Option<Vec<u8>>, ShipError> {
        match self.send(Method::Get, object, "", b"", most, &[])? {
            (200, body) => Ok(Some(body)),
            (404, _) => Ok(None),
            (status, _) => Err(self.refused(Method::Get, status)),
        }
    }

    fn refused(&self, method: Method, status: u16) -> ShipError {
        ShipError::Status { host: self.destination.shown(), method: method.as_str(), status }
    }

    fn block(&self, stored: &str, offset: u64) -> String {
        format!("{}/files/{stored}/{offset}", self.run)
    }

    /// A block of a file; `None` where it is missing.
    pub(crate) fn read(
        &self,
        file: &FileEntry,
        offset: u64,
        most: u64,
    ) -> Result<Option<Vec<u8>>, ShipError> {
        self.get(&self.block(&file.stored, offset), usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// The names of the runs there. An HTTP receiver has no listing.
    pub(crate) fn list(&self) -> Result<Vec<String>, ShipError> {
        let Destination::S3 { prefix, .. } = &self.destination else {
            return Err(ShipError::NotThere { host: self.destination.shown() });
        };
        let mut names = Vec::new();
        let mut token: Option<String> = None;
        for _ in 0..MOST_PAGES {
            // In the order of their names, as the signature wants them.
            let mut query = String::new();
            if let Some(token) = &token {
                query.push_str(&format!("continuation-token={}&", encode(token, false)));
            }
            query.push_str(&format!("delimiter=%2F&list-type=2&prefix={}", encode(prefix, false)));
            let page = match self.send(Method::Get, "", &query, b"", MOST_LISTING, &[])? {
                (200, page) => page,
                (status, _) => return Err(self.refused(Method::Get, status)),
            };
            let page = read_listing(&String::from_utf8_lossy(&page));
            names.extend(page.prefixes.iter().filter_map(|found| {
                found.strip_prefix(prefix.as_str()).map(|name| name.trim_end_matches('/').to_owned())
            }));
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        Ok(names)
    }

    /// The same receiver one level up, and the last part of its path: a run by its own URL.
    pub(crate) fn split_last(&self) -> Option<(Self, String)> {
        let parent =
            |text: &str| text.rsplit_once('/').map(|(above, name)| (above.to_owned(), name.to_owned()));
        let (destination, name) = match &self.destination {
            Destination::Directory(_) => return None,
            Destination::Http { base } => {
                let (above, name) = parent(base).filter(|(above, _)| !above.ends_with('/'))?;
                (Destination::Http { base: above }, name)
            }
            Destination::S3 { base, prefix, credentials } => {
                let whole = prefix.trim_end_matches('/');
                let (above, name) = parent(whole).unwrap_or_else(|| (String::new(), whole.to_owned()));
                let prefix = if above.is_empty() { above } else { format!("{above}/") };
                (Destination::S3 { base: base.clone(), prefix, credentials: credentials.clone() }, name)
            }
        };
        let (token, client) = (self.token.clone(), self.client.clone());
        let other = ObjectTarget { destination, token, client, run: String::new(), stored: String::new() };
        (!name.is_empty()).then_some((other, name))
    }
}

impl Target for ObjectTarget {
    fn block_bytes(&self) -> u64 {
        BLOCK_BYTES
    }

    fn load(&mut self, name: &str) -> Result<Option<Manifest>, ShipError> {
        self.run = name.to_owned();
        let text = self.get(&format!("{name}/{MANIFEST}"), MOST_BYTES)?;
        text.map(|text| Manifest::parse(&text)).transpose()
    }

    /// There is no such thing as an empty directory of objects: a name without a manifest is free. Of two processes that find it so, the one whose manifest is
    /// stored has it: a store that knows `If-None-Match` keeps the first, others keep the last.
    fn claim(&mut self, name: &str, manifest: &Manifest) -> Result<bool, ShipError> {
        self.run = name.to_owned();
        let (object, text) = (format!("{name}/{MANIFEST}"), manifest.to_text()?);
        let is_stored = match self.send(Method::Put, &object, "", &text, 0, &[("if-none-match", "*")])?.0 {
            200..=299 => true,
            // Another process was first, or is at it.
            409 | 412 => false,
            // The condition is not supported.
            400 | 501 => {
                self.put(&object, &text)?;
                true
            }
            status => return Err(self.refused(Method::Put, status)),
        };
        let there = self.load(name)?;
        // A receiver may show later what it has taken.
        Ok(there.map_or(is_stored, |there| there.origin == manifest.origin))
    }

    fn needs_all(&self, _: How) -> bool {
        false
    }

    fn is_there(&self, _: &str, _: u64) -> bool {
        true
    }

    fn begin(&mut self, _: &str, file: &FileEntry, _: How) -> Result<(), ShipError> {
        self.stored.clone_from(&file.stored);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ShipError> {
        self.put(&self.block(&self.stored, offset), bytes)
    }

    /// The manifest says so.
    fn zero(&mut self, _: u64, _: u64) -> Result<(), ShipError> {
        Ok(())
    }

    fn end(&mut self, _: u64) -> Result<(), ShipError> {
        Ok(())
    }

    /// Blocks stay where they were stored first.
    fn rename(&mut self, _: &str, _: &str) -> Result<(), ShipError> {
        Ok(())
    }

    fn remove(&mut self, _: &str, file: &FileEntry, block_bytes: u64) -> Result<(), ShipError> {
        for index in 0..file.blocks.len() as u64 {
            // A receiver may not know how to: what is left costs room, and no manifest names it.
            let _ =
                self.send(Method::Delete, &self.block(&file.stored, index * block_bytes), "", b"", 0, &[]);
        }
        Ok(())
    }

    fn save(&mut self, manifest: &Manifest) -> Result<(), ShipError> {
        self.put(&format!("{}/{MANIFEST}", self.run), &manifest.to_text()?)
    }
}
