//! The answer to S3's `ListObjectsV2`, of which two elements matter. Never more than a search in a text: a store may send anything.

/// One page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// What is before the next slash.
    pub(crate) prefixes: Vec<String>,
    /// Where the next page begins; `None` on the last.
    pub(crate) next: Option<String>,
}

pub(crate) fn read_listing(page: &str) -> Listing {
    let prefixes = elements(page, "CommonPrefixes").filter_map(|part| elements(part, "Prefix").next());
    let next = elements(page, "NextContinuationToken").next().map(unescape);
    Listing { prefixes: prefixes.map(unescape).collect(), next }
}

/// The contents of elements of that name.
fn elements<'a>(mut text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    std::iter::from_fn(move || {
        let start = text.find(&begin)? + begin.len();
        let length = text[start..].find(&end)?;
        let found = &text[start..start + length];
        text = &text[start + length + end.len()..];
        Some(found)
    })
}

fn unescape(text: &str) -> String {
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    entities.iter().fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_the_next_page_are_found() {
        let page = "<?xml version=\"1.0\"?><ListBucketResult><Prefix>team/</Prefix>\
            <NextContinuationToken>a&amp;b=</NextContinuationToken>\
            <CommonPrefixes><Prefix>team/run-1/</Prefix></CommonPrefixes>\
            <CommonPrefixes>\n<Prefix>team/&lt;2&gt;/</Prefix></CommonPrefixes></ListBucketResult>";
        let found = read_listing(page);
        assert_eq!(found.prefixes, ["team/run-1/", "team/<2>/"]);
        assert_eq!(found.next.as_deref(), Some("a&b="));
        for length in 0..page.len() {
            let _ = read_listing(&page[..length]);
        }
    }
}
