//! The allocator's settings: what a snapshot says was in effect, what a user asks about, and the text to paste.

use std::fmt;

use serde_json::{Map, Value};

const MIB: u64 = 1 << 20;

/// Why a settings text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Not `key:value`.
    #[error("{0:?} is not a setting; write key:value, such as max_split_size_mb:128")]
    Form(String),
    /// A key that changes nothing the model knows.
    #[error("{0:?} is not a setting that changes where memory comes from; known: {KNOWN}")]
    Key(String),
    /// A value the key does not take.
    #[error("{key}:{value}: expected {expected}")]
    Value {
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
}

const KNOWN: &str = "expandable_segments, max_split_size_mb, max_non_split_rounding_mb, roundup_power2_divisions, \
                     garbage_collection_threshold, large_segment_size_mb";

/// Settings that change where memory comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct AllocatorSettings {
    /// Grow one reservation instead of taking segment after segment.
    pub expandable_segments: bool,
    /// Larger blocks are never split.
    pub max_split_size: Option<u64>,
    /// How much larger than the request an unsplit large block may be.
    pub max_non_split_rounding: u64,
    /// Steps between powers of two that requests are rounded to, for requests from 1 MiB, 2 MiB, … 32 GiB on; 0 or 1 for none.
    pub roundup_power2_divisions: [u32; 16],
    /// Fraction of the limit from which on idle segments are given back; 0 for never.
    pub garbage_collection_threshold: f64,
    /// What a request too large for the small pool but below 10 MiB takes.
    pub large_segment_size: u64,
}

impl Default for AllocatorSettings {
    fn default() -> Self {
        AllocatorSettings {
            expandable_segments: false,
            max_split_size: None,
            max_non_split_rounding: 20 * MIB,
            roundup_power2_divisions: [0; 16],
            garbage_collection_threshold: 0.0,
            large_segment_size: 20 * MIB,
        }
    }
}

impl AllocatorSettings {
    /// What a snapshot's `allocator_settings` say was in effect.
    pub fn recorded(map: &Map<String, Value>) -> Self {
        let mut settings = AllocatorSettings::default();
        // The text carries keys that have no field of their own; unknown ones do not concern the model.
        if let Some(text) = map
            .get("PYTORCH_CUDA_ALLOC_CONF")
            .or_else(|| map.get("PYTORCH_ALLOC_CONF"))
            .and_then(Value::as_str)
        {
            for part in split_parts(text) {
                let _ = settings.set(part);
            }
        }
        if let Some(on) = map.get("expandable_segments").and_then(Value::as_bool) {
            settings.expandable_segments = on;
        }
        if let Some(size) = map.get("max_split_size").and_then(Value::as_i64) {
            settings.max_split_size = u64::try_from(size).ok();
        }
        if let Some(threshold) = map.get("garbage_collection_threshold").and_then(Value::as_f64) {
            settings.garbage_collection_threshold = threshold;
        }
        if let Some(divisions) = map.get("roundup_power2_divisions").and_then(Value::as_object) {
            for (index, slot) in settings.roundup_power2_divisions.iter_mut().enumerate() {
                let value = divisions.get(&(1u64 << index).to_string()).and_then(Value::as_u64);
                *slot = value.and_then(|value| u32::try_from(value).ok()).unwrap_or(*slot);
            }
        }
        settings
    }

    /// These settings with `key:value[,key:value…]` changed.
    pub fn with(&self, text: &str) -> Result<Self, SettingsError> {
        let mut changed = self.clone();
        for part in split_parts(text) {
            changed.set(part)?;
        }
        Ok(changed)
    }

    fn set(&mut self, part: &str) -> Result<(), SettingsError> {
        let Some((key, value)) = part.split_once(':') else {
            return Err(SettingsError::Form(part.to_owned()));
        };
        let (key, value) = (key.trim(), value.trim());
        let wrong =
            |expected| SettingsError::Value { key: key.to_owned(), value: value.to_owned(), expected };
        let megabytes = |least: u64| match value.parse::<u64>() {
            Ok(number) if number >= least && number < 1 << 24 => Ok(number * MIB),
            _ => Err(wrong("a number of MiB of at least 20")),
        };
        match key {
            "expandable_segments" => {
                self.expandable_segments = match value {
                    "True" | "true" => true,
                    "False" | "false" => false,
                    _ => return Err(wrong("True or False")),
                }
            }
            "max_split_size_mb" => self.max_split_size = Some(megabytes(20)?),
            "max_non_split_rounding_mb" => self.max_non_split_rounding = megabytes(20)?,
            "large_segment_size_mb" => self.large_segment_size = megabytes(20)?,
            "garbage_collection_threshold" => {
                self.garbage_collection_threshold = match value.parse::<f64>() {
                    Ok(number) if number > 0.0 && number < 1.0 => number,
                    _ => return Err(wrong("a number between 0 and 1")),
                }
            }
            "roundup_power2_divisions" => {
                self.set_divisions(value).ok_or_else(|| wrong("a power of two, or [256:1,512:2,>:4]"))?
            }
            _ => return Err(SettingsError::Key(key.to_owned())),
        }
        Ok(())
    }

