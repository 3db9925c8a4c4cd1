//! AWS Signature Version 4 of one request, as S3 wants it: path encoded once, the hash of the body among the signed headers. Pure: the time is handed in.

use sha2::{Digest, Sha256};

use crate::block::hex;
use crate::credentials::Credentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const BLOCK: usize = 64;

/// What is signed.
pub(crate) struct Signing<'a> {
    pub(crate) method: &'a str,
    /// As HTTP's `Host` has it.
    pub(crate) host: &'a str,
    /// Path and query as they are sent; names and values of the query are encoded and in order.
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
    /// `20130524T000000Z`.
    pub(crate) time: &'a str,
}

impl Signing<'_> {
    /// The headers to add to the request.
    pub(crate) fn headers(&self, credentials: &Credentials, more: &[(&str, &str)]) -> Vec<(String, String)> {
        let body = hex(&Sha256::digest(self.body));
        let mut headers: Vec<(String, String)> =
            more.iter().map(|(name, value)| (name.to_ascii_lowercase(), (*value).to_owned())).collect();
        headers.push(("x-amz-content-sha256".to_owned(), body.clone()));
        headers.push(("x-amz-date".to_owned(), self.time.to_owned()));
        headers.extend(credentials.session.iter().map(|it| ("x-amz-security-token".to_owned(), it.clone())));
        let mut signed = headers.clone();
        signed.push(("host".to_owned(), self.host.to_owned()));
        signed.sort();
        let names: Vec<&str> = signed.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let lines: String = signed.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let (path, query) = self.path.split_once('?').unwrap_or((self.path, ""));
        let request = format!("{}\n{path}\n{query}\n{lines}\n{names}\n{body}", self.method);
        let date = &self.time[..self.time.len().min(8)];
        let scope = format!("{date}/{}/s3/aws4_request", credentials.region);
        let text =
            format!("{ALGORITHM}\n{}\n{scope}\n{}", self.time, hex(&Sha256::digest(request.as_bytes())));
        let mut key = hmac(format!("AWS4{}", credentials.secret).as_bytes(), date.as_bytes());
        for part in [credentials.region.as_str(), "s3", "aws4_request", text.as_str()] {
            key = hmac(&key, part.as_bytes());
        }
        let authorization = format!(
            "{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={}",
            credentials.key,
            hex(&key)
        );
        headers.push(("authorization".to_owned(), authorization));
        headers
    }
}

/// HMAC with SHA-256 (RFC 2104).
fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut padded = [0_u8; BLOCK];
    if key.len() > BLOCK {
        padded[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        padded[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(padded.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded.map(|byte| byte ^ 0x5C)).chain_update(inner).finalize().into()
}

/// A text in a path or query: everything but letters, digits and `-._~` by its bytes; slashes stay where they separate.
pub(crate) fn encode(text: &str, keeps_slashes: bool) -> String {
    let one = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        b'/' if keeps_slashes => "/".to_owned(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(method: &str, path: &str, body: &[u8], more: &[(&str, &str)]) -> String {
        let credentials = Credentials {
            key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session: None,
            region: "us-east-1".to_owned(),
        };
        let host = "examplebucket.s3.amazonaws.com";
        let signing = Signing { method, host, path, body, time: "20130524T000000Z" };
        let headers = signing.headers(&credentials, more);
        headers.last().map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// The examples of "Signature Calculations for the Authorization Header" in Amazon's S3 API reference.
    #[test]
    fn published_examples_have_their_published_signatures() {
        for (found, published) in [
            (
                signature("GET", "/test.txt", b"", &[("Range", "bytes=0-9")]),
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                signature(
                    "PUT",
                    "/test%24file.text",
                    b"Welcome to Amazon S3.",
                    &[
                        ("Date", "Fri, 24 May 2013 00:00:00 GMT"),
                        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                    ],
                ),
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                signature("GET", "/?max-keys=2&prefix=J", b"", &[]),
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            assert!(found.ends_with(published), "{found}");
        }
    }

    #[test]
    fn names_are_encoded_by_their_bytes() {
        assert_eq!(encode("a b/c~d+é", true), "a%20b/c~d%2B%C3%A9");
        assert_eq!(encode("a/b", false), "a%2Fb");
    }
}
