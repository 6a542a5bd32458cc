//! Ranges of token positions, possibly without an end.

use crate::base::values::serde_as_str;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A range of token positions: `4000..4096` without its end, or `4000..` up to the end of the text. The default is all
/// positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenSpan {
    /// First position.
    pub start: usize,
    /// One past the last position; `None` for the end of the text.
    pub end: Option<usize>,
}

impl TokenSpan {
    /// Returns the positions of this range in a prompt of `n_tok` tokens.
    pub fn within(self, n_tok: usize) -> Range<usize> {
        let end = self.end.unwrap_or(n_tok).min(n_tok);
        self.start.min(end)..end
    }
}

impl FromStr for TokenSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a range of token positions such as 0..80 or 4000..");
        let (start, end) = text.split_once("..").ok_or_else(bad)?;
        let number = |text: &str| text.trim().parse::<usize>().map_err(|_| bad());
        let start = if start.is_empty() { 0 } else { number(start)? };
        let end = if end.is_empty() { None } else { Some(number(end)?) };
        if end.is_some_and(|end| end <= start) {
            return Err(format!("`{text}` holds no token"));
        }
        Ok(Self { start, end })
    }
}

impl fmt::Display for TokenSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.start)?;
        self.end.map_or(Ok(()), |end| write!(f, "{end}"))
    }
}

serde_as_str!(TokenSpan);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_positions_may_be_open_but_not_empty() {
        let parse = |text: &str| text.parse::<TokenSpan>().map(|span| (span.start, span.end));
        assert_eq!(parse("10..20"), Ok((10, Some(20))));
        assert_eq!(parse("10.."), Ok((10, None)));
        assert_eq!(parse("..20"), Ok((0, Some(20))));
        for bad in ["", "10", "20..10", "5..5", "a..b"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let span: TokenSpan = "10..20".parse().unwrap();
        assert_eq!(span.to_string().parse(), Ok(span));
    }
}
