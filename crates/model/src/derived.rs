//! Formulas over one event or a session, in one place: gap, utilisation, fragmentation, cache share.

/// What the formulas need, with capabilities already applied by the caller: `None` is unknown.
#[derive(Debug, Clone, Copy, Default)]
pub struct DerivedInputs {
    /// Allocator bytes handed out.
    pub allocated: Option<i128>,
    /// Allocator bytes held.
    pub reserved: Option<i128>,
    /// Inactive split bytes; `None` as well where the collector cannot know them.
    pub inactive: Option<i128>,
    /// What utilisation is measured by: allocated, or device use where there is no allocator.
    pub in_use: Option<i128>,
    /// Size of the device.
    pub total: Option<i128>,
    /// Whether fragmentation may be judged at all.
    pub fragmentation_enabled: bool,
}

/// The derived fields of one event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DerivedFields {
    /// Held but not handed out, never negative.
    pub allocator_gap_bytes: Option<i128>,
    /// Share of the device in use.
    pub utilization_ratio: Option<f64>,
    /// Share of reserved bytes in inactive splits.
    pub fragmentation_ratio: Option<f64>,
    /// Share of reserved bytes that is cached.
    pub allocator_cache_ratio: Option<f64>,
}

impl DerivedFields {
    /// Applies the formulas.
    pub fn of(inputs: &DerivedInputs) -> Self {
        let gap =
            inputs.reserved.zip(inputs.allocated).map(|(reserved, allocated)| (reserved - allocated).max(0));
        let of_reserved = |part: Option<i128>| {
            let (part, reserved) = part.zip(inputs.reserved)?;
            (reserved != 0).then(|| part as f64 / reserved as f64)
        };
        let utilization = inputs.in_use.zip(inputs.total).filter(|(_, total)| *total > 0);
        DerivedFields {
            allocator_gap_bytes: gap,
            utilization_ratio: utilization.map(|(used, total)| used as f64 / total as f64),
            fragmentation_ratio: if inputs.fragmentation_enabled {
                of_reserved(inputs.inactive)
            } else {
                None
            },
            allocator_cache_ratio: of_reserved(gap),
        }
    }
}

/// The derived fields of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SessionDerived {
    peak_utilization: Option<f64>,
    fragmentation_sum: f64,
    fragmentation_count: usize,
}

impl SessionDerived {
    /// Takes one event into account.
    pub fn observe(&mut self, fields: &DerivedFields) {
        if let Some(ratio) = fields.utilization_ratio {
            self.peak_utilization = Some(self.peak_utilization.map_or(ratio, |peak| peak.max(ratio)));
        }
        if let Some(ratio) = fields.fragmentation_ratio {
            self.fragmentation_sum += ratio;
            self.fragmentation_count += 1;
        }
    }

    /// The highest utilisation seen.
    pub fn peak_utilization_ratio(&self) -> Option<f64> {
        self.peak_utilization
    }

    /// The mean fragmentation over the events that have one.
    pub fn avg_fragmentation_ratio(&self) -> Option<f64> {
        (self.fragmentation_count > 0).then(|| self.fragmentation_sum / self.fragmentation_count as f64)
    }
}

/// Whether a collector's name says that it runs on a fallback.
pub fn is_degraded_collector(collector: &str) -> bool {
    let lower = collector.to_lowercase();
    ["fallback", "degraded", "unavailable", "partial", "legacy.unknown"]
        .iter()
        .any(|part| lower.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_in_is_unknown_out() {
        let none = DerivedFields::of(&DerivedInputs { fragmentation_enabled: true, ..Default::default() });
        assert_eq!(none.allocator_gap_bytes, None);
        assert_eq!(none.utilization_ratio, None);
        assert_eq!(none.fragmentation_ratio, None);
        assert_eq!(none.allocator_cache_ratio, None);
    }

    #[test]
    fn nothing_reserved_has_no_ratio() {
        let inputs = DerivedInputs {
            allocated: Some(0),
            reserved: Some(0),
            inactive: Some(0),
            fragmentation_enabled: true,
            ..Default::default()
        };
        let fields = DerivedFields::of(&inputs);
        assert_eq!(fields.allocator_gap_bytes, Some(0));
        assert_eq!((fields.fragmentation_ratio, fields.allocator_cache_ratio), (None, None));
    }

    #[test]
    fn a_full_example() {
        let inputs = DerivedInputs {
            allocated: Some(60),
            reserved: Some(80),
            inactive: Some(8),
            in_use: Some(60),
            total: Some(100),
            fragmentation_enabled: true,
        };
        let fields = DerivedFields::of(&inputs);
        assert_eq!(fields.allocator_gap_bytes, Some(20));
        assert_eq!(fields.utilization_ratio, Some(0.6));
        assert_eq!(fields.fragmentation_ratio, Some(0.1));
        assert_eq!(fields.allocator_cache_ratio, Some(0.25));
    }
}
