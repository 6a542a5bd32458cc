//! Query, key and value heads of every output head. A mistake here gives wrong numbers and no error.

use super::variant::{Keys, Pairing, ValueWidth, Variant};
use anyhow::{bail, ensure, Result};

/// For every output head h: the query and key head of each of its maps j, and the value heads (slices of the head
/// width) that it concatenates and weighs.
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
    /// Output heads H.
    pub fn heads(&self) -> usize {
        self.value.len()
    }

    /// Maps J per output head.
    pub fn maps(&self) -> usize {
        self.query.len()
    }

    /// Value slices per output head: the value width is this times the head width.
    pub fn value_slices(&self) -> usize {
        self.value.first().map_or(0, Vec::len)
    }

    /// Checks every index against the numbers of heads. Called once, when a model is built.
    ///
    /// # Panics
    /// If an index is out of range or the tables differ in length.
    pub fn check(&self, query_heads: usize, key_heads: usize, value_heads: usize) {
        assert!((1..=2).contains(&self.maps()) && self.key.len() == self.maps(), "one map or two");
        for (tables, heads) in [(&self.query, query_heads), (&self.key, key_heads)] {
            for table in tables {
                assert!(table.len() == self.heads() && table.iter().all(|&head| head < heads), "wiring out of range");
            }
        }
        for slices in &self.value {
            assert!(slices.len() == self.value_slices() && slices.iter().all(|&i| i < value_heads), "value wiring");
        }
    }
}

/// Numbers of heads: H output heads; value heads in slices of the head width, `num_key_value_heads` in `config.json`;
/// and groups of output heads that share keys and values.
impl Variant {
    /// Output heads of a model whose projections are as wide as those of a standard model with `raw` heads: `raw / 2`
    /// if values are doubled; with G signal heads per noise map `raw * G / (G + 1)`, which have `raw` query heads.
    pub fn output_heads(&self, raw: usize) -> usize {
        match (self.values, self.signal_heads) {
            (ValueWidth::Doubled, _) => raw / 2,
            (ValueWidth::Single, 1) => raw,
            (ValueWidth::Single, signal) => raw * signal / (signal + 1),
        }
    }

    /// Groups of heads that share keys and values.
    fn groups(&self, value_heads: usize) -> usize {
        match self.values {
            ValueWidth::Single => value_heads,
            ValueWidth::Doubled => value_heads / 2,
        }
    }

    /// Key heads of second maps, where maps have key heads of their own: one per group or per noise map, whichever are
    /// fewer.
    fn noise_groups(&self, heads: usize, value_heads: usize) -> usize {
        self.groups(value_heads).min(heads / self.signal_heads)
    }

    /// Projected query heads, for `heads` output heads.
    pub fn query_heads(&self, heads: usize) -> usize {
        if self.maps == 1 {
            heads
        } else {
            heads + heads / self.signal_heads
        }
    }

    /// Projected key heads.
    pub fn key_heads(&self, heads: usize, value_heads: usize) -> usize {
        let groups = self.groups(value_heads);
        match self.keys {
            Keys::Shared | Keys::Next => groups,
            Keys::Separate => groups + self.noise_groups(heads, value_heads),
            Keys::InOrder => value_heads,
        }
    }

    /// Checks the numbers of heads against each other.
    ///
    /// # Errors
    /// If one does not fit; the message has its name in `config.json`.
    pub fn check_heads(&self, heads: usize, value_heads: usize) -> Result<()> {
        let groups = self.groups(value_heads);
        let queries = self.query_heads(heads);
        if self.values == ValueWidth::Doubled {
            ensure!(
                value_heads.is_multiple_of(2),
                "num_key_value_heads {value_heads} is odd; a differential pair needs a key head for each of its maps"
            );
        }
        if groups == 0 || !heads.is_multiple_of(groups) {
            let straddles = self.maps == 2 && queries.is_multiple_of(value_heads);
            ensure!(
                !straddles,
                "num_key_value_heads {value_heads}: a differential pair would straddle two groups of the {queries} query heads"
            );
            bail!("num_key_value_heads {value_heads} does not divide the {queries} query heads");
        }
        let signal = self.signal_heads;
        let noise_groups = self.noise_groups(heads, value_heads);
        ensure!(
            heads.is_multiple_of(signal) && noise_groups > 0 && (heads / signal).is_multiple_of(noise_groups),
            "num_attention_heads {heads}: {signal} signal heads cannot share a noise map under {groups} groups"
        );
        ensure!(
            self.pairing != Pairing::Adjacent || self.keys != Keys::Separate || groups.is_multiple_of(noise_groups),
            "num_key_value_heads {value_heads}: {groups} groups do not divide into {noise_groups} noise maps"
        );
        ensure!(
            self.keys != Keys::Next || groups > 1,
            "num_key_value_heads {value_heads}: maps that read different groups need more than one"
        );
        Ok(())
    }

