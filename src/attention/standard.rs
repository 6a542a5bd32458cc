//! Standard attention (MHA, GQA, MQA): one map per head.

use super::Wiring;

/// Output head h reads query head h and key head h / rep, with rep = heads / kv_heads.
pub fn wiring(heads: usize, kv_heads: usize) -> Wiring {
    let rep = heads / kv_heads;
    let kv: Vec<usize> = (0..heads).map(|h| h / rep).collect();
    Wiring {
        query: vec![(0..heads).collect()],
        key: vec![kv.clone()],
        value: kv.into_iter().map(|i| vec![i]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::wiring;

    #[test]
    fn grouped_heads_share_the_key_head_of_their_group() {
        let w = wiring(6, 2);
        assert_eq!(w.key, [[0, 0, 0, 1, 1, 1]]);
        assert_eq!(w.value[5], [1]);
    }
}
