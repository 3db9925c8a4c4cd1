//! The sentences of 0.4.3's events: scripts match them, so they are spelt as it spells them.

use std::sync::Arc;

use stormlog_model::text::compat::{Formatter, format_bytes};

use crate::Wording;

fn size(bytes: u64, wording: Wording) -> String {
    let formatter = if wording == Wording::Cpu { Formatter::Host } else { Formatter::Device };
    format_bytes(bytes.into(), formatter)
}

pub(crate) fn peak(bytes: u64, wording: Wording) -> Arc<str> {
    let size = size(bytes, wording);
    match wording {
        Wording::Cpu => format!("New CPU peak RSS: {size}").into(),
        Wording::Device => format!("New peak memory: {size}").into(),
    }
}

pub(crate) fn change(change: i64, wording: Wording) -> Arc<str> {
    let size = size(change.unsigned_abs(), wording);
    match (wording, change > 0) {
        (Wording::Cpu, true) => format!("RSS increased by {size}").into(),
        (Wording::Cpu, false) => format!("RSS decreased by {size}").into(),
        (Wording::Device, true) => format!("Memory allocated: {size}").into(),
        (Wording::Device, false) => format!("Memory freed: {size}").into(),
    }
}

pub(crate) fn sample(wording: Wording, partial: &[String]) -> Arc<str> {
    match (wording, partial) {
        (Wording::Cpu, _) => "Collected CPU telemetry sample.".into(),
        (Wording::Device, []) => "Collected telemetry sample.".into(),
        (Wording::Device, partial) => {
            format!("Collected partial telemetry sample ({}).", partial.join(", ")).into()
        }
    }
}

pub(crate) fn started(wording: Wording) -> &'static str {
    if wording == Wording::Cpu { "CPU memory tracking started" } else { "Memory tracking started" }
}

pub(crate) fn stopped(wording: Wording) -> &'static str {
    if wording == Wording::Cpu { "CPU memory tracking stopped" } else { "Memory tracking stopped" }
}