    /// The wiring of `heads` output heads over `value_heads` value heads.
    pub fn wiring(&self, heads: usize, value_heads: usize) -> Wiring {
        let groups = self.groups(value_heads);
        let of_group = heads / groups;
        let adjacent = self.pairing == Pairing::Adjacent;
        let mut wiring =
            Wiring { query: vec![Vec::new(); self.maps], key: vec![Vec::new(); self.maps], value: Vec::new() };
        for h in 0..heads {
            let group = h / of_group;
            wiring.value.push(match (self.values, adjacent) {
                (ValueWidth::Single, _) => vec![group],
                // Both Microsoft files have value heads of width 2d: slices 2g and 2g + 1 of group g. Hugging Face repeats
                // V as it does K and then joins its halves.
                (ValueWidth::Doubled, true) => vec![2 * group, 2 * group + 1],
                (ValueWidth::Doubled, false) => vec![group, groups + group],
            });
            let query = self.query_heads_of(h, heads);
            let key = self.key_heads_of(query, group, h, heads, value_heads);
            for j in 0..self.maps {
                wiring.query[j].push(query[j]);
                wiring.key[j].push(key[j]);
            }
        }
        wiring
    }

    /// Query heads of the maps of output head `h`.
    fn query_heads_of(&self, h: usize, heads: usize) -> [usize; 2] {
        let signal = self.signal_heads;
        match self.pairing {
            Pairing::None => [h, h],
            // G signal heads, then their noise head.
            Pairing::Adjacent => [h + h / signal, h / signal * (signal + 1) + signal],
            Pairing::Halves => [h, heads + h / signal],
        }
    }

