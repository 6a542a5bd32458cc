//! Parser of the names of conditions. Errors list the valid choices.

use super::{
    Condition, HeadSelection, KeySelection, PairedPrompt, Quantised, Quantiser, Ranking, Removal, Replacement,
    RowSelection, Treatment, NO_HEADS, TREATMENT_FORMS, UNTREATED,
};
use crate::{hint, repeated, HeadPlace, LayersAndHeads, Region};
use std::str::FromStr;
use strum::VariantArray;

/// Names of the treatments, separated by commas.
fn kinds() -> String {
    TREATMENT_FORMS.map(|form| form.name).join(", ")
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name.trim() == UNTREATED {
            return Ok(Self::default());
        }
        let treatments = name.split(';').map(|text| text.trim().parse()).collect::<Result<Vec<Treatment>, _>>()?;
        for (of, numbers) in [(Quantised::Logits, "logits"), (Quantised::Qk, "queries and keys")] {
            if treatments.iter().filter(|treatment| matches!(treatment, Treatment::Quantise(by) if by.of == of)).count()
                > 1
            {
                return Err(format!("`{name}` quantises {numbers} twice"));
            }
        }
        let condition = Self { treatments };
        if PairedPrompt::VARIANTS.iter().all(|prompt| condition.patched_rows().any(|(from, _)| from == *prompt)) {
            return Err(format!("`{name}` takes outputs from both prompts, but a pass reads one of them"));
        }
        Ok(condition)
    }
}

impl FromStr for Treatment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || format!("`{text}` is not a treatment, expected one of {}, written like mask(noise)", kinds());
        let (kind, rest) = text.split_once('(').ok_or_else(shape)?;
        let mut arguments = Arguments::read(rest.strip_suffix(')').ok_or_else(shape)?)?;
        let treatment = match kind.trim() {
            "quantise" => quantise(Quantised::Logits, &mut arguments),
            "quantise-qk" => quantise(Quantised::Qk, &mut arguments),
            "mask" => remove(Removal::Mask, &mut arguments),
            "silence" => silence(&mut arguments),
            "ablate" => replace(false, &mut arguments),
            "keep" => replace(true, &mut arguments),
            "patch" => patch(&mut arguments),
            other => {
                let hint = hint(other, TREATMENT_FORMS.map(|form| form.name));
                return Err(format!("`{other}` is not a treatment{hint}, expected one of {}", kinds()));
            }
        };
        let kind = kind.trim();
        treatment.and_then(|treatment| arguments.end(treatment)).map_err(|why| format!("{kind}: {why}"))
    }
}

/// Arguments in parentheses: words, then settings.
struct Arguments<'a> {
    words: Vec<&'a str>,
    settings: Vec<(&'a str, &'a str)>,
}

impl<'a> Arguments<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let mut arguments = Self { words: Vec::new(), settings: Vec::new() };
        for argument in text.split(',').map(str::trim) {
            match argument.split_once('=') {
                Some((name, value)) => arguments.settings.push((name.trim(), value.trim())),
                None => arguments.words.push(argument),
            }
        }
        let names: Vec<&str> = arguments.settings.iter().map(|(name, _)| *name).collect();
        if let Some(name) = repeated(&names) {
            return Err(format!("`{name}` is set twice"));
        }
        arguments.words.reverse();
        Ok(arguments)
    }

    /// Takes the next word.
    fn word(&mut self) -> Option<&'a str> {
        self.words.pop().filter(|word| !word.is_empty())
    }

    /// Takes the next word if it is `name`.
    fn flag(&mut self, name: &str) -> bool {
        let given = self.words.last() == Some(&name);
        if given {
            self.words.pop();
        }
        given
    }

    /// Takes the value of a setting.
    fn setting(&mut self, name: &str) -> Option<&'a str> {
        let place = self.settings.iter().position(|(given, _)| *given == name)?;
        Some(self.settings.remove(place).1)
    }

    /// Takes a setting that is a list of numbers.
    fn list(&mut self, name: &str) -> Result<Option<Vec<usize>>, String> {
        let Some(text) = self.setting(name) else { return Ok(None) };
        let numbers = text.split('+').map(|number| whole(name, number)).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(in_order(numbers)))
    }

    /// Takes layers, heads and rows.
    fn scope(&mut self) -> Result<(LayersAndHeads, RowSelection), String> {
        let of = LayersAndHeads { layers: self.list("layers")?, heads: self.list("heads")? };
        let rows = match self.setting("rows") {
            None => RowSelection::default(),
            Some(name) => named("selection of rows", name)?,
        };
        Ok((of, rows))
    }

    /// The treatment if no arguments are left.
    fn end(self, treatment: Treatment) -> Result<Treatment, String> {
        match (self.words.last(), self.settings.first()) {
            (Some(word), _) => Err(format!("`{word}` is unexpected")),
            (_, Some((name, _))) => Err(format!("there is no setting `{name}`")),
            (None, None) => Ok(treatment),
        }
    }
}

