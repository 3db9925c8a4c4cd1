//! How long memory must be seen to grow, and by how much, before that is called a leak. Samples from outside need seconds: a program that builds what it works
//! on looks the same until it has finished. A capture knows which line holds what until the program's own code ends, and needs fewer. Must never look at a shape.

use crate::series::Growth;

const MIB: f64 = 1_048_576.0;
/// Growth of a counter over less time than this is undecided…
const LEAST_SECONDS: f64 = 8.0;
/// …and so is growth in fewer points of the floor than this. Valleys between releases are fewer, and each is made of many samples.
const LEAST_POINTS: usize = 8;
/// A line that grows for less than this does one piece of work.
const LEAST_SECONDS_OF_A_LINE: f64 = 2.0;
/// The part of the confidence that does not depend on the time.
const SURE_AT_ONCE: f64 = 0.6;

/// Whether a counter was watched for long enough to tell a leak from work that is not finished.
pub(super) fn is_watched_long_enough(growth: &Growth) -> bool {
    !is_short(growth.seconds) && (growth.by_cycle || growth.points >= LEAST_POINTS)
}

/// Whether growth was seen for so short a time that samples alone do not decide.
pub(super) fn is_short(seconds: f64) -> bool {
    seconds < LEAST_SECONDS
}

/// Whether the growth of a line in a capture is evidence of a leak. What was seen to grow only for seconds must be there when the program's own code ends, with
/// `at_end` bytes; a longer leak may be cleared by the last statement.
pub(super) fn is_line_evidence(growth: &Growth, at_end: f64) -> bool {
    growth.seconds >= LEAST_SECONDS_OF_A_LINE && (!is_short(growth.seconds) || growth.is_held(at_end))
}

/// Confidence in a line's growth, less for one that was seen for a short time.
pub(super) fn confidence(growth: &Growth) -> f64 {
    let share = (growth.seconds / LEAST_SECONDS).clamp(0.0, 1.0);
    growth.confidence * (SURE_AT_ONCE + (1.0 - SURE_AT_ONCE) * share)
}

/// Every program grows while it starts: what grew little in a short time has not leaked yet.
pub(super) fn is_long_enough(bytes: f64, seconds: f64) -> bool {
    let least_bytes = match seconds {
        minutes if minutes >= 60.0 => 4.0 * MIB,
        seconds if seconds >= 30.0 => 8.0 * MIB,
        _ => 16.0 * MIB,
    };
    bytes >= least_bytes
}

/// A device fills by gibibytes when a model is loaded: of its first seconds nothing can be said.
pub(super) fn is_long_enough_on_a_device(bytes: f64, seconds: f64) -> bool {
    match seconds {
        seconds if seconds >= 10.0 => is_long_enough(bytes, seconds),
        seconds => seconds >= 3.0 && bytes >= 256.0 * MIB,
    }
}
