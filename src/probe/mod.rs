//! Probes: one measurement of attention rows per file. They know rows, regions and numbers, and nothing of models.

mod answer;

pub use answer::{Allocation, AnswerProbe, AnswerSink};
