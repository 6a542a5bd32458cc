//! The place of an answer in a text, and what separates the two behind the beginning of a reply.

use std::ops::Range;

use tokenizers::tokenizer::normalizer::Range as TextRange;
use tokenizers::NormalizedString;

use crate::segment::is_inside_word;
use crate::unwrap::space;

/// Finds the one place of an answer in a text; otherwise says how the text holds it, with the places if there are several.
pub(super) fn place(text: &str, answer: &str) -> Result<Range<usize>, String> {
    let mut places = places(text, answer)?;
    match places.len() {
        1 => Ok(places.remove(0)),
        n => {
            let shown: Vec<String> = places.into_iter().map(|at| shown(text, at)).collect();
            Err(format!(
                "holds {answer:?} in {n} places, and one is wanted ({}); give a longer answer, or take the others out of the \
                 text",
                shown.join("; ")
            ))
        }
    }
}

/// Finds the places of an answer: whole words and numbers, or, where there are none, parts of words, since many languages
/// write what belongs to a word without a space. Letters and their marks are alike, composed or not. If there is none, says so.
pub(super) fn places(text: &str, answer: &str) -> Result<Vec<Range<usize>>, String> {
    let mut places: Vec<Range<usize>> =
        text.match_indices(answer).map(|(start, _)| start..start + answer.len()).collect();
    if places.is_empty() && !answer.is_ascii() {
        places = composed_places(text, answer);
    }
    let is_whole = |at: &Range<usize>| !is_inside_word(text, at.start) && !is_inside_word(text, at.end);
    if places.iter().any(is_whole) {
        places.retain(is_whole);
    }
    places.retain(|at| !is_inside_number(text, at.start) && !is_inside_number(text, at.end));
    if places.is_empty() {
        return Err(format!("does not hold {answer:?}"));
    }
    Ok(places)
}

/// Finds the places of an answer where it stands in other letters and marks that mean the same.
fn composed_places(text: &str, answer: &str) -> Vec<Range<usize>> {
    let mut text = NormalizedString::from(text);
    let mut answer = NormalizedString::from(answer);
    text.nfc();
    answer.nfc();
    let answer = answer.get();
    let found = text.get().match_indices(answer).map(|(start, _)| start..start + answer.len());
    found.filter_map(|at| text.convert_offsets(TextRange::Normalized(at))).collect()
}

/// Returns `true` if digits stand on both sides of a position.
fn is_inside_number(text: &str, position: usize) -> bool {
    let (before, behind) = text.split_at(position);
    before.ends_with(char::is_numeric) && behind.starts_with(char::is_numeric)
}

/// Shows a place in a text with the words around it, and its line where there are several.
fn shown(text: &str, at: Range<usize>) -> String {
    const AROUND: usize = 20;
    let before: Vec<char> = text[..at.start].chars().rev().take(AROUND).collect();
    let behind: String = text[at.end..].chars().take(AROUND).collect();
    let words = format!("{}{}{behind}", String::from_iter(before.iter().rev()), &text[at.clone()]);
    let words = format!("…{}…", words.split_whitespace().collect::<Vec<_>>().join(" "));
    if text.contains('\n') {
        format!("line {}: {words}", 1 + text[..at.start].matches('\n').count())
    } else {
        words
    }
}

/// The beginning of a reply with what separates it from the answer: what stands there in the sentence, of which `before` is
/// what precedes the answer. Where the sentence does not say, that is nothing behind an opening mark and in scripts without
/// spaces, and otherwise a space.
pub(crate) fn led(lead: &str, before: &str, answer: &str) -> String {
    let lead = lead.trim_end();
    let words = before.trim_end();
    let gap = &before[words.len()..];
    let says = lead.chars().next_back().is_some_and(|last| words.ends_with(last));
    let between = match gap {
        _ if !says && opens(lead) => "",
        "" if !says => space(lead, answer),
        // A text may have a line end there.
        gap if gap.contains(|c: char| c.is_ascii_whitespace()) => " ",
        gap => gap,
    };
    format!("{lead}{between}")
}

