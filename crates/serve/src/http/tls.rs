//! TLS, by `rustls`, for addresses that other machines can reach. Built with the feature `tls`; without it the files are refused in words.
//!
//! The key must be its owner's alone. A client has a fixed time for everything, the handshake included: a byte at a time does not hold a thread.

use std::path::PathBuf;

/// Certificate chain and key, as PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The chain, one's own certificate first.
    pub certificate: PathBuf,
    /// The key of one's own.
    pub key: PathBuf,
}

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
    /// Others can read the key.
    #[error("{}: must belong to you and be closed to others; run `chmod 600` on it", .0.display())]
    Open(PathBuf),
    /// The files do not belong together, or are of another kind.
    #[error("{}: {reason}; expected a PEM file with a certificate chain and one with its key", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// This build cannot.
    #[error(
        "this build has no TLS; build it with the feature `tls`, or put a proxy with TLS in front of 127.0.0.1"
    )]
    NotBuilt,
}

#[cfg(feature = "tls")]
pub use with_rustls::Tls;
#[cfg(feature = "tls")]
pub(crate) use with_rustls::TlsStream;

#[cfg(feature = "tls")]
mod with_rustls {
    use std::io::{self, Read, Write};
    use std::net::TcpStream;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::{TlsError, TlsFiles};

    /// A chain and a key are smaller.
    const MOST_BYTES: u64 = 1 << 20;

    /// What is needed to speak it.
    #[derive(Debug, Clone)]
    pub struct Tls(Arc<ServerConfig>);

    impl Tls {
        /// Reads the files.
        pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
            let wrong = |path: &Path, reason: String| TlsError::Unusable { path: path.to_owned(), reason };
            let chain = bytes(&files.certificate, false)?;
            let chain: Result<Vec<CertificateDer<'static>>, _> =
                CertificateDer::pem_slice_iter(&chain).collect();
            let chain = chain.map_err(|error| wrong(&files.certificate, error.to_string()))?;
            let key = bytes(&files.key, true)?;
            let key =
                PrivateKeyDer::from_pem_slice(&key).map_err(|error| wrong(&files.key, error.to_string()))?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|error| wrong(&files.certificate, error.to_string()))?
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .map_err(|error| wrong(&files.certificate, error.to_string()))?;
            Ok(Tls(Arc::new(config)))
        }

        /// A connection that must be done within `timeout`, the handshake included.
        pub(crate) fn accept(&self, stream: TcpStream, timeout: Duration) -> io::Result<TlsStream> {
            stream.set_nonblocking(false)?;
            let session = ServerConnection::new(Arc::clone(&self.0)).map_err(io::Error::other)?;
            let timed = Timed { stream, until: Instant::now() + timeout };
            Ok(TlsStream(Box::new(StreamOwned::new(session, timed))))
        }
    }

    fn bytes(path: &Path, is_secret: bool) -> Result<Vec<u8>, TlsError> {
        let io = |source| TlsError::Io { path: path.to_owned(), source };
        let file = stormlog_files::open_regular(path).map_err(io)?;
        let found = file.metadata().map_err(io)?;
        let is_closed = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
        if is_secret && !is_closed {
            return Err(TlsError::Open(path.to_owned()));
        }
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(io)?;
        Ok(bytes)
    }

    /// A stream that ends at a moment.
    #[derive(Debug)]
    struct Timed {
        stream: TcpStream,
        until: Instant,
    }

    impl Timed {
        fn left(&self) -> io::Result<Duration> {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
        }
    }

    impl Read for Timed {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.stream.set_read_timeout(Some(self.left()?))?;
            self.stream.read(bytes)
        }
    }

    impl Write for Timed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.stream.set_write_timeout(Some(self.left()?))?;
            self.stream.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.stream.flush()
        }
    }

    /// An encrypted connection.
    #[derive(Debug)]
    pub(crate) struct TlsStream(Box<StreamOwned<ServerConnection, Timed>>);

    impl Read for TlsStream {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.0.read(bytes)
        }
    }

    impl Write for TlsStream {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    impl Drop for TlsStream {
        fn drop(&mut self) {
            // So that the client knows that nothing was cut off. One that has gone does not ask.
            self.0.conn.send_close_notify();
            let _ = self.0.flush();
        }
    }
}

#[cfg(not(feature = "tls"))]
mod without {
    use super::{TlsError, TlsFiles};

    /// There is none.
    #[derive(Debug, Clone)]
    pub struct Tls(std::convert::Infallible);

    impl Tls {
        /// Always an error.
        pub fn read(_: &TlsFiles) -> Result<Self, TlsError> {
            Err(TlsError::NotBuilt)
        }
    }
}

#[cfg(not(feature = "tls"))]
pub use without::Tls;
