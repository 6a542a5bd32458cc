//! Which heads read which: the part of a checkpoint's layout that fails silently when it is wrong.

/// For every output head h and map j: the query and key head of the map, and the value heads, in slices of the head
/// width, whose concatenation the head weighs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// `query[j][h]`: query head of map j of output head h.
    pub query: Vec<Vec<usize>>,
    /// `key[j][h]`: key head of map j of output head h.
    pub key: Vec<Vec<usize>>,
    /// `value[h]`: value heads of output head h, concatenated.
    pub value: Vec<Vec<usize>>,
}

impl Wiring {
    /// Number of output heads H.
    pub fn heads(&self) -> usize {
        self.value.len()
    }

    /// Number of maps J per output head.
    pub fn maps(&self) -> usize {
        self.query.len()
    }

    /// Value slices per output head: the value width is this times the head width.
    pub fn value_slices(&self) -> usize {
        self.value.first().map_or(0, Vec::len)
    }

    /// Panics unless every index is inside the given head counts. Called once when a model is built.
    ///
    /// # Panics
    /// If an index is out of range or the tables disagree in length.
    pub fn check(&self, query_heads: usize, key_heads: usize, value_heads: usize) {
        let inside = |table: &Vec<usize>, n: usize| table.len() == self.heads() && table.iter().all(|&i| i < n);
        assert!(self.query.iter().all(|table| inside(table, query_heads)), "query wiring out of range");
        assert!(self.key.iter().all(|table| inside(table, key_heads)), "key wiring out of range");
        let slices = self.value_slices();
        assert!(self.value.iter().all(|s| s.len() == slices && s.iter().all(|&i| i < value_heads)), "value wiring");
    }
}
