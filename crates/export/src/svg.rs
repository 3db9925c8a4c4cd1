//! A still flame graph: plain SVG without a script, for documents and chats. Must escape every text.

use std::fmt::Write;

use stormlog_model::format_bytes;
use stormlog_model::stacks::{FrameKind, Origin, StackProfile, Weight};
use stormlog_model::text::{escape_markup, inert_text};

use crate::{About, label};

const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
const HEAD: f64 = 34.0;
/// Narrower boxes are left out; they could not be seen.
const LEAST: f64 = 0.3;

struct Picture<'a> {
    held: &'a StackProfile,
    total: Vec<Weight>,
    children: Vec<Vec<u32>>,
    text: String,
    lowest: f64,
}

/// The picture.
#[must_use]
pub fn svg(held: &StackProfile, about: &About<'_>) -> String {
    let (_, total) = held.own_and_total();
    let mut children = vec![Vec::new(); held.tree.len()];
    for node in 1..held.tree.len() {
        children[held.tree.parent[node] as usize].push(node as u32);
    }
    let whole = total.first().map_or(0, |weight| weight.bytes);
    let mut picture = Picture { held, total, children, text: String::new(), lowest: HEAD };
    let scale = if whole == 0 { 0.0 } else { WIDTH / whole as f64 };
    picture.draw(scale);
    let height = picture.lowest + ROW + 4.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\" role=\"img\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fbfaf7\"/>\n\
         <text x=\"4\" y=\"20\" font-size=\"15\">{title} · {size}</text>\n{body}</svg>\n",
        title = on_one_line(about.title),
        size = format_bytes(whole),
        body = picture.text,
    )
}

impl Picture<'_> {
    fn draw(&mut self, scale: f64) {
        let mut waiting = vec![(0u32, 0.0f64, 0usize)];
        while let Some((node, left, depth)) = waiting.pop() {
            let wide = self.total[node as usize].bytes as f64 * scale;
            if wide < LEAST {
                continue;
            }
            self.frame(node, left, wide, depth);
            let mut list = std::mem::take(&mut self.children[node as usize]);
            list.sort_by_key(|&child| std::cmp::Reverse(self.total[child as usize].bytes));
            let mut at = left;
            for child in list {
                waiting.push((child, at, depth + 1));
                at += self.total[child as usize].bytes as f64 * scale;
            }
        }
    }

    fn frame(&mut self, node: u32, left: f64, wide: f64, depth: usize) {
        let top = HEAD + depth as f64 * ROW;
        self.lowest = self.lowest.max(top);
        let frame =
            self.held.tree.frames.get(self.held.tree.frame[node as usize] as usize).filter(|_| node != 0);
        let name = frame.map_or_else(|| "all".to_owned(), label);
        let fill = match frame.map(|frame| (frame.kind, self.held.tree.origin(frame))) {
            None => "#dcd8ce",
            Some((FrameKind::Native, _)) => "#b3c3d6",
            Some((_, Origin::User)) => "#f0b48a",
            Some(_) => "#dccdb8",
        };
        let weight = self.total[node as usize];
        // Writing into a string cannot fail.
        let _ = write!(
            self.text,
            "<g><title>{name}\n{bytes} in {count} allocations</title><rect x=\"{left:.2}\" y=\"{top}\" width=\"{w:.2}\" height=\"{h}\" fill=\"{fill}\"/>",
            name = on_one_line(&name),
            bytes = format_bytes(weight.bytes),
            count = weight.count,
            w = (wide - 0.4).max(0.1),
            h = ROW - 1.0,
        );
        let room = (wide / 6.2) as usize;
        if room > 4 {
            let short: String = if name.chars().count() > room {
                name.chars().take(room - 1).chain(['…']).collect()
            } else {
                name
            };
            let _ = write!(
                self.text,
                "<text x=\"{:.2}\" y=\"{}\">{}</text>",
                left + 3.0,
                top + 12.5,
                on_one_line(&short)
            );
        }
        self.text.push_str("</g>\n");
    }
}

/// A label without line ends: the picture gives it one line.
fn on_one_line(text: &str) -> String {
    escape_markup(&inert_text(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_text() {
        let text = svg(&crate::testing::held(), &About { title: "<t>\u{1}", start_ms: 0, pid: 1 });
        assert!(text.contains("&lt;t&gt;␁"));
        assert!(text.contains("par␊se&lt;\u{fffd} (train.py:21)"), "{text}");
        assert!(!text.contains('\u{202e}'));
        assert!(!text.contains("se<"));
        assert_eq!(text.matches("<rect").count(), 5, "paper, all and three frames");
    }

    #[test]
    fn nothing_held_is_an_empty_picture() {
        let text = svg(&StackProfile::default(), &About { title: "t", start_ms: 0, pid: 1 });
        assert!(text.ends_with("</svg>\n"));
    }
}