    /// Key heads of the maps of output head `h` in a group, which reads the query heads `query`.
    fn key_heads_of(&self, query: [usize; 2], group: usize, h: usize, heads: usize, value_heads: usize) -> [usize; 2] {
        let groups = self.groups(value_heads);
        match (self.keys, self.pairing) {
            (Keys::Shared, _) => [group, group],
            (Keys::Next, _) => [group, (group + 1) % groups],
            (Keys::Separate, pairing) => {
                let noise_groups = self.noise_groups(heads, value_heads);
                let noise = h / (heads / noise_groups);
                if pairing == Pairing::Adjacent {
                    // Key heads of first maps for each one of second maps, which follows them.
                    let first = groups / noise_groups;
                    [group + group / first, noise * (first + 1) + first]
                } else {
                    [group, groups + noise]
                }
            }
            (Keys::InOrder, _) => query.map(|head| head / (self.query_heads(heads) / value_heads)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wiring(preset: &str, heads: usize, value_heads: usize) -> Wiring {
        let variant = Variant::preset(preset).unwrap();
        variant.check_heads(heads, value_heads).unwrap();
        let wiring = variant.wiring(heads, value_heads);
        wiring.check(variant.query_heads(heads), variant.key_heads(heads, value_heads), value_heads);
        wiring
    }

    #[test]
    fn grouped_heads_of_standard_attention_share_the_key_head_of_their_group() {
        let w = wiring("transformer", 6, 2);
        assert_eq!(w.key, [[0, 0, 0, 1, 1, 1]]);
        assert_eq!(w.value[5], [1]);
    }

    #[test]
    fn the_three_layouts_of_v1_differ_in_the_keys_their_maps_read() {
        assert_eq!(wiring("diff", 4, 4).key, [[0, 0, 1, 1], [2, 2, 3, 3]]);
        assert_eq!(wiring("diff-microsoft", 4, 4).key, [[0, 0, 2, 2], [1, 1, 3, 3]]);
        assert_eq!(wiring("diff-microsoft-naive", 4, 4).key, [[0, 1, 2, 3], [0, 1, 2, 3]]);
        assert_eq!(wiring("diff-microsoft", 4, 8), wiring("diff-microsoft-naive", 4, 8), "equal without grouping");
        assert_eq!(wiring("diff", 4, 4).value[3], [1, 3]);
        assert_eq!(wiring("diff-microsoft", 4, 4).value[3], [2, 3]);
    }

    #[test]
    fn both_maps_of_a_v2_head_read_one_key_head_and_the_control_reads_two() {
        let w = wiring("diff-v2", 6, 2);
        assert_eq!(w.key[0], w.key[1]);
        assert_eq!(w.key[0], [0, 0, 0, 1, 1, 1]);
        assert_eq!(w.query[1], [1, 3, 5, 7, 9, 11]);
        let across = wiring("diff-v2-across", 6, 2);
        assert_eq!(across, Wiring { key: vec![w.key[0].clone(), vec![1, 1, 1, 0, 0, 0]], ..w });
    }

    #[test]
    fn keys_of_the_scalar_layout_are_doubled_and_values_are_not() {
        let w = wiring("diff-scalar", 4, 2);
        assert_eq!(w.key, [[0, 0, 1, 1], [2, 2, 3, 3]]);
        assert_eq!(w.query[1], [4, 5, 6, 7]);
        assert_eq!(w.value, [[0], [0], [1], [1]]);
    }

    #[test]
    fn signal_heads_share_a_noise_map_and_its_key_head() {
        let w = wiring("diff-grouped", 6, 6);
        assert_eq!(w.query, [[0, 1, 2, 3, 4, 5], [6, 6, 6, 7, 7, 7]]);
        assert_eq!(w.key, w.query);
        let grouped_keys = wiring("diff-grouped", 6, 2);
        assert_eq!(grouped_keys.key, [[0, 0, 0, 1, 1, 1], [2, 2, 2, 3, 3, 3]]);
        assert_eq!(Variant::preset("diff-grouped").unwrap().output_heads(8), 6);
    }

    #[test]
    fn adjacent_signal_heads_are_followed_by_their_noise_head() {
        let w = wiring("diff-v2-grouped", 6, 2);
        assert_eq!(w.query, [[0, 1, 2, 4, 5, 6], [3, 3, 3, 7, 7, 7]]);
        assert_eq!(w.key, [[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1]]);
        // As in Motif 2 12.7B, with two signal heads: rows of q s s n, of k k1 k2, of v v1 v2.
        let motif = Variant { signal_heads: 2, ..Variant::preset("diff-microsoft").unwrap() };
        motif.check_heads(4, 4).unwrap();
        let w = motif.wiring(4, 4);
        assert_eq!(w.query, [[0, 1, 3, 4], [2, 2, 5, 5]]);
        assert_eq!(w.key, [[0, 0, 2, 2], [1, 1, 3, 3]]);
        assert_eq!(w.value, [[0, 1], [0, 1], [2, 3], [2, 3]]);
        assert_eq!((motif.query_heads(4), motif.key_heads(4, 4)), (6, 4));
    }

    #[test]
    fn counts_of_heads_that_do_not_fit_are_refused() {
        for (preset, heads, value_heads, says) in [
            ("transformer", 4, 3, "does not divide the 4"),
            ("diff", 2, 1, "odd"),
            ("diff-v2", 3, 2, "straddle"),
            ("diff-grouped", 4, 4, "signal heads"),
            ("diff-v2-across", 4, 1, "more than one"),
        ] {
            let error = Variant::preset(preset).unwrap().check_heads(heads, value_heads).unwrap_err();
            assert!(error.to_string().contains(says), "{preset}: {error}");
        }
    }
}
