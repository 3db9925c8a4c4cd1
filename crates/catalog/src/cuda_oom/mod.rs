//! The bundle of a CUDA out-of-memory error: its files, and what they show.
//!
//! A program writes it from inside when PyTorch's or JAX's allocator fails; the names of its files are here, and the Python package takes
//! them from here. The files come from the program that died: nothing in them is trusted beyond its shape, and what is missing or
//! damaged costs its line, not the page. Must never write.

mod find;

use std::path::{Path, PathBuf};

pub use find::{NoSnapshot, snapshot_at};
use serde_json::Value;
use stormlog_model::alloc_conf::setting;
use stormlog_model::memory::Memory;
use stormlog_model::stacks::is_library;
use stormlog_model::text::grouped;
use stormlog_model::{Record, format_bytes};
use stormlog_postmortem::bundle::{Bundle, list};
use stormlog_store::json::read_value;
use stormlog_torch::{Decomposition, ReportOptions, SnapshotReport};

use crate::run::layout::{SessionName, Viewpoint};

/// What failed, on which device, and why.
pub const FACTS: &str = "cuda_oom.json";
/// What the memory was for, by the program's live tensors.
pub const CATEGORIES: &str = "cuda_memory_categories.json";
/// The allocator's own state, as PyTorch dumps it.
pub use stormlog_model::layout::SNAPSHOT_FILE as SNAPSHOT;
/// Characters of the bar.
const BAR: usize = 40;
/// Rows of holders, and parts on a line.
const MOST: usize = 5;

/// What is known of a failed request on a GPU.
#[derive(Debug)]
pub struct CudaOom {
    /// The bundle that holds it; another one where the supervisor wrote its own.
    bundle: PathBuf,
    is_beside: bool,
    facts: Record,
    report: Option<SnapshotReport>,
    problem: Option<String>,
    torch_version: Option<String>,
}

/// The memory of a device by what holds it; `None` is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceLayers {
    /// All that is in use on the device.
    pub used_bytes: Option<u64>,
    /// What the allocator holds from the device.
    pub reserved_bytes: Option<u64>,
    /// What the process holds beside that.
    pub hidden_bytes: Option<u64>,
    /// The parts of it that have a name.
    pub parts: Vec<(String, u64)>,
    /// What other processes hold.
    pub other_processes_bytes: Option<u64>,
}

/// A line of a page about a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What it is about.
    pub label: &'static str,
    /// What is known of it.
    pub text: String,
}

impl CudaOom {
    /// Of this bundle, or of the last one that its process left in the run; `None` when there is none.
    pub fn of(bundle: &Bundle) -> Option<Self> {
        if has_facts(&bundle.path) {
            return Some(CudaOom::read(&bundle.path, false));
        }
        beside(bundle).map(|path| CudaOom::read(&path, true))
    }

    fn read(path: &Path, is_beside: bool) -> Self {
        let mut facts =
            object(&path.join(FACTS)).or_else(|| object(&path.join(CATEGORIES))).unwrap_or_default();
        let total = facts.get("device_total_bytes").and_then(Value::as_u64);
        let snapshot = path.join(SNAPSHOT);
        let (report, problem) = match snapshot.is_file().then(|| stormlog_torch::load(&snapshot)) {
            None => (None, None),
            Some(Ok(loaded)) => {
                let options = ReportOptions { device_total: total, ..ReportOptions::default() };
                (Some(stormlog_torch::report(&loaded, &options)), None)
            }
            Some(Err(error)) => (None, Some(format!("{SNAPSHOT}: {error}"))),
        };
        if let Some(Value::Array(problems)) = facts.get_mut("problems") {
            problems.truncate(MOST);
        }
        let torch_version = facts.get("torch_version").and_then(Value::as_str).map(str::to_owned);
        CudaOom { bundle: path.to_owned(), is_beside, facts, report, problem, torch_version }
    }

