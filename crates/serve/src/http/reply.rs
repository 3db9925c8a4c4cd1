//! What is sent back: always whole, never kept by a browser, never shown inside another page.

use std::io::{self, Write};
use std::sync::Arc;

use super::{Connection, Refusal};

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Arc<[u8]>,
    /// Lines of the head, each with its end.
    pub(crate) head: String,
}

impl Reply {
    /// The page, text or data that was requested.
    pub(crate) fn ok(content_type: &'static str, body: Arc<[u8]>) -> Self {
        Reply { status: "200 OK", content_type, body, head: String::new() }
    }

    /// A sentence.
    pub(crate) fn text(status: &'static str, sentence: &str) -> Self {
        Reply {
            status,
            content_type: "text/plain; charset=utf-8",
            body: sentence.as_bytes().into(),
            head: String::new(),
        }
    }

    pub(crate) fn refused(refusal: Refusal) -> Self {
        let (status, sentence) = refusal.words();
        Reply::text(status, sentence)
    }

    pub(crate) fn send(&self, connection: &mut Connection, is_head: bool) -> io::Result<()> {
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n{}\r\n",
            self.status,
            self.content_type,
            self.body.len(),
            self.head
        );
        connection.write_all(head.as_bytes())?;
        if !is_head {
            connection.write_all(&self.body)?;
        }
        connection.flush()
    }
}
