//! Probes: one measurement of attention rows per file. They know rows, regions and numbers, and nothing of models.
//!
//! | probe | what it learns of a head | rows it wants |
//! |---|---|---|
//! | [`AnswerProbe`] | where the answer's rows look, by region | those that predict an answer |
//! | [`ContributionProbe`] | what each region gives the head's output | those that predict an answer |
//! | [`ShapeProbe`] | how spread out those rows are | those that predict an answer |
//! | [`RowsProbe`] | those rows themselves | those that predict an answer |
//! | [`GridProbe`] | a picture of the map, pooled to bins | a range |
//! | [`RetrievalProbe`] | whether it finds and copies the answer | those of the question and the answer |
//! | [`RepeatProbe`] | whether it looks at the token before, or at what came before | all, of repeated tokens |
//! | [`SinkProbe`] | which keys every row looks at | some 512 over the text, and the answer's |
//! | [`LogitProbe`] | the largest logits and their distribution | all |
//! | [`LambdaProbe`] | the weight of its second map | all |
//!
//! [`Hidden`] learns from the residual stream what [`LogitProbe`] learns from logits.

mod answer;
mod contribution;
mod grid;
mod hidden;
mod lambda;
mod logits;
mod roles;
mod rows;
mod shape;
mod sink;
#[cfg(test)]
pub(crate) mod testing;

pub use answer::{runs, Allocation, AnswerProbe, AnswerSink, SinkSums};
pub use contribution::{Contribution, ContributionProbe, ContributionSink};
pub use grid::{GridMean, GridProbe, GridSink, GridSpec, PooledMap, Pooling, Quantity};
pub use hidden::{Hidden, HiddenAt, Massive};
pub use lambda::{LambdaProbe, LambdaSink};
pub use logits::{LogitAt, LogitProbe, LogitSink};
pub use roles::{Asked, RepeatProbe, RepeatSink, RetrievalProbe, RetrievalSink, Score, VIEWS};
pub use rows::{RowsProbe, RowsSink};
pub use shape::{Shape, ShapeProbe, ShapeSink, ShapeSum};
pub use sink::{shares_without, ReceivedSink, SinkProbe};
