//! The text between a generation prompt and an answer: the end of a thinking block that the generation prompt opens, or the
//! channel that an answer goes to.

use super::ChatTemplate;
use anyhow::Result;
use serde_json::{json, Value};

/// Beginning and end of thinking blocks, as templates write them.
const BLOCKS: [(&str, &str); 8] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("\u{25c1}think\u{25b7}", "\u{25c1}/think\u{25b7}"),
];

/// The mark before the name of a channel in the Harmony format of gpt-oss.
const CHANNEL: &str = "<|channel|>";

/// Content of an assistant's messages that no template contains.
const ANSWER: &str = "ANSWER of the assistant.";
const REASONING: &str = "REASONING of the assistant.";

/// The text that has to come between a generation prompt and an answer; `None` for most templates.
///
/// # Errors
/// If the template takes too long, or too much memory.
pub(super) fn opening(template: &ChatTemplate, after: &str) -> Result<Option<String>> {
    if let Some((_, close)) = BLOCKS.iter().find(|(open, _)| after.trim_end().ends_with(open)) {
        return Ok(Some(closing(template, after, close)?.unwrap_or_else(|| usual_closing(after, close))));
    }
    Ok(before_answer(template, after)?.filter(|text| text.starts_with(CHANNEL)))
}

/// The text that the template writes between a generation prompt and an answer.
fn before_answer(template: &ChatTemplate, after: &str) -> Result<Option<String>> {
    let behind = template.behind_user(Some(json!({ "role": "assistant", "content": ANSWER })), &[])?;
    Ok(behind.and_then(|behind| Some(behind.strip_prefix(after)?.split_once(ANSWER)?.0.to_owned())))
}

/// The text that closes the thinking block of the template: before an answer without reasoning, behind reasoning, or where thinking is
/// turned off.
fn closing(template: &ChatTemplate, after: &str, close: &str) -> Result<Option<String>> {
    if let Some(text) = before_answer(template, after)?.filter(|text| text.contains(close)) {
        return Ok(Some(text));
    }
    let reply = json!({
        "role": "assistant", "content": ANSWER, "reasoning_content": REASONING, "reasoning": REASONING, "thinking": REASONING
    });
    if let Some(behind) = template.behind_user(Some(reply), &[])? {
        let between = behind.split_once(REASONING).and_then(|(_, rest)| rest.split_once(ANSWER));
        if let Some(text) = between.map(|(between, _)| between.to_owned()).filter(|text| text.contains(close)) {
            return Ok(Some(text));
        }
    }
    let off = ["enable_thinking", "thinking"].map(|key| (key, Value::Bool(false)));
    let without = template.behind_user(None, &off)?;
    Ok(without.and_then(|without| without.strip_prefix(after).map(str::to_owned)).filter(|text| text.contains(close)))
}

/// The end of a block that no message of the template shows, on lines of its own if the beginning is.
fn usual_closing(after: &str, close: &str) -> String {
    if after.ends_with('\n') {
        format!("\n{close}\n\n")
    } else {
        format!("{close}\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn opening_of(source: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("chat_template.jinja"), source).unwrap();
        ChatTemplate::read(folder.path()).unwrap().unwrap().text_around().unwrap().opening
    }

    /// A template that thinks, whose messages show this for what the assistant said.
    fn thinks(reply: &str) -> String {
        format!(
            "{{% for m in messages %}}{{% if m.role == 'user' %}}<user>{{{{ m.content }}}}{{% else %}}<assistant>{reply}{{% endif %}}\
             {{% endfor %}}{{% if add_generation_prompt %}}{{{{ '<assistant><think>\\n' }}}}\
             {{% if enable_thinking is defined and not enable_thinking %}}{{{{ '\\n</think>\\n' }}}}{{% endif %}}{{% endif %}}"
        )
    }

    #[test]
    fn an_open_block_is_closed_as_the_template_closes_it() {
        for (reply, closing) in [
            // An empty block before an answer.
            ("{{ '<think>\\n\\n</think>\\n\\n' + m.content }}", "\n</think>\n\n"),
            // A block for reasoning alone.
            (
                "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>|{% endif %}{{ m.content }}",
                "</think>|",
            ),
            // None: as where thinking is off.
            ("{{ m.content }}", "\n</think>\n"),
        ] {
            assert_eq!(opening_of(&thinks(reply)).unwrap(), closing, "{reply}");
        }
        let bare = "{{ messages[0].content }}<think>";
        assert_eq!(opening_of(bare).unwrap(), "</think>\n\n");
        assert_eq!(opening_of(&format!("{bare}{{{{ '\\n' }}}}")).unwrap(), "\n</think>\n\n");
    }

    #[test]
    fn an_answer_goes_to_the_channel_that_the_template_names() {
        let source = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}<|start|>assistant<|channel|>final\
                      <|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}\
                      {% if add_generation_prompt %}<|start|>assistant{% endif %}";
        assert_eq!(opening_of(source).unwrap(), "<|channel|>final<|message|>");
    }

    #[test]
    fn a_closed_block_and_no_block_are_left_as_they_are() {
        for behind in ["<assistant>", "<think></think>", "<think>\n\n</think>\n\n", "say <think> first. <assistant>"] {
            assert_eq!(opening_of(&format!("{{{{ messages[0].content }}}}{behind}")), None, "{behind}");
        }
    }
}
