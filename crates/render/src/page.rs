//! Puts a page together: template, style, script and packed data. Must never put data in unpacked or unescaped.

use std::io::BufWriter;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

/// The parts of a page that do not change.
pub(crate) struct Template {
    pub(crate) html: &'static str,
    pub(crate) style: &'static str,
    pub(crate) scripts: &'static [&'static str],
}

impl Template {
    /// The page with `data` in it.
    pub(crate) fn fill(&self, title: &str, data: &impl Serialize) -> String {
        let script: String = self.scripts.concat();
        let parts = [
            ("{{title}}", escape(title)),
            ("{{style}}", self.style.to_owned()),
            ("{{script}}", script),
            ("{{data}}", pack(data)),
        ];
        let mut page =
            String::with_capacity(parts.iter().map(|(_, text)| text.len()).sum::<usize>() + self.html.len());
        // One pass over the template: what was put in is never searched for marks.
        let mut rest = self.html;
        while let Some(start) = rest.find("{{") {
            page.push_str(&rest[..start]);
            let mark = parts.iter().find(|(mark, _)| rest[start..].starts_with(mark));
            let (skip, text) = mark.map_or((2, "{{"), |(mark, text)| (mark.len(), text.as_str()));
            page.push_str(text);
            rest = &rest[start + skip..];
        }
        page.push_str(rest);
        page
    }
}

/// JSON, compressed, as text that can stand in any HTML.
fn pack(data: &impl Serialize) -> String {
    let packed = GzEncoder::new(Vec::new(), Compression::new(6));
    // JSON comes in pieces of a character, and each costs the packer as much as a thousand.
    let mut pieces = BufWriter::with_capacity(1 << 16, packed);
    // Neither writing into memory nor turning our own plain structs into JSON can fail; a page without data says so itself.
    let written = serde_json::to_writer(&mut pieces, data).is_ok();
    let packed = pieces.into_inner().ok().filter(|_| written);
    let bytes = packed.and_then(|packed| packed.finish().ok()).unwrap_or_default();
    STANDARD.encode(bytes)
}

/// Text that stays text in HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: Template = Template {
        html: "<title>{{title}}</title><script>{{data}}</script>{{other}}",
        style: "",
        scripts: &[],
    };

    #[test]
    fn nothing_in_the_data_can_leave_its_place() {
        let hostile = "</script><script>alert(1)</script>{{style}}";
        let page = TEMPLATE.fill(hostile, &hostile);
        assert!(page.starts_with("<title>&lt;/script&gt;"), "{page}");
        assert_eq!(page.matches("<script>").count(), 1, "{page}");
        assert!(page.contains("{{style}}"), "marks in data are text: {page}");
        assert!(page.ends_with("{{other}}"), "{page}");
    }
}