    fn set_divisions(&mut self, value: &str) -> Option<()> {
        let power = |text: &str| text.trim().parse::<u32>().ok().filter(|number| number.is_power_of_two());
        let Some(list) = value.strip_prefix('[').and_then(|list| list.strip_suffix(']')) else {
            self.roundup_power2_divisions = [power(value)?; 16];
            return Some(());
        };
        let mut from = 0;
        for pair in list.split(',') {
            let (size, divisions) = pair.split_once(':')?;
            let to = if size.trim() == ">" { 16 } else { power(size)?.trailing_zeros() as usize + 1 };
            let value = power(divisions)?;
            self.roundup_power2_divisions.get_mut(from..to.min(16))?.fill(value);
            from = to.min(16);
        }
        Some(())
    }

    /// What a request becomes.
    pub fn round(&self, size: u64) -> u64 {
        const BLOCK: u64 = 512;
        if size < BLOCK {
            return BLOCK;
        }
        let octave = (size.ilog2() as usize).saturating_sub(20).min(15);
        let divisions = u64::from(self.roundup_power2_divisions.get(octave).copied().unwrap_or(0));
        if divisions > 1 && size > BLOCK * divisions {
            if size.is_power_of_two() {
                return size;
            }
            let floor = 1u64 << size.ilog2();
            let step = floor >> divisions.ilog2();
            return if step == 0 { floor << 1 } else { size.div_ceil(step).saturating_mul(step) };
        }
        size.div_ceil(BLOCK).saturating_mul(BLOCK)
    }

    /// What a rounded request takes from the driver.
    pub fn segment_size(&self, rounded: u64) -> u64 {
        match rounded {
            size if size <= MIB => 2 * MIB,
            size if size < 10 * MIB => self.large_segment_size,
            size => size.div_ceil(2 * MIB).saturating_mul(2 * MIB),
        }
    }
}

/// The text to put into `PYTORCH_CUDA_ALLOC_CONF`; empty for the defaults.
impl fmt::Display for AllocatorSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let defaults = AllocatorSettings::default();
        let mut parts = Vec::new();
        if self.expandable_segments {
            parts.push("expandable_segments:True".to_owned());
        }
        if let Some(size) = self.max_split_size {
            parts.push(format!("max_split_size_mb:{}", size / MIB));
        }
        if self.max_non_split_rounding != defaults.max_non_split_rounding {
            parts.push(format!("max_non_split_rounding_mb:{}", self.max_non_split_rounding / MIB));
        }
        let divisions = &self.roundup_power2_divisions;
        if divisions.iter().any(|&value| value > 1) {
            if divisions.iter().all(|value| value == &divisions[0]) {
                parts.push(format!("roundup_power2_divisions:{}", divisions[0]));
            } else {
                let list: Vec<String> = divisions
                    .iter()
                    .enumerate()
                    .map(|(index, value)| format!("{}:{}", 1u64 << index, (*value).max(1)))
                    .collect();
                parts.push(format!("roundup_power2_divisions:[{}]", list.join(",")));
            }
        }
        if self.garbage_collection_threshold > 0.0 {
            parts.push(format!("garbage_collection_threshold:{}", self.garbage_collection_threshold));
        }
        if self.large_segment_size != defaults.large_segment_size {
            parts.push(format!("large_segment_size_mb:{}", self.large_segment_size / MIB));
        }
        f.write_str(&parts.join(","))
    }
}

/// The parts of a settings text; commas inside brackets do not separate.
fn split_parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_in_and_comes_out() {
        let defaults = AllocatorSettings::default();
        for text in [
            "expandable_segments:True",
            "max_split_size_mb:64",
            "roundup_power2_divisions:8",
            "expandable_segments:True,roundup_power2_divisions:4,garbage_collection_threshold:0.6",
        ] {
            assert_eq!(defaults.with(text).unwrap().to_string(), text);
        }
        let listed = defaults.with("roundup_power2_divisions:[4:1,256:2,>:8],max_split_size_mb:128").unwrap();
        assert_eq!(listed.roundup_power2_divisions[..4], [1, 1, 1, 2]);
        assert_eq!((listed.roundup_power2_divisions[8], listed.roundup_power2_divisions[9]), (2, 8));
        assert_eq!(defaults.with(&listed.to_string()).unwrap(), listed);
        assert_eq!(defaults.to_string(), "");
    }

    #[test]
    fn wrong_settings_report_the_expected_form() {
        let defaults = AllocatorSettings::default();
        assert!(matches!(defaults.with("expandable_segments"), Err(SettingsError::Form(_))));
        assert!(matches!(defaults.with("colour:red"), Err(SettingsError::Key(_))));
        for text in [
            "max_split_size_mb:3",
            "garbage_collection_threshold:7",
            "roundup_power2_divisions:3",
            "expandable_segments:maybe",
        ] {
            assert!(matches!(defaults.with(text), Err(SettingsError::Value { .. })), "{text}");
        }
    }

    #[test]
    fn rounding() {
        let plain = AllocatorSettings::default();
        assert_eq!([1, 511, 512, 513, 1 << 20].map(|n| plain.round(n)), [512, 512, 512, 1024, 1 << 20]);
        let eight = plain.with("roundup_power2_divisions:8").unwrap();
        assert_eq!(eight.round(1200), 1536);
        assert_eq!(eight.round(5000), 5120);
        assert_eq!(eight.round(9 << 20), 9 << 20);
        assert_eq!(eight.round((9 << 20) + 1), 10 << 20);
        assert_eq!(eight.round(16 << 20), 16 << 20);
    }
}
