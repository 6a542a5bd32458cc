//! Description of a variant in words, for `inspect` and the manifest.

use super::variant::{Factor, Gate, HeadNorm, Keys, Lambda, LambdaInit, Pairing, Sink, ValueWidth, Variant};

impl Variant {
    /// One-line description that includes `positions`: `DIFF V1, pairs (i, i+H), half-rotation RoPE, head norm without
    /// gain`. Properties that the variant shares with the named one are left out.
    pub fn in_words(&self, positions: &str) -> String {
        let kind = VariantKind::of(self);
        let mut parts = vec![kind.title().to_owned()];
        parts.extend(self.pairs(kind));
        parts.push(positions.to_owned());
        parts.extend(self.lambda_in_words(kind));
        parts.extend(self.finish_in_words(kind));
        parts.extend(match self.sink {
            Sink::None => None,
            Sink::Zero => Some("1 added to each softmax's denominator".to_owned()),
            Sink::Learned => Some("a learned sink logit per map".to_owned()),
        });
        parts.extend(match self.gate {
            Gate::None => None,
            Gate::Channel => Some("output gate".to_owned()),
            Gate::Head => Some("output gate per head".to_owned()),
        });
        parts.join(", ")
    }

    fn pairs(&self, kind: VariantKind) -> Option<String> {
        let signal = self.signal_heads;
        let pairs = match self.pairing {
            Pairing::None => return None,
            Pairing::Halves if signal > 1 => format!("{signal} signal heads on one noise map"),
            Pairing::Adjacent if signal > 1 => format!("{signal} signal heads before their noise head"),
            Pairing::Halves => "pairs (i, i+H)".to_owned(),
            Pairing::Adjacent => "pairs (2i, 2i+1)".to_owned(),
        };
        let keys = match self.keys {
            Keys::Shared => " on one key head",
            Keys::Separate => "",
            Keys::InOrder => ", keys as in the naive file",
            Keys::Next => " on two key heads",
        };
        let values = match (kind, self.values) {
            (VariantKind::Other, ValueWidth::Doubled) => ", doubled values",
            _ => "",
        };
        Some(format!("{pairs}{keys}{values}"))
    }

    fn lambda_in_words(&self, kind: VariantKind) -> Option<String> {
        let usual = kind.lambda() == Some(self.lambda);
        let words = match self.lambda {
            Lambda::None => return None,
            _ if usual => "",
            Lambda::Vectors => "lambda of learned vectors",
            Lambda::VectorsAndInit => "lambda of learned vectors and a stored lambda_init",
            Lambda::Layer => "one learned lambda per layer",
            Lambda::Head => "one learned lambda per head",
            Lambda::TokenSigmoid => "lambda per token and head",
            Lambda::Token => "lambda per token and head without sigmoid",
            Lambda::Fixed => "lambda fixed at lambda_init",
        };
        let words = words.to_owned();
        match self.lambda_init {
            // The initial value of a learned number is not part of the trained model.
            LambdaInit::Constant(init) if !matches!(self.lambda, Lambda::Layer | Lambda::Head) => {
                Some(format!("{words}{}lambda_init {init}", if words.is_empty() { "" } else { ", " }))
            }
            _ => (!usual).then_some(words),
        }
    }

    fn finish_in_words(&self, kind: VariantKind) -> Option<String> {
        let norm = match self.norm {
            HeadNorm::None if kind == VariantKind::V1 => Some("no head norm"),
            HeadNorm::None => None,
            HeadNorm::Rms => Some("head norm without gain"),
            HeadNorm::RmsGain => Some("head norm with gain"),
            HeadNorm::AllHeads => Some("one norm over all heads"),
        };
        let factor = match (self.factor, kind) {
            (Factor::One, VariantKind::V1) => Some("no factor"),
            (Factor::One, _) | (_, VariantKind::V1) => None,
            (Factor::OneMinusLambdaInit, _) => Some("times 1 - lambda_init"),
        };
        let parts: Vec<&str> = norm.into_iter().chain(factor).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// The published variant that a variant is closest to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum VariantKind {
    Standard,
    V1,
    V2,
    Scalar,
    Other,
}

impl VariantKind {
    fn of(variant: &Variant) -> Self {
        match (variant.maps, variant.keys, variant.values) {
            (1, ..) => Self::Standard,
            _ if variant.signal_heads > 1 && variant.values == ValueWidth::Single && variant.keys == Keys::Separate => {
                Self::Other
            }
            (_, Keys::Separate | Keys::InOrder, ValueWidth::Doubled) => Self::V1,
            (_, Keys::Shared | Keys::Next, ValueWidth::Single) => Self::V2,
            (_, Keys::Separate, ValueWidth::Single) if variant.lambda == Lambda::Layer => Self::Scalar,
            _ => Self::Other,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::V1 => "DIFF V1",
            Self::V2 => "DIFF V2",
            Self::Scalar => "scalar lambda",
            Self::Other => "differential",
        }
    }

    /// The lambda that this kind implies.
    fn lambda(self) -> Option<Lambda> {
        match self {
            Self::V1 => Some(Lambda::Vectors),
            Self::V2 => Some(Lambda::TokenSigmoid),
            Self::Scalar => Some(Lambda::Layer),
            Self::Standard | Self::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_properties_of_a_variant_are_described() {
        for (preset, words) in [
            ("transformer", "standard, RoPE"),
            ("transformer-norm", "standard, RoPE, head norm without gain"),
            ("sink", "standard, RoPE, a learned sink logit per map"),
            ("gated", "standard, RoPE, output gate"),
            ("gated-head", "standard, RoPE, output gate per head"),
            ("diff", "DIFF V1, pairs (i, i+H), RoPE, head norm without gain"),
            ("diff-no-norm", "DIFF V1, pairs (i, i+H), RoPE, no head norm"),
            ("diff-no-factor", "DIFF V1, pairs (i, i+H), RoPE, head norm without gain, no factor"),
            ("diff-fixed-lambda", "DIFF V1, pairs (i, i+H), RoPE, lambda fixed at lambda_init, head norm without gain"),
            ("diff-v2", "DIFF V2, pairs (2i, 2i+1) on one key head, RoPE"),
            ("diff-v2-across", "DIFF V2, pairs (2i, 2i+1) on two key heads, RoPE"),
            (
                "diff-v2-grouped",
                "DIFF V2, 3 signal heads before their noise head on one key head, RoPE",
            ),
            ("diff-scalar", "scalar lambda, pairs (i, i+H), RoPE, one norm over all heads"),
            (
                "diff-grouped",
                "differential, 3 signal heads on one noise map, RoPE, lambda of learned vectors, head norm without gain, \
                 times 1 - lambda_init",
            ),
        ] {
            assert_eq!(Variant::preset(preset).unwrap().in_words("RoPE"), words);
        }
    }

    #[test]
    fn different_variants_have_different_descriptions() {
        let presets = Variant::presets();
        for (name, variant) in presets {
            for (other_name, other) in presets {
                let alike = variant.in_words("RoPE") == other.in_words("RoPE");
                assert!(!alike || variant.computes_the_same_as(other), "{name} and {other_name}");
            }
        }
    }
}
