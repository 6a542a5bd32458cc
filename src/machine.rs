//! Identity of the program and the machine, as far as results may depend on them. Every manifest has it, and runs are
//! continued only where it is the same.

use serde::{Deserialize, Serialize};

/// The program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Version of the crate.
    pub version: String,
    /// Commit of the sources, with `-dirty` if files were changed; `None` if git did not know.
    pub git: Option<String>,
    /// Hash of the sources, in hexadecimal.
    pub source: String,
}

/// Formats as `0.1.0 (commit 1a2b3c, sources 0123456789ab)`, without an unknown commit.
impl std::fmt::Display for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let commit = self.git.as_ref().map_or_else(String::new, |git| format!("commit {git}, "));
        write!(f, "{} ({commit}sources {:.12})", self.version, self.source)
    }
}

impl Default for Tool {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            git: option_env!("DIFFTOOL_GIT").map(String::from),
            source: env!("DIFFTOOL_SOURCE").into(),
        }
    }
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system: `linux`.
    pub os: String,
    /// Processor architecture: `x86_64`.
    pub arch: String,
    /// Name of the processor, if the system provides it.
    pub cpu: Option<String>,
    /// Available instruction sets that select the loops and matrix products. Others sum in a different order, so their
    /// last bits differ.
    pub features: Vec<String>,
}

impl Machine {
    /// The current machine.
    pub fn here() -> Self {
        Self {
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            cpu: cpu(),
            features: features().into_iter().map(String::from).collect(),
        }
    }

    /// The kind of its processor, on which the last bits of results depend: `x86_64 avx2 fma`.
    pub fn kind(&self) -> String {
        let words: Vec<&str> =
            [self.arch.as_str()].into_iter().chain(self.features.iter().map(String::as_str)).collect();
        words.join(" ")
    }
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    let known = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
    ];
    known.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

/// Other architectures have only one set of loops.
#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

/// The `model name` of Linux.
fn cpu() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_machine_has_the_features_of_its_processor() {
        let tool = Tool::default();
        let machine = Machine::here();
        assert!(tool.source.len() == 16 && tool.source.bytes().all(|byte| byte.is_ascii_hexdigit()), "{tool:?}");
        let kind = machine.kind();
        assert!(kind.starts_with(&machine.arch), "{kind}");
        assert!(machine.features.iter().all(|feature| kind.contains(feature)), "{kind}");
        assert_eq!(machine, Machine::here());
    }
}