fn whole<T: FromStr>(what: &str, text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("{what}: `{text}` is not a whole number"))
}

/// Sorts and deduplicates.
fn in_order<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}

fn quantise(of: Quantised, arguments: &mut Arguments<'_>) -> Result<Treatment, String> {
    let Some((format, scope)) = arguments.word().zip(arguments.word()) else {
        return Err(match of {
            Quantised::Logits => "expected bits, a scope and optionally exempt-sinks, as in quantise(4, tensor)".into(),
            Quantised::Qk => "expected bits, fp8, nvfp4 or mxfp4, and a scope, as in quantise-qk(4, block)".into(),
        });
    };
    let quantiser = Quantiser {
        of,
        format: format.parse()?,
        scope: scope.parse()?,
        smooth: arguments.flag("smooth"),
        rotate: arguments.flag("rotate"),
        exempt_sinks: arguments.flag("exempt-sinks"),
        layers: arguments.list("layers")?,
    };
    quantiser.check()?;
    Ok(Treatment::Quantise(quantiser))
}

fn remove(how: Removal, arguments: &mut Arguments<'_>) -> Result<Treatment, String> {
    let keys = arguments.word().ok_or("expected regions of keys, as in mask(noise)")?.parse()?;
    let (of, rows) = arguments.scope()?;
    Ok(Treatment::Remove { how, keys, of, rows })
}

fn silence(arguments: &mut Arguments<'_>) -> Result<Treatment, String> {
    let how = match arguments.setting("map") {
        None => Removal::Silence,
        Some("2") => Removal::SilenceSecond,
        Some(map) => return Err(format!("map={map}: only the second map can be silenced by itself, map=2")),
    };
    remove(how, arguments)
}

fn replace(others: bool, arguments: &mut Arguments<'_>) -> Result<Treatment, String> {
    let heads = arguments.word().ok_or("expected heads as layer.head, as in ablate(0.3+2.1)")?.parse()?;
    let with = if arguments.flag("zero") { Replacement::Zero } else { Replacement::Mean };
    let (of, rows) = arguments.scope()?;
    Ok(Treatment::Replace { others, heads, of, rows, with })
}

fn patch(arguments: &mut Arguments<'_>) -> Result<Treatment, String> {
    const SHAPE: &str = "as in patch(0.3+2.1, from=clean)";
    let heads = match arguments.word().ok_or_else(|| format!("expected heads as layer.head, {SHAPE}"))? {
        NO_HEADS => HeadSelection::Named(Vec::new()),
        heads => heads.parse()?,
    };
    let from = arguments.setting("from").ok_or_else(|| format!("expected from=clean or from=corrupted, {SHAPE}"))?;
    let from = named("prompt", from)?;
    let (of, rows) = arguments.scope()?;
    Ok(Treatment::Replace { others: false, heads, of, rows, with: Replacement::Patch(from) })
}

