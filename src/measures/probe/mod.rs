//! Probes: one measurement of attention rows per file. They depend on rows, regions and numbers, but not on models.
//!
//! | probe | measures per head | rows |
//! |---|---|---|
//! | [`AnswerProbe`] | attention by region | those that predict an answer |
//! | [`ContributionProbe`] | contribution of each region to the head's output | those that predict an answer |
//! | [`EntropyProbe`] | entropy of the rows | those that predict an answer |
//! | [`RowsProbe`] | the rows themselves | those that predict an answer |
//! | [`GridProbe`] | the map, pooled to bins | a range |
//! | [`RetrievalProbe`] | retrieval of the answer | those of the question and the answer |
//! | [`RepeatProbe`] | attention to the previous token, duplicates and their successors | all, of repeated tokens |
//! | [`SinkProbe`] | attention received by each key | about 512 over the text, and the answer's |
//! | [`FirstTokenProbe`] | attention to the first token | the first of a text |
//! | [`LogitProbe`] | largest logits and their distribution | all |
//! | [`LambdaProbe`] | weight of the second map | all |
//!
//! [`ResidualStats`] measures the residual stream as [`LogitProbe`] measures logits.

mod answer;
mod contribution;
mod entropy;
mod first_token;
mod grid;
mod lambda;
mod logits;
mod residual;
mod roles;
mod rows;
mod sink;
#[cfg(test)]
pub(crate) mod testing;

pub use answer::{runs, Allocation, AnswerCollector, AnswerProbe, SinkSums};
pub use contribution::{Contribution, ContributionCollector, ContributionProbe, StrongKey};
pub use entropy::{EntropyCollector, EntropyProbe};
pub use first_token::{FirstTokenCollector, FirstTokenProbe};
pub use grid::{GridCollector, GridMean, GridProbe, GridSpec, PooledMap, Pooling, RowQuantity};
pub use lambda::{LambdaCollector, LambdaProbe};
pub use logits::{LogitCollector, LogitProbe};
pub use residual::{MassiveActivation, ResidualStats};
pub use roles::{QuestionSpans, RepeatCollector, RepeatProbe, RetrievalCollector, RetrievalProbe, Score};
pub use rows::{KeptRow, RowsCollector, RowsProbe};
pub use sink::{ReceivedCollector, SinkProbe};
