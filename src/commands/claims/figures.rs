//! The figures of claims: what each is about, by what it may depend on.

use super::super::nll::POSITIONS;
use super::judge::{findings, Finding};
use super::list::Better;
use super::tables::short_verdict;
use crate::figures::{Over, Panel, RunFigure, View};
use crate::results::run_table::{number_table_of, RunTable};
use crate::results::table::{key_column, numbers, words, Cell, Table, TableRows};
use crate::results::Frame;
use names::metric::{
    ACCURACY, ANSWER_REGION, MAP_COSINE, MAP_COSINE_CHANCE, NOISE_ABS, NOISE_OUT, NOISE_SIGNED, SAID_NUMBER, SHARE_ABS,
    SHARE_OUT, SHARE_SIGNED,
};
use names::{Column, Cut, Value};
use stats::Interval;

const POOLING: &str = "mean over prompts";

pub(super) const FIGURES: [RunFigure; 9] = [
    RunFigure {
        file: "claims",
        title: "The paper's claims",
        subtitle:
            "changes from the standard model [95 %], to the right as the paper says, and verdicts; in capitals: primary",
        pooling: POOLING,
        table: &RunTable::made("", "", all_claims),
        view: View::Forest {
            down: "claim",
            panels: &[Panel::of(&[IN_INTEREST])],
            x_label: "change over the smallest change of interest",
        },
    },
    answers_by_depth("answers", "Answers of needles, two asked for", &RunTable::made("", "", of_answers)),
    RunFigure {
        file: "attention",
        title: "Attention to the answer and to noise",
        subtitle: "rows that predict the answer, all heads of all layers",
        pooling: POOLING,
        table: &RunTable::made("", "", attention),
        view: View::Lines {
            over: Over::Names { key: "depth_pct", label: "depth of the answer, %" },
            panels: &[
                Panel::of(&[SHARE_SIGNED.name]),
                Panel::of(&[NOISE_SIGNED.name]),
                Panel::of(&[SHARE_OUT.name]),
                Panel::of(&[NOISE_OUT.name]),
                Panel::of(&[SHARE_ABS.name]),
                Panel::of(&[NOISE_ABS.name]),
            ],
        },
    },
    answers_by_depth("depths", "Answers of needles, one asked for", &RunTable::made("", "", of_one)),
    RunFigure { file: "text", ..POSITIONS },
    RunFigure {
        file: "bits",
        title: "Answers with logits in few bits",
        subtitle: "",
        pooling: POOLING,
        table: &RunTable::made("", "", bits),
        view: View::Lines { over: Over::Names { key: "condition", label: "" }, panels: &[Panel::of(&[ACCURACY.name])] },
    },
    RunFigure {
        file: "examples",
        title: "Answers by the number of examples",
        subtitle: "",
        pooling: "mean over prompts and arrangements",
        table: &RunTable::made("", "", examples),
        view: View::Lines {
            over: Over::Numbers { key: "N", label: "examples in the prompt" },
            panels: &[Panel::of(&[ACCURACY.name])],
        },
    },
    RunFigure {
        file: "invented",
        title: "Questions to which a number is said",
        subtitle: "train: the name is in the text; absent: it is not",
        pooling: POOLING,
        table: &RunTable::made("", "", invented),
        view: View::Lines { over: Over::Names { key: "cities", label: "" }, panels: &[Panel::of(&[SAID_NUMBER.name])] },
    },
    RunFigure {
        file: "maps",
        title: "Agreement of both maps, by region",
        subtitle: "cosine over the keys of a region; by chance: with the keys of the second map permuted",
        pooling: "mean over prompts, rows that predict the answer, and all heads",
        table: &RunTable::made("", "", maps),
        view: View::Lines {
            over: Over::Names { key: "region", label: "region of the prompt" },
            panels: &[Panel::titled("cosine of both maps", &[MAP_COSINE.name, MAP_COSINE_CHANCE.name])],
        },
    },
];

