//! Lambda of every row of a head, for variants whose lambda depends on the token.

use crate::results::run_table::{Content, RunTable};
use engine::attention::{AttentionRow, RowCollector, RowProbe};
use names::metric::{ANSWER_REGION, CANCELLED, LAMBDA};

/// Observes the mix of all rows of differential heads.
pub(crate) struct LambdaProbe;

impl RowProbe for LambdaProbe {
    fn wants(&self, _layer: usize, _head: usize, _query: usize) -> bool {
        true
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(LambdaCollector { lambdas: Vec::new() })
    }
}

/// State of the probe for one head.
pub(crate) struct LambdaCollector {
    /// Lambda of each row, in the order of queries. Empty for heads with one map.
    pub(crate) lambdas: Vec<f32>,
}

impl RowCollector for LambdaCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        self.lambdas.extend(row.mix.get(1).map(|mix| -mix));
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        self.lambdas.extend(later.into_collector::<Self>().lambdas);
    }
}

/// What the second map takes away.
pub(crate) const CANCELLING: RunTable = RunTable {
    id: "cancelled",
    title: "What the subtraction cancels",
    note: "Weight of the second map, and the part of the attention that it takes away [95 % interval].",
    content: Content::Numbers {
        numbers: &[
            LAMBDA.overall(),
            CANCELLED.overall(),
            CANCELLED.of(ANSWER_REGION),
            CANCELLED.of("filler"),
            CANCELLED.of("bos"),
        ],
        by: &[],
    },
};

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch};
    use super::*;

    #[test]
    fn lambdas_are_in_query_order_for_any_blocks() {
        let rows = random_rows(9, 1);
        let want: Vec<f32> = rows.iter().map(|row| -row.mix[1]).collect();
        for block in [1, 4, 9] {
            assert_eq!(watch::<LambdaCollector>(&LambdaProbe, &rows, block).lambdas, want);
        }
    }
}
