//! Seeds of prompts.

/// Purpose of a prompt. Prompts of different purposes never share seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reported measurements.
    Test,
    /// Development during training.
    Development,
}

/// The seed of prompt `index` under a base seed: 53 bits of a hash of both, so that close base seeds share no prompts
/// and every CSV reader represents the number exactly.
pub fn prompt_seed(purpose: Purpose, base: u64, index: u64) -> u64 {
    // The odd increment of SplitMix64.
    let step = 0x9e37_79b9_7f4a_7c15_u64;
    let hash = mixed(mixed(base.wrapping_add(step)).wrapping_add(index.wrapping_add(1).wrapping_mul(step)));
    let below = hash >> 12; // 52 bits
    match purpose {
        Purpose::Test => below,
        Purpose::Development => below | 1 << 52,
    }
}

/// The finaliser of SplitMix64 (Steele, Lea & Flood 2014).
fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_seeds_close_together_and_other_purposes_share_no_prompts() {
        let mut seeds = std::collections::HashSet::new();
        for base in (0..40).chain([u64::MAX - 1, u64::MAX]) {
            for index in 0..500 {
                for purpose in [Purpose::Test, Purpose::Development] {
                    let seed = prompt_seed(purpose, base, index);
                    assert!(seed < 1 << 53 && seeds.insert(seed), "{purpose:?} {base} {index}");
                    assert_eq!(seed >> 52 == 1, purpose == Purpose::Development);
                }
            }
        }
        assert_eq!(prompt_seed(Purpose::Test, 0, 0), prompt_seed(Purpose::Test, 0, 0));
    }
}
