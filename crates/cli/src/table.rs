//! Tables and moments as the commands print them.

pub(crate) use stormlog_model::text::Table;

/// A moment as people read it, with its zone.
pub(crate) fn moment(ns: i64) -> String {
    match jiff::Timestamp::from_nanosecond(ns.into()) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_utc() {
        assert_eq!(moment(1_700_000_000_000_000_000), "2023-11-14 22:13:20Z");
    }
}