fn regions(text: &str) -> Result<Vec<Region>, String> {
    let mut regions = Vec::new();
    for name in text.split('+').map(str::trim) {
        match Region::ALL.into_iter().find(|region| region.name() == name) {
            Some(region) => regions.push(region),
            None if name == "noise" => regions.extend(Region::NOISE),
            None => {
                let names = Region::ALL.map(Region::name);
                let hint = hint(name, names.into_iter().chain(["noise"]));
                let names = names.join(", ");
                return Err(format!(
                    "`{name}` is not a region{hint}, expected {names}, noise, random:NUMBER or random:noise"
                ));
            }
        }
    }
    Ok(in_order(regions))
}

impl FromStr for KeySelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("random:") {
            None => regions(text).map(Self::Regions),
            Some(number) => number.trim().parse().map(Self::Random).or_else(|_| regions(number).map(Self::RandomLike)),
        }
    }
}

impl FromStr for Ranking {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named("ranking", text.trim())
    }
}

impl FromStr for HeadSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').map(str::trim).collect();
        match parts.as_slice() {
            ["all"] => Ok(Self::All),
            ["best", n, by] => Ok(Self::Best { n: whole("best", n)?, by: by.parse()? }),
            ["random", n, by, draw] => {
                Ok(Self::Random { n: whole("random", n)?, by: by.parse()?, draw: whole("random", draw)? })
            }
            [list] => {
                let heads = list.split('+').map(|name| named_head(name.trim())).collect::<Result<Vec<_>, _>>()?;
                Ok(Self::Named(in_order(heads)))
            }
            _ => Err(format!(
                "`{text}` is not a selection of heads, expected best:NUMBER:RANKING or random:NUMBER:RANKING:DRAW"
            )),
        }
    }
}

/// The head `layer.head`.
fn named_head(name: &str) -> Result<HeadPlace, String> {
    let Some((layer, head)) = name.split_once('.') else {
        return Err(format!(
            "`{name}` is not a head, expected layer.head, all, best:NUMBER:RANKING or random:NUMBER:RANKING:DRAW"
        ));
    };
    Ok(HeadPlace { layer: whole("layer", layer)?, head: whole("head", head)? })
}