/// Returns `true` if a text ends in a mark that belongs to what follows.
fn opens(text: &str) -> bool {
    let mut from_end = text.chars().rev();
    match from_end.next() {
        Some('(' | '[' | '{' | '¿' | '¡' | '「' | '『' | '《' | '〈' | '【' | '（') => true,
        Some(
            '"' | '\'' | '„' | '‚' | '“' | '”' | '‘' | '’' | '«' | '‹' | '$' | '€' | '£' | '¥' | '₹' | '₽' | '₺' | '#',
        ) => from_end.next().is_none_or(char::is_whitespace),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_as_a_whole_word_of_any_language() {
        for (text, answer, wanted) in [
            ("Room 17 has 7 chairs.", "7", vec!["Room 17 has [7] chairs."]),
            ("The train 4123 to Oslo leaves at gate 12.", "12", vec!["The train 4123 to Oslo leaves at gate [12]."]),
            ("Im Fußball zählt der Fuß.", "Fuß", vec!["Im Fußball zählt der [Fuß]."]),
            (
                "Москвич живёт в Москве, а не в г. Москва.",
                "Москва",
                vec!["Москвич живёт в Москве, а не в г. [Москва]."],
            ),
            ("It is Ann's, and Anna knows.", "Ann", vec!["It is [Ann]'s, and Anna knows."]),
            ("小明住在北京。", "北京", vec!["小明住在[北京]。"]),
            ("彼は東京に住んでいます。", "東京", vec!["彼は[東京]に住んでいます。"]),
            ("รหัสคือสายรุ้งวันนี้", "สายรุ้ง", vec!["รหัสคือ[สายรุ้ง]วันนี้"]),
            ("수도는 서울입니다.", "서울", vec!["수도는 [서울]입니다."]),
            ("הוא גר בירושלים.", "ירושלים", vec!["הוא גר ב[ירושלים]."]),
            ("Ju\u{308}rgen und Jörg", "Jürgen", vec!["[Ju\u{308}rgen] und Jörg"]),
            ("Jürgen und Jörg", "Ju\u{308}rgen", vec!["[Jürgen] und Jörg"]),
            ("The code is 4123.", "12", vec![]),
            ("Red is red.", "blue", vec![]),
            ("7 of 7", "7", vec!["[7] of 7", "7 of [7]"]),
        ] {
            let found = places(text, answer).unwrap_or_default().into_iter();
            let found = found.map(|at| format!("{}[{}]{}", &text[..at.start], &text[at.clone()], &text[at.end..]));
            assert_eq!(found.collect::<Vec<_>>(), wanted, "{answer} in {text}");
        }
    }

    #[test]
    fn an_answer_follows_its_lead_as_in_the_sentence() {
        for (lead, before, answer, wanted) in [
            ("The colour is", "The colour is ", "red", "The colour is "),
            ("Das Passwort lautet „", "Das Passwort lautet „", "Regenbogen", "Das Passwort lautet „"),
            ("Le mot est «", "Le mot est «\u{a0}", "fleur", "Le mot est «\u{a0}"),
            ("It costs $", "It costs $", "17", "It costs $"),
            ("他住在", "他住在", "北京", "他住在"),
            ("It is\nthe", "It is\nthe\n", "end", "It is\nthe "),
            // The sentence has other words.
            ("The opera was visited by", "", "Ann", "The opera was visited by "),
            ("The password is \"", "", "Rainbow", "The password is \""),
            ("The sign says “no” and", "“", "yes", "The sign says “no” and "),
            ("中国的首都是", "", "北京", "中国的首都是"),
            ("这里的密码是", "密码是", "Regenbogen", "这里的密码是"),
            ("Das Wort lautet", "Das Wort („", "Bonn", "Das Wort lautet "),
            ("העיר היא", "הוא גר ב", "ירושלים", "העיר היא "),
        ] {
            assert_eq!(led(lead, before, answer), wanted, "{before}|{answer}");
        }
    }
}
