//! A small chart in block characters: the last minutes of memory on one screen line by eight steps.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The values over time as at most `width` characters, each the highest value of its share of the time. `most` is the
/// value drawn as a full block; gaps are blank.
#[must_use]
pub fn sparkline(points: &[(u64, u64)], width: usize, most: u64) -> String {
    let (Some((first, _)), Some((last, _))) = (points.first(), points.last()) else { return String::new() };
    let span = last.saturating_sub(*first).max(1);
    let width = width.min(points.len()).max(1);
    let mut highest: Vec<Option<u64>> = vec![None; width];
    for (time, value) in points {
        let at = (time.saturating_sub(*first) as u128 * width as u128 / (u128::from(span) + 1)) as usize;
        let slot = &mut highest[at.min(width - 1)];
        *slot = (*slot).max(Some(*value));
    }
    let block = |value: Option<u64>| match value {
        None => ' ',
        Some(value) => {
            let step = (u128::from(value) * 8 / u128::from(most.max(1))).min(7) as usize;
            BLOCKS[step]
        }
    };
    highest.into_iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_growth_and_gaps() {
        let growing: Vec<(u64, u64)> = (0..8).map(|step| (step, step + 1)).collect();
        assert_eq!(sparkline(&growing, 8, 8), "▂▃▄▅▆▇██");
        assert_eq!(sparkline(&[(0, 8), (100, 8)], 2, 8), "██");
        assert_eq!(sparkline(&[], 10, 8), "");
        let many: Vec<(u64, u64)> = (0..1000).map(|step| (step, 5)).collect();
        assert_eq!(sparkline(&many, 20, 10).chars().count(), 20);
    }
}
