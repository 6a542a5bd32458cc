//! What is done to a model's attention while it is measured, by name.
//!
//! A [`Condition`] is a list of [`Treatment`]s, and its name says all of them: the same name is the same condition in any
//! run. Names are written like this, in experiment files, in the `condition` column and in tables:
//!
//! ```text
//! condition  none, or treatments with "; " between them
//! treatment  quantise(BITS, SCOPE)   quantise(BITS, SCOPE, exempt-sinks)
//! ```
//!
//! `none` is the untreated pass, the baseline of all others; in the column it is a missing value.

use crate::quant::{Quantiser, Scope, BITS};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The name of the untreated pass.
pub const UNTREATED: &str = "none";

/// One thing that is done to the attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The logits of every map are rounded before its softmax.
    Quantise {
        /// Bits and scope.
        quantiser: Quantiser,
        /// Whether sinks found in the baseline pass keep their logits.
        exempt_sinks: bool,
    },
}

/// A list of treatments, none of them for the baseline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Condition {
    treatments: Vec<Treatment>,
}

impl Condition {
    /// Quantised logits and nothing else.
    pub fn quantised(quantiser: Quantiser, exempt_sinks: bool) -> Self {
        Self { treatments: vec![Treatment::Quantise { quantiser, exempt_sinks }] }
    }

    /// What is done, in order.
    pub fn treatments(&self) -> &[Treatment] {
        &self.treatments
    }

    /// Whether nothing is done.
    pub fn is_untreated(&self) -> bool {
        self.treatments.is_empty()
    }

    /// The value of the `condition` column: its name; nothing for the untreated pass.
    pub fn column(&self) -> Option<String> {
        (!self.is_untreated()).then(|| self.to_string())
    }

    /// Its quantiser, and whether sinks are exempt from it.
    pub fn quantiser(&self) -> Option<(Quantiser, bool)> {
        self.treatments.iter().map(|Treatment::Quantise { quantiser, exempt_sinks }| (*quantiser, *exempt_sinks)).next()
    }

    /// The value of the `bits` column; nothing without quantisation.
    pub fn bits(&self) -> Option<u32> {
        self.quantiser().map(|(quantiser, _)| quantiser.bits)
    }

    /// The value of the `scope` column; nothing without quantisation.
    pub fn scope(&self) -> Option<String> {
        let (quantiser, exempt_sinks) = self.quantiser()?;
        let scope = quantiser.scope.name();
        Some(if exempt_sinks { format!("{scope}{EXEMPT}") } else { scope.to_owned() })
    }
}

/// What the `scope` column says besides where sinks are exempt.
const EXEMPT: &str = "-exempt-sinks";

/// The condition of records written before there was a column for it: all it could be was quantised.
pub fn of_columns(bits: Option<u32>, scope: Option<&str>) -> Option<String> {
    let (bits, scope) = (bits?, scope?);
    let (scope, exempt) = scope.strip_suffix(EXEMPT).map_or((scope, ""), |scope| (scope, ", exempt-sinks"));
    Some(format!("quantise({bits}, {scope}{exempt})"))
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Quantise { quantiser, exempt_sinks } = self;
        let exempt = if *exempt_sinks { ", exempt-sinks" } else { "" };
        write!(f, "quantise({}, {}{exempt})", quantiser.bits, quantiser.scope.name())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.treatments.iter().map(ToString::to_string).collect();
        f.write_str(if names.is_empty() { UNTREATED } else { "" })?;
        f.write_str(&names.join("; "))
    }
}

impl From<Condition> for String {
    fn from(condition: Condition) -> Self {
        condition.to_string()
    }
}

impl TryFrom<String> for Condition {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name.trim() == UNTREATED {
            return Ok(Self::default());
        }
        let treatments = name.split(';').map(|text| text.trim().parse()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { treatments })
    }
}

impl FromStr for Treatment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || format!("`{text}` is not a treatment; they are written like quantise(4, tensor)");
        let (kind, rest) = text.split_once('(').ok_or_else(shape)?;
        let arguments: Vec<&str> = rest.strip_suffix(')').ok_or_else(shape)?.split(',').map(str::trim).collect();
        match kind.trim() {
            "quantise" => quantise(&arguments),
            other => Err(format!("`{other}` is not a treatment; there is quantise")),
        }
    }
}

fn quantise(arguments: &[&str]) -> Result<Treatment, String> {
    let (bits, scope, exempt_sinks) = match arguments {
        [bits, scope] => (bits, scope, false),
        [bits, scope, "exempt-sinks"] => (bits, scope, true),
        _ => return Err("quantise takes bits and a scope, and exempt-sinks if they are: quantise(4, tensor)".into()),
    };
    let found = Scope::ALL.into_iter().find(|known| known.name() == *scope);
    let scope = found.ok_or_else(|| format!("quantise: `{scope}` is not a scope; there are tensor, head, row"))?;
    let bits = bits.parse().ok().filter(|bits| BITS.contains(bits));
    let bits = bits.ok_or_else(|| format!("quantise: a logit can have {} to {} bits", BITS.start(), BITS.end()))?;
    Ok(Treatment::Quantise { quantiser: Quantiser { bits, scope }, exempt_sinks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_the_condition_that_wrote_them() {
        for name in ["none", "quantise(4, tensor)", "quantise(16, row, exempt-sinks)"] {
            let condition: Condition = name.parse().unwrap();
            assert_eq!(condition.to_string(), name);
            assert_eq!(condition.column().as_deref(), (name != "none").then_some(name));
        }
        assert_eq!(" quantise( 4,head ) ".parse::<Condition>().unwrap().to_string(), "quantise(4, head)");
    }

    #[test]
    fn columns_of_old_files_give_the_name_that_is_written_today() {
        for name in ["quantise(4, tensor)", "quantise(8, head, exempt-sinks)"] {
            let condition: Condition = name.parse().unwrap();
            assert_eq!(of_columns(condition.bits(), condition.scope().as_deref()).as_deref(), Some(name));
        }
        assert_eq!(of_columns(None, None), None);
    }

    #[test]
    fn mistakes_are_told_with_what_there_is() {
        let refusal = |name: &str| name.parse::<Condition>().unwrap_err();
        assert!(refusal("").contains("written like quantise(4, tensor)"));
        assert!(refusal("blur(2)").contains("there is quantise"));
        assert!(refusal("quantise(4)").contains("bits and a scope"));
        assert!(refusal("quantise(1, row)").contains("2 to 16 bits"));
        assert!(refusal("quantise(4, matrix)").contains("tensor, head, row"));
    }
}
