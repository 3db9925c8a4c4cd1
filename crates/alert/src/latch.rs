//! Hysteresis: a condition that starts once, lasts, and ends once.
//!
//! Must never report two starts without an end between them, whatever it is fed.

/// What one observation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It begins with this observation.
    Started,
    /// It ends with this observation.
    Ended,
    /// Nothing changed.
    Same,
}

/// How an observation compares with the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// At or beyond the threshold.
    Breach,
    /// Between the threshold and the margin below it.
    Near,
    /// Below the margin.
    Calm,
}

impl Level {
    /// Where `value` is. What is not a number is neither a breach nor calm.
    pub(crate) fn of(value: f64, threshold: f64, margin: f64) -> Self {
        if value >= threshold {
            Level::Breach
        } else if value < threshold - margin {
            Level::Calm
        } else {
            Level::Near
        }
    }
}

/// A condition and whether it holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latch {
    started_at_ns: Option<u64>,
    calm: u32,
}

impl Latch {
    /// When it started, while it holds.
    pub(crate) fn started_at_ns(&self) -> Option<u64> {
        self.started_at_ns
    }

    /// One observation; it ends after `quiet` calm ones in a row.
    pub(crate) fn observe(&mut self, at_ns: u64, level: Level, quiet: u32) -> Step {
        if self.started_at_ns.is_none() {
            if level != Level::Breach {
                return Step::Same;
            }
            *self = Latch { started_at_ns: Some(at_ns), calm: 0 };
            return Step::Started;
        }
        self.calm = if level == Level::Calm { self.calm.saturating_add(1) } else { 0 };
        if self.calm < quiet.max(1) {
            return Step::Same;
        }
        self.reset();
        Step::Ended
    }

    /// Ends it; true when it held.
    pub(crate) fn reset(&mut self) -> bool {
        self.calm = 0;
        self.started_at_ns.take().is_some()
    }
}