    /// As `oom show --json` has it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut record = self.facts.clone();
        record.insert("bundle".into(), self.bundle.display().to_string().into());
        let analysis = self.report.as_ref().and_then(|report| serde_json::to_value(report).ok());
        record.insert("analysis".into(), analysis.unwrap_or_default());
        Value::Object(record)
    }

    /// The first line: what ran out, at which step and in which phase. `None` for a bundle whose own verdict has it.
    #[must_use]
    pub fn headline(&self) -> Option<&str> {
        self.facts.get("verdict").and_then(Value::as_str).filter(|_| self.is_beside)
    }

    /// What ran out, at which step and in which phase, in one sentence.
    #[must_use]
    pub fn sentence(&self) -> Option<&str> {
        self.facts.get("verdict").and_then(Value::as_str)
    }

    /// The memory that ran out.
    #[must_use]
    pub fn memory(&self) -> Option<Memory> {
        format!("cuda:{}", self.number("device_index")?).parse().ok()
    }

    /// `2.00 GiB by attention.py:142 forward`.
    #[must_use]
    pub fn request(&self) -> Option<String> {
        self.asked()
    }

    /// Why it failed: a full device, fragmentation, memory of others.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.verdict()
    }

    /// What to change, with what it gains by a replay of the allocator's history.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        let advice = self.report.as_ref()?.advice.first()?;
        let setting = (!advice.settings.is_empty())
            .then(|| format!("export {}: ", setting(&advice.settings, self.torch_version.as_deref())));
        Some(format!("{}{}", setting.unwrap_or_default(), advice.sentence))
    }

    /// Lines that held the memory, by the allocator's own history: place and bytes.
    pub fn held(&self) -> impl Iterator<Item = (&str, u64)> {
        self.rows("held_by")
            .filter_map(|row| Some((row.get("place")?.as_str()?, row.get("bytes")?.as_u64()?)))
    }

    /// The memory of the device by what holds it, where the program could find that out: used, reserved, parts outside the allocator by name, and
    /// other processes.
    #[must_use]
    pub fn layers(&self) -> DeviceLayers {
        let parts = self.report.as_ref().and_then(|report| report.oom.as_ref()).map(|oom| oom.decomposition);
        let hidden = self.facts.get("hidden_memory");
        let named = hidden.and_then(|hidden| hidden.get("parts")).and_then(Value::as_object);
        let total = self.number("device_total_bytes");
        let free = parts.and_then(|parts| parts.device_free_bytes);
        DeviceLayers {
            // The driver's own figure: between it and the free memory is what the driver keeps for itself.
            used_bytes: hidden
                .and_then(|hidden| hidden.get("device_used_bytes"))
                .and_then(Value::as_u64)
                .or_else(|| total.zip(free).map(|(total, free)| total.saturating_sub(free))),
            reserved_bytes: parts.map(|parts| parts.reserved_bytes),
            hidden_bytes: hidden.and_then(|hidden| hidden.get("hidden_bytes")).and_then(Value::as_u64),
            parts: named
                .into_iter()
                .flatten()
                .filter_map(|(name, bytes)| Some((name.clone(), bytes.as_u64()?)))
                .collect(),
            other_processes_bytes: hidden
                .and_then(|hidden| hidden.get("other_processes_bytes"))
                .and_then(Value::as_u64),
        }
    }

    /// The lines between the cause and the last events.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let known = [
            ("gpu", self.device()),
            ("asked", self.asked()),
            ("verdict", self.verdict().map(str::to_owned)),
            ("memory", self.parts()),
            ("pool", self.pool()),
            ("is", self.categories()),
            ("hidden", self.hidden()),
            ("driver", self.driver()),
        ];
        let mut lines: Vec<Line> =
            known.into_iter().filter_map(|(label, text)| Some(Line { label, text: text? })).collect();
        let mut add = |label: &'static str, text: String| lines.push(Line { label, text });
        if self.is_beside {
            for row in self.rows("held_by").take(MOST) {
                let place = row.get("place").and_then(Value::as_str).unwrap_or("unknown");
                let bytes = row.get("bytes").and_then(Value::as_u64).map_or_else(String::new, format_bytes);
                let note = row.get("note").and_then(Value::as_str).unwrap_or_default();
                add("held by", format!("{bytes:>10}  {place}   {note}").trim_end().to_owned());
            }
        }
        if let Some(report) = &self.report {
            for grown in report.growth.iter().take(2) {
                let site = grown.site.as_deref().unwrap_or("unknown");
                let what = if grown.never_freed { ", none given back" } else { "" };
                add("grew", format!("{} in {} blocks{what}: {site}", format_bytes(grown.bytes), grown.count));
            }
            if let (Some(advice), Some(matched)) = (report.advice.first(), report.self_match) {
                let matched = format!("(model matched {} of {} placements)", matched.matched, matched.total);
                add("replay", format!("{}  {matched}", advice.sentence));
                if !advice.settings.is_empty() {
                    let setting = setting(&advice.settings, self.torch_version.as_deref());
                    add("try", format!("export {setting}"));
                }
            }
            let settings = if report.settings.is_empty() { "defaults" } else { &report.settings };
            add("settings", format!("{settings} (as the allocator has them)"));
        }
        for problem in self.rows("problems").filter_map(Value::as_str).chain(self.problem.as_deref()) {
            add("note", problem.to_owned());
        }
        if self.is_beside {
            add("see", self.bundle.display().to_string());
        }
        lines
    }

    fn device(&self) -> Option<String> {
        let index = self.number("device_index")?;
        let name = self.facts.get("device_name").and_then(Value::as_str);
        let total = self.number("device_total_bytes").map(format_bytes);
        let about: Vec<String> = name.map(str::to_owned).into_iter().chain(total).collect();
        let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
        let step = self.number("step").map(|step| format!(" · step {}", grouped(step)));
        let phase = self.facts.get("phase").and_then(Value::as_str).map(|phase| format!(" · {phase}"));
        Some(format!("GPU {index}{about}{}{}", step.unwrap_or_default(), phase.unwrap_or_default()))
    }

    fn asked(&self) -> Option<String> {
        let oom = self.report.as_ref().and_then(|report| report.oom.as_ref());
        let bytes = self.number("requested_bytes").or(oom.map(|oom| oom.request_bytes))?;
        let site = oom.and_then(|oom| oom.site.clone()).or_else(|| self.own_frame());
        Some(format!("{}{}", format_bytes(bytes), site.map(|site| format!(" by {site}")).unwrap_or_default()))
    }

    /// The innermost line that is the program's own.
    fn own_frame(&self) -> Option<String> {
        let is_own = |line: &&str| !is_library(line.split(':').next().unwrap_or_default());
        let mut stack = self.rows("stack").filter_map(Value::as_str);
        stack.find(is_own).map(str::to_owned)
    }

    /// By PyTorch's snapshot, or in the words of the program where its framework has no snapshot.
    fn verdict(&self) -> Option<&str> {
        let of_report = self.report.as_ref().and_then(|report| report.oom.as_ref());
        of_report
            .map(|oom| oom.sentence.as_str())
            .or_else(|| self.facts.get("reason").and_then(Value::as_str))
    }

    /// What of the device is JAX's pool, and what of the pool is in use.
    fn pool(&self) -> Option<String> {
        let sentence = self.facts.get("preallocation")?.get("sentence")?.as_str()?;
        Some(sentence.to_owned())
    }

    /// The bar and its parts, which sum to the device where all of them are known.
    fn parts(&self) -> Option<String> {
        let parts =
            self.report.as_ref().and_then(|report| report.oom.as_ref()).map(|oom| oom.decomposition)?;
        let Decomposition { rounding_bytes, split_slack_bytes, pending_free_bytes, .. } = parts;
        let cached =
            parts.stranded_bytes + parts.releasable_bytes + parts.walled_off_bytes + parts.other_stream_bytes;
        let allocated = parts.reserved_bytes.saturating_sub(cached);
        let outside = self.outside().or(parts.outside_bytes).unwrap_or(0);
        let free = parts.device_free_bytes.unwrap_or(0);
        let shares = [('█', allocated), ('▒', cached), ('▓', outside), ('░', free)];
        let named = [
            ("allocated", allocated),
            ("of it rounding", rounding_bytes + split_slack_bytes),
            ("pending", pending_free_bytes),
            ("stranded", parts.stranded_bytes),
            ("releasable", parts.releasable_bytes),
            ("private pools", parts.walled_off_bytes),
            ("other streams", parts.other_stream_bytes),
            ("outside torch", outside),
            ("free", free),
        ];
        let shown = named.into_iter().filter(|(_, bytes)| *bytes >= 1 << 20);
        let words: Vec<String> =
            shown.map(|(name, bytes)| format!("{name} {}", format_bytes(bytes))).collect();
        Some(format!("{}  {}", bar(&shares), words.join(" · ")))
    }

    /// Hidden memory of this process and all memory of the others.
    fn outside(&self) -> Option<u64> {
        let hidden = self.facts.get("hidden_memory")?;
        let own = hidden.get("hidden_bytes")?.as_u64()?;
        Some(own + hidden.get("other_processes_bytes").and_then(Value::as_u64).unwrap_or(0))
    }

    /// What the memory was for when the request failed, by the program's live tensors: category and bytes.
    #[must_use]
    pub fn purposes(&self) -> Vec<(String, u64)> {
        let found = self.facts.get("categories").and_then(Value::as_object).into_iter().flatten();
        let part = |(name, value): (&String, &Value)| Some((name.clone(), value.get("bytes")?.as_u64()?));
        found.filter_map(part).collect()
    }

    fn categories(&self) -> Option<String> {
        let named = self.purposes().into_iter().map(|(name, bytes)| (name.replace('_', " "), bytes));
        summed(named.collect())
    }

    fn hidden(&self) -> Option<String> {
        let hidden = self.facts.get("hidden_memory")?;
        let parts = hidden.get("parts")?.as_object()?;
        let part = |(name, value): (&String, &Value)| Some((name.replace('_', " "), value.as_u64()?));
        let mut found: Vec<(String, u64)> = parts.iter().filter_map(part).collect();
        found.extend(
            hidden
                .get("other_processes_bytes")
                .and_then(Value::as_u64)
                .map(|bytes| ("other processes".into(), bytes)),
        );
        summed(found)
    }

    /// What each library took from the driver, where that was followed.
    fn driver(&self) -> Option<String> {
        let held = self.facts.get("hidden_memory")?.get("driver_events")?.get("held")?.as_array()?;
        let row = |row: &Value| Some((row.get("owner")?.as_str()?.to_owned(), row.get("bytes")?.as_u64()?));
        summed(held.iter().filter_map(row).collect())
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.facts.get(key).and_then(Value::as_u64)
    }

    fn rows(&self, key: &str) -> impl Iterator<Item = &Value> {
        self.facts.get(key).and_then(Value::as_array).into_iter().flatten()
    }
}

