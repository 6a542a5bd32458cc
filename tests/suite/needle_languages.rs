//! Needles of a file in many languages: the answer behind the question has the tokens that it has in its needle.

use crate::common::Scratch;
use crate::real_models::real;
use engine::model::Gguf;
use serde_json::json;
use text::needle::{build_of, NeedleSpec, Texts};
use text::{Haystack, NeedlesFile, Tokenizer, FILE};

/// A needle up to its answer, which is the lead and what separates it from the answer; the answer, and what is behind it.
struct Case {
    language: &'static str,
    lead: &'static str,
    gap: &'static str,
    answer: &'static str,
    behind: &'static str,
    question: &'static str,
}

const fn case(language: &'static str, [lead, gap, answer, behind]: [&'static str; 4], question: &'static str) -> Case {
    Case { language, lead, gap, answer, behind, question }
}

const CASES: [Case; 19] = [
    case("English", ["The password is", " ", "rainbow", " until May."], "What is the password?"),
    case("quotes", ["The sign says \"", "", "open", "\" today."], "What does the sign say?"),
    case("money", ["The ticket costs $", "", "17", " in May."], "What does the ticket cost?"),
    case("brackets", ["The key (", "", "17", ") opens the door."], "Which key opens the door?"),
    case("hyphen", ["The boat is called U-", "", "17", ", they say."], "What is the boat called?"),
    case("German", ["Das Passwort lautet „", "", "Regenbogen", "“ und gilt bis Mai."], "Wie lautet das Passwort?"),
    case("French", ["Le mot est «", "\u{a0}", "soleil", "\u{a0}» depuis mai."], "Quel est le mot ?"),
    case("Spanish", ["La contraseña es «", "", "arcoíris", "» hasta mayo."], "¿Cuál es la contraseña?"),
    case("Polish", ["Hasło brzmi „", "", "żółw", "” od maja."], "Jak brzmi hasło?"),
    case("Russian", ["Пароль —", " ", "радуга", ", он действует до мая."], "Какой пароль?"),
    case("Greek", ["Ο κωδικός είναι", " ", "ουράνιο", ", ως τον Μάιο."], "Ποιος είναι ο κωδικός;"),
    case("Turkish", ["Yeni parola", " ", "İstanbul", "'dur."], "Yeni parola nedir?"),
    case("Arabic", ["كلمة السر هي", " ", "قوس قزح", "، حتى مايو."], "ما هي كلمة السر؟"),
    case("Hebrew", ["הסיסמה היא", " ", "קשת", ", עד מאי."], "מהי הסיסמה?"),
    case("Hindi", ["नया पासवर्ड", " ", "इंद्रधनुष", " है।"], "नया पासवर्ड क्या है?"),
    case("Chinese", ["密码是", "", "彩虹", "，五月前有效。"], "密码是什么？"),
    case("Japanese", ["合言葉は「", "", "虹", "」で、五月まで有効です。"], "合言葉は何ですか。"),
    case("Thai", ["รหัสผ่านคือ", "", "สายรุ้ง", " จนถึงเดือนพฤษภาคม"], "รหัสผ่านคืออะไร"),
    case("Korean", ["새 암호는", " ", "무지개", "입니다."], "새 암호는 무엇입니까?"),
];

fn check(tokenizer: &Tokenizer) {
    let folder = Scratch::new();
    let path = folder.path("needles.json");
    let spec = NeedleSpec { ctx_tok: 400, form: &FILE, ..NeedleSpec::default() };
    for Case { language, lead, gap, answer, behind, question } in &CASES {
        let needle = format!("{lead}{gap}{answer}{behind}");
        let entry = json!({"needle": needle, "question": question, "answer": answer, "lead": lead});
        std::fs::write(&path, entry.to_string()).unwrap();
        let file = NeedlesFile::read(&path).unwrap();
        let texts = Texts { haystack: &Haystack::Embedded, file: Some(&file), tokenizer };
        let prompt = build_of(&spec, 1, texts).unwrap_or_else(|error| panic!("{language}: {error:#}"));
        assert!(prompt.text.ends_with(&format!("\n{question}\n{lead}{gap}{answer}")), "{language}: {}", prompt.text);
        let query = &prompt.queries[0];
        let of_answer = |at: std::ops::Range<usize>| &prompt.ids[at];
        assert_eq!(of_answer(query.predicted.clone()), of_answer(query.answer.clone()), "{language}");
        // With the last token of the lead. Its first may have a space before it in one of the two.
        let in_needle = &prompt.ids[query.answer.start - 1..query.answer.end];
        assert!(prompt.ids.ends_with(in_needle), "{language}: {:?}", tokenizer.decode(in_needle));
    }
}

#[test]
fn lead_and_answer_have_the_tokens_of_the_needle_in_every_language() {
    check(Tokenizer::embedded());
}

#[test]
fn a_needle_stands_between_sentences_as_they_stand_between_each_other() {
    let folder = Scratch::new();
    let path = |name: &str| folder.path(name);
    for (language, sentences, needle, question, answer, wanted) in [
        (
            "Chinese",
            "河很宽。船很小。天很高。",
            "密码是彩虹，五月前有效。",
            "密码是什么？",
            "彩虹",
            "。密码是彩虹，五月前有效。",
        ),
        ("English", "A boat goes by. Nobody waves. ", "Tom is here.", "Who is here?", "Tom", ". Tom is here. "),
        (
            "an English needle in Chinese",
            "河很宽。船很小。天很高。",
            "Tom is here.",
            "Who is here?",
            "Tom",
            "。 Tom is here. ",
        ),
    ] {
        std::fs::write(path("haystack.txt"), sentences.repeat(200)).unwrap();
        let entry = json!({"needle": needle, "question": question, "answer": answer});
        std::fs::write(path("needles.json"), entry.to_string()).unwrap();
        let haystack = Haystack::from_path(&path("haystack.txt")).unwrap();
        let file = NeedlesFile::read(&path("needles.json")).unwrap();
        let texts = Texts { haystack: &haystack, file: Some(&file), tokenizer: Tokenizer::embedded() };
        let spec = NeedleSpec { ctx_tok: 400, form: &FILE, ..NeedleSpec::default() };
        let prompt = build_of(&spec, 1, texts).unwrap();
        assert!(prompt.text.contains(wanted), "{language}: {}", prompt.text);
    }
}

fn check_real(file: &str) {
    let Some(path) = real(file) else { return };
    let vocabulary = Gguf::open(&path).unwrap().vocabulary().unwrap().unwrap();
    check(&vocabulary.tokenizer(&path, &Default::default()).unwrap());
}

#[test]
fn smollm2_cuts_lead_and_answer_as_in_the_needle() {
    check_real("SmolLM2-135M-Instruct.Q4_1.gguf");
}

#[test]
fn gemma_3_cuts_lead_and_answer_as_in_the_needle() {
    check_real("gemma-3-270m-q4_k_m.gguf");
}
