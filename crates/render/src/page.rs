//! Puts a page together: template, style, script and packed data. Must never put data in unpacked or unescaped.

use std::io::BufWriter;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use stormlog_model::text::escape_markup;

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
            ("{{title}}", escape_markup(title).into_owned()),
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

/// JSON, compressed, as text that any HTML can contain.
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

/// The data of a page, as its script reads it.
#[cfg(test)]
pub(crate) fn unpacked(page: &str) -> serde_json::Value {
    use std::io::Read;
    let body = page.split_once("<script id=\"data\"").and_then(|(_, rest)| rest.split_once('>'));
    let body = body.and_then(|(_, rest)| rest.split_once("</script>")).map_or("", |(body, _)| body);
    let bytes = STANDARD.decode(body.trim()).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
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
    fn the_script_hides_the_same_characters_as_the_commands() {
        let one = |letter: char| format!("\\u{:04x}", u32::from(letter));
        let range = |range: &std::ops::RangeInclusive<char>| match range.start() == range.end() {
            true => one(*range.start()),
            false => format!("{}-{}", one(*range.start()), one(*range.end())),
        };
        let class: String = stormlog_model::text::STEERING.iter().map(range).collect();
        let script = include_str!("../assets/page.js");
        assert!(
            script.contains(&format!("const STEERING = /[{class}]/g;")),
            "expected /[{class}]/g in page.js"
        );
    }

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
