//! Which ranks an expression such as `0,2,4-7` selects. Must never walk a range: `0-18446744073709551615` is short to write.

use std::collections::BTreeSet;

use stormlog_model::value_repr;

/// Why an expression selects nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RankFilterError {
    /// A range without one of its ends.
    #[error("Invalid rank range: {0}")]
    Range(String),
    /// A range that ends before it starts.
    #[error("Invalid rank range (start>end): {0}")]
    Backwards(String),
    /// Not a number.
    #[error("invalid literal for int() with base 10: {0}")]
    Number(String),
}

/// The available ranks that an expression selects: all of them for an empty one, `all` or `*`.
pub fn select_ranks(expression: &str, available: &BTreeSet<u64>) -> Result<BTreeSet<u64>, RankFilterError> {
    let text = expression.trim().to_lowercase();
    if available.is_empty() || matches!(text.as_str(), "" | "all" | "*") {
        return Ok(available.clone());
    }
    let mut selected = BTreeSet::new();
    for token in text.split(',').map(str::trim).filter(|token| !token.is_empty()) {
        match token.split_once('-') {
            Some(("", _) | (_, "")) => return Err(RankFilterError::Range(value_repr(&token.into()))),
            Some((start, end)) => {
                let (from, to) = (number(start)?, number(end)?);
                if from > to {
                    return Err(RankFilterError::Backwards(value_repr(&token.into())));
                }
                selected.extend(available.range(from..=to));
            }
            None => selected.extend(available.get(&number(token)?)),
        }
    }
    Ok(selected)
}

/// A number as Python's `int` reads one. What is larger than any rank is the largest, which no input has.
fn number(text: &str) -> Result<u64, RankFilterError> {
    let error = || RankFilterError::Number(value_repr(&text.into()));
    let digits = text.trim().strip_prefix('+').unwrap_or(text.trim());
    let is_number = !digits.is_empty()
        && digits.split('_').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_number {
        return Err(error());
    }
    Ok(digits.replace('_', "").parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(expression: &str) -> Result<Vec<u64>, String> {
        let available = BTreeSet::from([0, 1, 2, 5, 9]);
        let found = select_ranks(expression, &available).map_err(|error| error.to_string())?;
        Ok(found.into_iter().collect())
    }

    #[test]
    fn an_expression_selects_numbers_and_ranges_of_what_is_there() {
        assert_eq!(selected(" ALL ").unwrap(), [0, 1, 2, 5, 9]);
        assert_eq!(selected("0, 2,,4-7, 77").unwrap(), [0, 2, 5]);
        assert_eq!(selected("1-99999999999999999999999").unwrap(), [1, 2, 5, 9]);
        assert_eq!(selected("+1, 1_0").unwrap(), [1]);
    }

    #[test]
    fn a_wrong_expression_is_explained_in_the_older_words() {
        assert_eq!(selected("3-").unwrap_err(), "Invalid rank range: '3-'");
        assert_eq!(selected("-3").unwrap_err(), "Invalid rank range: '-3'");
        assert_eq!(selected("7-4").unwrap_err(), "Invalid rank range (start>end): '7-4'");
        assert_eq!(selected("two").unwrap_err(), "invalid literal for int() with base 10: 'two'");
        assert_eq!(selected("1-2-3").unwrap_err(), "invalid literal for int() with base 10: '2-3'");
    }
}