/// The largest parts with their sizes.
fn summed(mut parts: Vec<(String, u64)>) -> Option<String> {
    parts.retain(|(_, bytes)| *bytes > 0);
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let words: Vec<String> =
        parts.iter().take(MOST + 2).map(|(name, bytes)| format!("{name} {}", format_bytes(*bytes))).collect();
    (!words.is_empty()).then(|| words.join(" · "))
}

/// Shares as characters; what is there has at least one.
fn bar(shares: &[(char, u64)]) -> String {
    let total: u64 = shares.iter().map(|(_, bytes)| *bytes).sum();
    let mut text = String::new();
    for (letter, bytes) in shares.iter().filter(|(_, bytes)| *bytes > 0) {
        let width = (*bytes as f64 / total.max(1) as f64 * BAR as f64).round() as usize;
        text.extend(std::iter::repeat_n(*letter, width.max(1)));
    }
    text
}

fn has_facts(path: &Path) -> bool {
    [FACTS, SNAPSHOT].iter().any(|file| path.join(file).is_file())
}

/// The last bundle that the same process wrote itself, where the supervisor's is looked at.
fn beside(bundle: &Bundle) -> Option<PathBuf> {
    let run = bundle.metadata.get("custom_metadata")?.get("run_directory")?.as_str()?;
    // The run may have been moved since; its bundles are in it all the same.
    let run = Some(PathBuf::from(run)).filter(|run| run.is_dir());
    let run = run.or_else(|| Some(bundle.path.parent()?.parent()?.to_owned()))?;
    let pid = bundle.environment.get("pid").and_then(Value::as_u64)?;
    let is_device_of_it = |name: &str| {
        let name = SessionName::parse(name).filter(|name| u64::from(name.pid) == pid);
        name.is_some_and(|name| matches!(name.viewpoint, Viewpoint::Cuda(_)))
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(run).ok()?.flatten() {
        if is_device_of_it(&entry.file_name().to_string_lossy())
            && let Ok(listing) = list(&entry.path())
        {
            found.extend(listing.bundles.into_iter().map(|row| (row.created_at_utc, row.path)));
        }
    }
    found.sort();
    found.pop().map(|(_, path)| path).filter(|path| has_facts(path))
}

fn object(path: &Path) -> Option<Record> {
    match read_value(path) {
        Ok(Value::Object(record)) => Some(record),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_every_share() {
        assert_eq!(bar(&[('█', 3 << 30), ('░', 1 << 30)]), format!("{}{}", "█".repeat(30), "░".repeat(10)));
        assert!(bar(&[('█', 1 << 40), ('▓', 1)]).ends_with('▓'));
        assert_eq!(bar(&[('█', 0)]), "");
    }
}