/// The column of changes of claims over what is of interest.
const IN_INTEREST: &str = "change";

/// The change of each claim in multiples of the smallest one that is of interest, positive where it is as the paper says.
fn all_claims(frame: &Frame) -> Option<Table> {
    let findings: Vec<Finding<'_>> = findings(frame).into_iter().flatten().collect();
    let drawn: Vec<&Finding<'_>> = findings.iter().filter(|finding| !finding.claim.is_detail).collect();
    TableRows::of(&drawn)
        .column(words("claim").key(), |finding| Cell::words(finding.claim.title()))
        .column(key_column(Column::Model), |finding| Cell::words(finding.model))
        .column(numbers("").named(IN_INTEREST), |finding| in_interest(finding))
        .noted("")
        .with_rows()
}

fn in_interest(finding: &Finding<'_>) -> Cell {
    let interest = finding.interest();
    let Some(change) = finding.change.as_ref().filter(|_| interest > 0.0) else { return Cell::none() };
    let sign = if finding.claim.better == Better::Lower { -1.0 } else { 1.0 };
    let scaled = |x: f64| sign * x / interest;
    let interval = change.interval().map(|Interval { lo, hi }| {
        let [one, other] = [scaled(lo), scaled(hi)];
        Interval { lo: one.min(other), hi: one.max(other) }
    });
    let shown = Cell::difference(finding.kind(), change);
    let text = format!("{}  {}", shown.line(), short_verdict(finding));
    Cell { exact: Some(scaled(change.diff)), interval, ..Cell::words(text) }
}

/// The accuracy of needle prompts by depth.
const fn answers_by_depth(file: &'static str, title: &'static str, table: &'static RunTable) -> RunFigure {
    let view = View::Grid { down: "depth_pct", value: ACCURACY.name };
    RunFigure { file, title, subtitle: "95 % Wilson intervals", pooling: POOLING, table, view }
}

const fn asked(n: u64) -> Cut<'static> {
    (Column::Retrieve, Some(Value::Int(n)))
}

const TASK: Cut<'static> = (Column::Task, Some(Value::Text("needle")));

fn of_answers(frame: &Frame) -> Option<Table> {
    number_table_of(frame, &[TASK, asked(2)], &[ACCURACY.overall()], &[Column::DepthReqPct])
}

fn of_one(frame: &Frame) -> Option<Table> {
    let cities = (Column::Cities, Some(Value::Text("train")));
    number_table_of(frame, &[TASK, asked(1), cities], &[ACCURACY.overall()], &[Column::DepthReqPct])
}

fn attention(frame: &Frame) -> Option<Table> {
    let numbers = [
        SHARE_SIGNED.of(ANSWER_REGION),
        NOISE_SIGNED.overall(),
        SHARE_OUT.of(ANSWER_REGION),
        NOISE_OUT.overall(),
        SHARE_ABS.of(ANSWER_REGION),
        NOISE_ABS.overall(),
    ];
    number_table_of(frame, &[TASK, asked(2)], &numbers, &[Column::DepthReqPct])
}

fn bits(frame: &Frame) -> Option<Table> {
    number_table_of(frame, &[TASK, asked(4)], &[ACCURACY.overall()], &[])
}

fn examples(frame: &Frame) -> Option<Table> {
    number_table_of(frame, &[(Column::Task, Some(Value::Text("shots random")))], &[ACCURACY.overall()], &[])
}

fn invented(frame: &Frame) -> Option<Table> {
    number_table_of(frame, &[TASK], &[SAID_NUMBER.overall()], &[Column::Cities])
}

fn maps(frame: &Frame) -> Option<Table> {
    let numbers = [MAP_COSINE.overall(), MAP_COSINE_CHANCE.overall()];
    number_table_of(frame, &[TASK, asked(3)], &numbers, &[Column::Region])
}