/// The variant of that name, which is a `what`.
fn named<T: VariantArray + Copy + Into<&'static str>>(what: &str, name: &str) -> Result<T, String> {
    let names: Vec<&str> = T::VARIANTS.iter().map(|&variant| variant.into()).collect();
    match names.iter().position(|known| *known == name) {
        Some(at) => Ok(T::VARIANTS[at]),
        None => {
            let hint = hint(name, names.iter().copied());
            Err(format!("`{name}` is not a {what}{hint}, expected one of {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_read_back_as_the_condition_that_wrote_them() {
        for name in [
            "none",
            "quantise(4, tensor)",
            "quantise(16, row, exempt-sinks)",
            "quantise(4, head, layers=0+2)",
            "quantise-qk(4, block)",
            "quantise-qk(fp8, token, smooth)",
            "quantise-qk(mxfp4, head, smooth, rotate, exempt-sinks, layers=1+3)",
            "quantise(8, row); quantise-qk(8, block, rotate)",
            "mask(noise)",
            "silence(filler+distractor, layers=0+2, heads=1, rows=all)",
            "mask(random:20, rows=question)",
            "mask(first+noise)",
            "silence(bos+first)",
            "silence(noise, map=2)",
            "silence(question, map=2, layers=1, rows=all)",
            "mask(random:needle+answer)",
            "ablate(0.3+2.1)",
            "ablate(all, layers=1, zero)",
            "keep(best:4:share_abs)",
            "ablate(random:8:share_abs:2, rows=all, zero)",
            "quantise(4, row); mask(noise)",
            "patch(none, from=clean)",
            "patch(0.3+2.1, from=corrupted)",
            "patch(all, layers=1, rows=question, from=clean); mask(noise)",
        ] {
            let condition: Condition = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(condition.to_string(), name);
            assert_eq!(condition.column().as_deref(), (name != "none").then_some(name));
        }
    }

    #[test]
    fn equivalent_spellings_of_a_condition_have_one_name() {
        for (written, name) in [
            (" quantise( 4,head ) ", "quantise(4, head)"),
            ("mask(distractor+template + filler)", "mask(noise)"),
            ("mask(noise, rows=answer)", "mask(noise)"),
            ("silence(answer+needle,heads=3+1+3,layers=0)", "silence(needle+answer, layers=0, heads=1+3)"),
            ("ablate(2.1+0.3+2.1)", "ablate(0.3+2.1)"),
            ("mask(noise) ;quantise(8, row)", "mask(noise); quantise(8, row)"),
            ("patch(1.0, from = clean, layers=1)", "patch(1.0, layers=1, from=clean)"),
        ] {
            assert_eq!(written.parse::<Condition>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn errors_list_the_valid_choices() {
        let refusal = |name: &str| name.parse::<Condition>().unwrap_err();
        for (name, words) in [
            ("", "expected one of quantise, quantise-qk, mask"),
            ("mask(noise", "written like"),
            ("blur(2)", "expected one of quantise, quantise-qk, mask, silence, ablate, keep, patch"),
            ("quantise(4, row, heads=1)", "there is no setting `heads`"),
            ("quantise-qk(4)", "expected bits, fp8, nvfp4 or mxfp4, and a scope"),
            ("quantise-qk(17, block)", "2 to 16 bits"),
            ("quantise-qk(fp6, block)", "`fp6` is not a number of bits, fp8, nvfp4 or mxfp4"),
            ("quantise-qk(4, row)", "queries and keys have block, token and head"),
            ("quantise-qk(4, block, rotate, smooth)", "`smooth` is unexpected"),
            ("quantise-qk(4, block); quantise-qk(8, block)", "quantises queries and keys twice"),
            ("quantise(4)", "expected bits, a scope"),
            ("quantise(1, row)", "2 to 16 bits"),
            ("quantise(4, matrix)", "expected tensor, head, row, block or token"),
            ("quantise(nvfp4, row)", "for queries and keys; logits have 2 to 16 bits"),
            ("quantise(4, row); quantise(8, row)", "twice"),
            ("mask()", "expected regions"),
            ("silence(noise, map=1)", "only the second map"),
            ("mask(noise, map=2)", "there is no setting `map`"),
            (
                "mask(nois)",
                "expected bos, first, template, filler, distractor, needle, answer, question, noise, random",
            ),
            ("mask(random:few)", "`few` is not a region"),
            ("mask(noise, row=all)", "there is no setting `row`"),
            ("mask(noise, rows=some)", "expected one of answer, question, all"),
            ("mask(noise, layers=1, layers=2)", "set twice"),
            ("mask(noise, layers=first)", "`first` is not a whole number"),
            ("mask(noise, zero)", "`zero` is unexpected"),
            ("patch(0.1)", "expected from=clean or from=corrupted"),
            ("patch(from=clean)", "expected heads as layer.head"),
            ("patch(0.1, from=other)", "not a prompt, expected one of clean, corrupted"),
            ("patch(0.1, from=clean); patch(0.2, from=corrupted)", "from both prompts"),
            ("patch(0.1, from=clean, zero)", "`zero` is unexpected"),
            ("ablate(none)", "not a head"),
            ("ablate(3)", "not a head, expected layer.head, all"),
            ("ablate(1.x)", "`x` is not a whole number"),
            ("ablate(best:4)", "best:NUMBER:RANKING"),
            (
                "ablate(best:4:beauty)",
                "not a ranking, expected one of cost, share_out, share_abs, attribution, retrieval",
            ),
        ] {
            assert!(refusal(name).contains(words), "{name}: {}", refusal(name));
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_accepted_names_read_back(name in "[a-z(),;:=+. 0-9-]{0,60}") {
            if let Ok(condition) = name.parse::<Condition>() {
                prop_assert_eq!(condition.to_string().parse::<Condition>(), Ok(condition));
            }
        }
    }
}
