//! Tables of answers and of the attention of the rows that predict them.

use crate::results::run_table::{number_table, Content, RunTable};
use crate::results::table::Table;
use crate::results::Frame;
use names::metric::{self, ANSWER_REGION};
use names::{Column, Number};

pub(crate) const ANSWERS: RunTable = RunTable {
    id: "answers",
    title: "Answers in full",
    note: "Hits in percent, otherwise means over prompts [95 % interval].",
    content: Content::Numbers {
        numbers: &[
            metric::ACCURACY.overall(),
            metric::GENERATED_ACCURACY.overall(),
            metric::GENERATED_CONTAINS.overall(),
            metric::ANSWER_LOG_PROB.overall(),
            metric::NLL.overall(),
            metric::NLL_AR_HIT.overall(),
            metric::NLL_OTHER.overall(),
            metric::AR_HIT_SHARE.overall(),
        ],
        by: &[],
    },
};

pub(crate) const ATTENTION: RunTable = RunTable {
    id: "attention",
    title: "Where the attention goes",
    note: "Out: of what all heads write. In a and |a|: of the weights and of their magnitudes, means over heads [95 % interval].",
    content: Content::Numbers {
        numbers: &[
            metric::SHARE_OUT.of(ANSWER_REGION),
            metric::NOISE_OUT.overall(),
            metric::SHARE_SIGNED.of(ANSWER_REGION),
            metric::NOISE_SIGNED.overall(),
            metric::SHARE_ABS.of(ANSWER_REGION),
            metric::NOISE_ABS.overall(),
        ],
        by: &[],
    },
};

pub(crate) const HIDDEN: RunTable = RunTable {
    id: "hidden",
    title: "What hiding a region changes",
    note: "Log-probability and accuracy of answers whose rows do not see the region, less those of the untreated passes [95 % interval].",
    content: Content::Numbers {
        numbers: &[metric::HIDDEN_LOG_PROB.overall(), metric::HIDDEN_ACCURACY.overall()],
        by: &[Column::Region],
    },
};

pub(crate) const REGIONS: RunTable = RunTable {
    id: "regions",
    title: "Regions",
    note: "Share of what all heads write [95 % interval].",
    content: Content::Made(regions),
};

/// The share of the output of every region but the answer.
fn regions(frame: &Frame) -> Option<Table> {
    let others = frame.regions.iter().filter(|region| *region != ANSWER_REGION);
    let numbers: Vec<Number<'_>> =
        others.map(|region| Number { metric: &metric::SHARE_OUT, region: Some(region) }).collect();
    number_table(frame, &numbers, &[])
}

pub(crate) const DEPTH: RunTable = RunTable {
    id: "depth",
    title: "By depth",
    note: "By depth of the answer in the text [95 % interval].",
    content: Content::Made(by_depth),
};

/// Accuracy and shares with a row for each depth, where there are several.
fn by_depth(frame: &Frame) -> Option<Table> {
    const NUMBERS: [Number<'static>; 7] = [
        metric::ACCURACY.overall(),
        metric::ANSWER_LOG_PROB.overall(),
        metric::SHARE_OUT.of(ANSWER_REGION),
        metric::NOISE_OUT.overall(),
        metric::SHARE_ABS.of(ANSWER_REGION),
        metric::NOISE_ABS.overall(),
        metric::LAMBDA.overall(),
    ];
    (frame.depths_pct().len() > 1).then(|| number_table(frame, &NUMBERS, &[Column::DepthReqPct]))?
}
